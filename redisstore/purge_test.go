package redisstore

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/script"
)

// A purge of all live messages removes a message that is leased when the purge begins, though its
// holder gives it back meanwhile.
func TestPurgeTakesWhatMoves(t *testing.T) {
	for _, others := range []int{0, 2 * script.Items} { // in one script, and in several
		p := openProcess(t, fresh())
		moved := 0
		for n := 1; ; n++ {
			var ms []punctual.NewMessage
			for i := range others {
				ms = append(ms, punctual.NewMessage{Topic: "orders", ID: fmt.Sprint("other ", i), Delay: time.Duration(1+i) * time.Minute})
			}
			push(t, p.Store, append(ms, punctual.NewMessage{Topic: "orders", ID: "x", Due: time.Unix(1, 0)})...)
			d := claimOne(t, p.Store, 0)
			p.interrupt.arm(n, false, func() error {
				ss := []punctual.Settlement{{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleSnooze, Delay: 30 * time.Second}}
				errs, err := p.Settle(t.Context(), ss)
				if err == nil && errs[0] == nil {
					moved++
				}
				return err
			})
			_, err := p.Purge(t.Context(), punctual.PurgeQuery{Topic: "orders"})
			called := p.interrupt.called()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Get(t.Context(), "orders", "x"); !errors.Is(err, punctual.ErrNotFound) {
				t.Errorf("a message that was given back in front of script %d of a purge: get = %v; want ErrNotFound", n, err)
			}
			if !called {
				break
			}
		}
		if moved == 0 {
			t.Error("this test shows nothing: the message was never given back")
		}
		wantSound(t, p.Store)
	}
}
