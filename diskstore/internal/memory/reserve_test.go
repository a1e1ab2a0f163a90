package memory

import (
	"errors"
	"reflect"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/record"
)

// TestTokensAreNotGivenOutBeforeTheyMayBe: Reserve reserves no message for which there is no lease
// token (P4). It says that tokens are short, and has the claim poll again a millisecond later.
func TestTokensAreNotGivenOutBeforeTheyMayBe(t *testing.T) {
	x := New(1<<20, func(string, int64) {})
	o := x.AddTopic("o", 1, settings(false))
	x.StartTokens(7, 7)
	e := x.Expect([]Added{{Topic: o, At: record.Position{Ms: 5, Seq: 1}}, {Topic: o, At: record.Position{Ms: 5, Seq: 2}}}, 5)
	if e.Tokens != 7+TokenBlock {
		t.Errorf("a transaction reserves lease tokens up to %d, want a block", e.Tokens)
	}
	e.Tokens = 0 // as if the transaction had reserved none
	x.Publish(e, 5)
	if result := x.Reserve("o", 10, 2); len(result.Reserved) != 0 || !result.TokensShort || result.Next != 11 {
		t.Errorf("without tokens a claim reserved %+v", result)
	}
	x.StartTokens(7, 8)
	result := x.Reserve("o", 10, 2)
	if len(result.Reserved) != 1 || !result.TokensShort || result.Reserved[0].Token != 7 {
		t.Errorf("with one token a claim reserved %+v", result)
	}
	if result := x.Reserve("p", 10, 2); len(result.Reserved) != 0 || result.Next != Never {
		t.Errorf("of a topic that does not exist a claim reserved %+v", result)
	}
	if c := result.Reserved[0]; !x.Has(c) {
		t.Error("the claim has not what it reserved")
	}
	o.Detach(result.Reserved[0].Last.At)
	if x.Has(result.Reserved[0]) {
		t.Error("the claim has what was detached")
	}
	if err := x.Verify(); err != nil {
		t.Error(err)
	}
}

// at is a clock that stands at a time.
func at(ms int64) func() int64 { return func() int64 { return ms } }

// TestLeaseThatIsNotMadeEndsTheOneBefore: a lease runs out before Confirm makes it. Then memory has
// what the claim log is to have: the lease before under the new token, which nobody holds (P4).
func TestLeaseThatIsNotMadeEndsTheOneBefore(t *testing.T) {
	x := New(1<<20, func(string, int64) {})
	o := x.AddTopic("o", 1, settings(false))
	x.StartTokens(7, 100)
	before := record.Lease{Topic: 1, At: record.Position{Ms: 5, Seq: 1}, Token: 3, Renewed: 2, Attempt: 1, Until: 10}
	o.Restore(before, "a", false, false)
	reserved := x.Reserve("o", 10, 1).Reserved
	if len(reserved) != 1 || reserved[0].Last.Token != 3 {
		t.Fatalf("a claim reserved %+v, want the message whose lease has run out", reserved)
	}
	reserved[0].Message = &record.Record{ID: "a"}
	granted, leases := x.Grant(reserved, 0, at(10))
	if len(granted) != 1 || leases[0].Token != 7 {
		t.Fatalf("granted were %+v", leases)
	}
	made, ended := x.Confirm(granted, at(leases[0].Until))
	want := before
	want.Token, want.Renewed = 7, 1
	if len(made) != 0 || len(ended) != 1 || !reflect.DeepEqual(ended[0], want) {
		t.Fatalf("a lease that has run out: made %v, for the claim log %+v; want none made, and %+v", made, ended, want)
	}
	if has := x.Leases(); len(has) != 1 || !reflect.DeepEqual(has[0], want) {
		t.Errorf("memory has %+v, the claim log %+v", has, want)
	}
	st := punctual.Settlement{Topic: "o", ID: "a", Token: 3, Verb: punctual.SettleExtend}
	if done, ok := x.Settle([]punctual.Settlement{st}, at(20)); !ok || !errors.Is(done.Errs[0], punctual.ErrLeaseLost) {
		t.Errorf("P4 fencing: an extension under the token before is %+v, %v; want ErrLeaseLost", done, ok)
	}
	if err := x.Verify(); err != nil {
		t.Error(err)
	}
}
