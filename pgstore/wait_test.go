package pgstore

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// askedClock counts how often somebody begins to sleep.
type askedClock struct {
	*storekit.ManualClock
	asked atomic.Int64
}

func (c *askedClock) After(t time.Time) (<-chan time.Time, func()) {
	c.asked.Add(1)
	return c.ManualClock.After(t)
}

// A claim that waits, and the poller behind it, sleep while nothing happens: with the clock standing still, nobody looks at
// it again and again.
func TestWaitingClaimsSleep(t *testing.T) {
	clock := &askedClock{ManualClock: storekit.NewManualClock(time.Unix(1_800_000_000, 0))}
	s := openFresh(t, clock).(*Store)
	if _, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "later", Delay: time.Hour}}); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	got := make(chan error, 1)
	go func() {
		_, err := s.Claim(ctx, punctual.Claim{Topics: []string{"later", "empty"}, Max: 1, Wait: time.Hour})
		got <- err
	}()
	waitUntil(t, "the poller has read when the topics need attention", func() bool {
		s.waits.mu.Lock()
		defer s.waits.mu.Unlock()
		later := s.waits.topics["later"]
		return later != nil && later.at != never && !later.asking && !s.waits.polling
	})
	before := clock.asked.Load()
	if before == 0 {
		t.Fatal("this test shows nothing: nobody asked the clock")
	}
	time.Sleep(100 * time.Millisecond) // nothing is to happen; who looks again and again does so a hundred thousand times
	if n := clock.asked.Load() - before; n > 100 {
		t.Errorf("the clock was asked %d times while nothing happened", n)
	}
	end()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Errorf("the claim ended with %v", err)
	}
}
