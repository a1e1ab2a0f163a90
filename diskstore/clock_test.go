package diskstore

import (
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

// TestAfterMeetsAnAdvance: a wait that begins while the clock is moved, and read by others,
// does not reach beyond the time asked for (P11).
func TestAfterMeetsAnAdvance(t *testing.T) {
	source := punctual.NewManualClock(time.Unix(1_000_000, 0))
	c := newClock(source, time.Time{})
	for range 3000 {
		due := c.ms() + 1000
		var reached <-chan time.Time
		var stop func()
		var all sync.WaitGroup
		all.Go(func() { reached, stop = c.after(due, maxSleep) })
		all.Go(func() {
			source.Advance(time.Second)
			c.now()
		})
		all.Wait()
		select {
		case <-reached:
		default:
			t.Fatalf("P11: the clock has reached %d, a wait until then goes on", due)
		}
		stop()
	}
}
