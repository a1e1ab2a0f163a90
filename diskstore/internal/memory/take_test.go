package memory

import (
	"testing"

	"github.com/punctualmq/punctual/diskstore/internal/record"
)

// TestTokensAreNotGivenOutBeforeTheyMayBe: a claim takes no message for which there is no lease token (P4), says so, and
// looks again a moment later.
func TestTokensAreNotGivenOutBeforeTheyMayBe(t *testing.T) {
	x := New(1<<20, func(string, int64) {})
	o := x.AddTopic("o", 1, settings(false))
	x.StartTokens(7, 7)
	e := x.Expect([]Added{{Topic: o, At: record.Position{Ms: 5, Seq: 1}}, {Topic: o, At: record.Position{Ms: 5, Seq: 2}}}, 5)
	if e.Tokens != 7+TokenBlock {
		t.Errorf("a transaction reserves lease tokens up to %d, want a block", e.Tokens)
	}
	e.Tokens = 0 // as if it had not
	x.Publish(e, 5)
	if took := x.Take("o", 10, 2); len(took.Taken) != 0 || !took.TokensShort || took.Next != 11 {
		t.Errorf("without tokens a claim took %+v", took)
	}
	x.StartTokens(7, 8)
	took := x.Take("o", 10, 2)
	if len(took.Taken) != 1 || !took.TokensShort || took.Taken[0].Token != 7 {
		t.Errorf("with one token a claim took %+v", took)
	}
	if took := x.Take("p", 10, 2); len(took.Taken) != 0 || took.Next != Never {
		t.Errorf("of a topic that does not exist a claim took %+v", took)
	}
	if c := took.Taken[0]; !x.Has(c) {
		t.Error("the claim has not what it took")
	}
	o.Detach(took.Taken[0].Last.At)
	if x.Has(took.Taken[0]) {
		t.Error("the claim has what was detached")
	}
	if err := x.Verify(); err != nil {
		t.Error(err)
	}
}
