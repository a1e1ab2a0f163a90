package memstore

import (
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// A claim that waits while the store's clock is ahead of its source must return when the store's
// clock reaches the due time.
func TestClaimWaitsBehindAStepBack(t *testing.T) {
	real := time.Now()
	synctest.Test(t, func(t *testing.T) {
		clock := newSteppedClock(real)
		s := New(&Options{Clock: clock})
		before := storeTime(t, s)
		push(t, s, punctual.NewMessage{ID: "a", Delay: 10 * time.Second})
		clock.step = -storekit.StepBeyond // more would have the store's clock step
		began := time.Now()
		ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 1, Wait: time.Minute})
		if err != nil || len(ds) != 1 {
			t.Fatalf("Claim = %v, %v; want one delivery", ds, err)
		}
		// Half the speed: the clocks meet after 4 s, in which the store's clock has gone on by 2.
		if took := time.Since(began); took != 12*time.Second {
			t.Errorf("P11: delivered after %v of real time, want 12s", took)
		}
		if got := ds[0].Delivered.Sub(before); got != 10*time.Second {
			t.Errorf("P2 never early: delivered %v after the push by the store's clock, want 10s", got)
		}
	})
}

// A step of the clock forward makes messages due at once. The waiting claim may return them 1 s
// (pollInterval) late.
func TestClaimWaitsBehindAStepForward(t *testing.T) {
	real := time.Now()
	synctest.Test(t, func(t *testing.T) {
		clock := newSteppedClock(real)
		s := New(&Options{Clock: clock})
		push(t, s, punctual.NewMessage{ID: "a", Delay: 24 * time.Hour})
		got := make(chan int)
		go func() {
			ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 1, Wait: time.Minute})
			if err != nil {
				t.Errorf("claim: %v", err)
			}
			got <- len(ds)
		}()
		synctest.Wait()
		began := time.Now()
		s.mu.Lock()
		clock.step = 24 * time.Hour
		s.mu.Unlock()
		if n := <-got; n != 1 || time.Since(began) > time.Second {
			t.Errorf("P11 wake-ups are only that: %d deliveries %v after the step, want 1 within 1s", n, time.Since(began))
		}
	})
}

// Time that has passed before somebody sets the clock back counts, by the monotonic clock: at half
// its speed, as behind any step back.
func TestTimePassesBeforeAStepBack(t *testing.T) {
	real := time.Now()
	synctest.Test(t, func(t *testing.T) {
		clock := newSteppedClock(real)
		s := New(&Options{Clock: clock})
		before := storeTime(t, s)
		time.Sleep(10 * time.Second)
		clock.step = -time.Hour
		if got := storeTime(t, s).Sub(before); got != 5*time.Second {
			t.Errorf("P8: by the store's clock %v have passed in 10s of real time, at whose end its source was set back, want 5s", got)
		}
	})
}

// steppedClock is a clock that somebody sets: step, in whole seconds, shifts what it shows, and not
// its monotonic reading, as with the clock of a machine. A wait that is under way when step changes
// lasts as long as without the change. The store reads the clock with its mutex held.
type steppedClock struct {
	step time.Duration
	// real is a reading of the machine's clock, which has a monotonic reading, because times in a
	// bubble of synctest have none; began is when it was taken, by the time of the bubble.
	real, began time.Time
}

// newSteppedClock returns a clock for the bubble that calls it, which shows a whole second now.
// real is what time.Now has returned outside.
func newSteppedClock(real time.Time) *steppedClock {
	return &steppedClock{real: real.Add(-time.Duration(real.Nanosecond())), began: time.Now()}
}

func (c *steppedClock) Now() time.Time {
	now := c.real.Add(time.Since(c.began))
	set := now
	// Add shifts both readings, and a Time has no method that shifts the wall clock alone. The
	// first field of a Time with a monotonic reading has the seconds of the wall clock above 30
	// bits of nanoseconds.
	*(*uint64)(unsafe.Pointer(&set)) += uint64(c.step/time.Second) << 30
	if set.Sub(now) != 0 || set.Round(0).Sub(now.Round(0)) != c.step {
		panic("steppedClock does not know the times of this release of Go")
	}
	return set
}

func (c *steppedClock) After(t time.Time) (<-chan time.Time, func()) {
	return storekit.SystemClock{}.After(time.Now().Add(t.Sub(c.Now())))
}

func storeTime(t *testing.T, s *Store) time.Time {
	t.Helper()
	now, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return now
}
