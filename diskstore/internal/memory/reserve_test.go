package memory

import (
	"testing"

	"github.com/punctualmq/punctual/diskstore/internal/record"
)

// TestTokensAreNotGivenOutBeforeTheyMayBe: Reserve reserves no message for which there is no lease token (P4). It says that tokens are
// short, and has the claim poll again a millisecond later.
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
