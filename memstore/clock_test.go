package memstore

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// A claim that waits while the store's clock is ahead of its source must return when the store's clock reaches the due time, not
// when the source does.
func TestClaimWaitsBehindAStepBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &steppedClock{}
		s := New(&Options{Clock: clock})
		before := storeTime(t, s)
		push(t, s, punctual.NewMessage{ID: "a", Delay: 10 * time.Second})
		clock.step = -time.Hour
		began := time.Now()
		ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 1, Wait: time.Minute})
		if err != nil || len(ds) != 1 {
			t.Fatalf("Claim = %v, %v; want one delivery", ds, err)
		}
		// Half the speed: ten seconds of the store's clock take twenty.
		if took := time.Since(began); took != 20*time.Second {
			t.Errorf("P11: delivered after %v of real time, want 20s", took)
		}
		if got := ds[0].Delivered.Sub(before); got != 10*time.Second {
			t.Errorf("P2 never early: delivered %v after the push by the store's clock, want 10s", got)
		}
	})
}

// A step of the clock forward makes messages due at once. The waiting claim may return them 1 s (pollInterval) late.
func TestClaimWaitsBehindAStepForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &steppedClock{}
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

// steppedClock is the system clock shifted by step, as if somebody had set it. A wait that is under
// way when step changes lasts as long as without the change. The store reads the clock with its mutex held.
type steppedClock struct{ step time.Duration }

func (c *steppedClock) Now() time.Time { return time.Now().Add(c.step) }

func (c *steppedClock) After(t time.Time) (<-chan time.Time, func()) {
	return storekit.SystemClock{}.After(t.Add(-c.step))
}

func storeTime(t *testing.T, s *Store) time.Time {
	t.Helper()
	now, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return now
}
