//go:build !race

package diskstore

import (
	"context"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/writer"
	"github.com/punctualmq/punctual/storekit"
)

// TestSlowCostOfALife bounds what the life of a message costs that uses no follow-ups, no
// conditions and no companions: how often memory is allocated, and how many bytes the transaction
// of its push has. A new feature must not add to either. Another release of Go or of the database
// may change these numbers; then they are measured anew, before and after. The race detector
// allocates, too, so the test runs without it, among the slow ones.
func TestSlowCostOfALife(t *testing.T) {
	s := openAt(t, "store", &Options{fs: vfs.NewMem(), Clock: storekit.NewManualClock(testStart), Logger: quiet, byHand: true})
	ms := []punctual.NewMessage{{Topic: "o", ID: "a", Body: make([]byte, 100)}}
	ss := make([]punctual.Settlement, 1)
	ctx := context.Background()
	settle := func(v punctual.Verb) {
		ss[0].Verb = v
		if errs, err := s.Settle(ctx, ss); errors.Join(append(errs, err)...) != nil {
			t.Fatal(errs, err)
		}
	}
	claim := func() {
		ds, err := s.Claim(ctx, punctual.Claim{Topics: []string{"o"}, Max: 1})
		if err != nil || len(ds) != 1 {
			t.Fatal(ds, err)
		}
		ss[0] = punctual.Settlement{Topic: "o", ID: "a", Token: ds[0].Token}
	}
	life := func() {
		if _, err := s.Push(ctx, ms); err != nil {
			t.Fatal(err)
		}
		claim()
		settle(punctual.SettleAck)
	}
	life() // makes the topic
	for _, c := range []struct {
		what string
		do   func()
		want float64
	}{
		{"push, claim and ack of a message", life, 78},
		{"push, claim, snooze, claim and ack of a message", func() {
			if _, err := s.Push(ctx, ms); err != nil {
				t.Fatal(err)
			}
			claim()
			settle(punctual.SettleSnooze)
			claim()
			settle(punctual.SettleAck)
		}, 145},
	} {
		if n := testing.AllocsPerRun(2000, c.do); n > c.want {
			t.Errorf("%s: memory is allocated %v times, want %v at most", c.what, n, c.want)
		}
	}
	err := s.writer.Do(ctx, func(tx *writer.Tx) error {
		if _, err := decidePush(tx, &punctual.NewMessage{Topic: "o", ID: "b", Body: ms[0].Body}, 1000, nil); err != nil {
			return err
		}
		if n := tx.Maintenance().Size(); n != 183 {
			t.Errorf("a push with a body of 100 bytes writes %d bytes, want 183", n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
