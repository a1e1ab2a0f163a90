package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

// RunResume checks that the end of a pause wakes a claim that waits in another process. waiting and
// other are two stores of one data set, as two processes have them. The end of the pause through
// other may wake a claim of waiting at most a second later than a push through other does (P11).
// RunResume compares it with a push because the time that a push takes depends on the machine.
func RunResume(t *testing.T, waiting, other punctual.Store) {
	t.Helper()
	in, err := punctual.As[punctual.Inspector](other)
	if err != nil {
		t.Fatal(err)
	}
	push := func() {
		t.Helper()
		rs, err := other.Push(t.Context(), []punctual.NewMessage{{Topic: orders, ID: x}})
		if err != nil || rs[0].Err != nil {
			t.Fatalf("push: %v, %v", rs, err)
		}
	}
	paused := func(yes bool) {
		t.Helper()
		if _, err := in.Configure(t.Context(), orders, punctual.SettingsPatch{DeliveryPaused: &yes}); err != nil {
			t.Fatalf("configure: %v", err)
		}
	}
	// woken returns the longest time, of five tries, from the event until the waiting claim has
	// returned the message.
	woken := func(scene, event func()) (longest time.Duration) {
		t.Helper()
		for range 5 {
			scene()
			ctx, end := context.WithTimeout(t.Context(), defaultWaitLimit)
			var ds []punctual.Delivery
			claimed := make(chan error, 1)
			go func() {
				var err error
				ds, err = waiting.Claim(ctx, punctual.Claim{Topics: []string{orders}, Max: 1, Wait: time.Hour})
				claimed <- err
			}()
			asleep()
			began := time.Now()
			event()
			err := <-claimed
			longest = max(longest, time.Since(began))
			end()
			if err != nil || len(ds) != 1 {
				t.Fatalf("P11: a claim that waits brought %v, %v", ds, err)
			}
			if errs, err := other.Settle(t.Context(), []punctual.Settlement{ackOf(ds[0])}); err != nil || errs[0] != nil {
				t.Fatalf("ack: %v, %v", errs, err)
			}
		}
		return longest
	}
	var late []time.Duration
	for range delayTries {
		pushed := woken(func() {}, push)
		resumed := woken(func() { paused(true); push() }, func() { paused(false) })
		if resumed <= pushed+time.Second {
			return
		}
		late = append(late, resumed-pushed)
	}
	t.Errorf("P11: the end of a pause woke a claim in another process later than a push does, by %v; want at most a second", late)
}
