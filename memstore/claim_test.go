package memstore

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// A table of what a waiting claim returns, and after how long, when something happens to the store
// meanwhile.
func TestClaimWaits(t *testing.T) {
	on, off := true, false
	var held punctual.Delivery
	tests := []struct {
		name    string
		before  func(t *testing.T, s *Store)
		after   time.Duration // when happens runs; 0: it does not
		happens func(t *testing.T, s *Store, cancel func())
		want    int
		wantErr error
		took    time.Duration
	}{
		{name: "for nothing", took: time.Minute},
		{
			name:   "until a message is due",
			before: func(t *testing.T, s *Store) { push(t, s, punctual.NewMessage{ID: "a", Delay: 2500 * time.Millisecond}) },
			want:   1, took: 2500 * time.Millisecond,
		},
		{
			name: "until a lease runs out",
			before: func(t *testing.T, s *Store) {
				push(t, s, punctual.NewMessage{ID: "a"})
				claim(t, s, 1)
			},
			want: 1, took: 30 * time.Second,
		},
		{
			name: "until a push", after: 7 * time.Second,
			happens: func(t *testing.T, s *Store, _ func()) { push(t, s, punctual.NewMessage{ID: "a"}) },
			want:    1, took: 7 * time.Second,
		},
		{
			name: "until a push of something due before what it waits for", after: time.Second,
			before: func(t *testing.T, s *Store) { push(t, s, punctual.NewMessage{ID: "a", Delay: time.Hour}) },
			happens: func(t *testing.T, s *Store, _ func()) {
				push(t, s, punctual.NewMessage{ID: "b", Delay: 400 * time.Millisecond})
			},
			want: 1, took: 1400 * time.Millisecond,
		},
		{
			name: "until a reschedule to now", after: 7 * time.Second,
			before: func(t *testing.T, s *Store) { push(t, s, punctual.NewMessage{ID: "a", Delay: time.Hour}) },
			happens: func(t *testing.T, s *Store, _ func()) {
				amend(t, s, punctual.Amendment{Change: punctual.ChangeReschedule, ID: "a"})
			},
			want: 1, took: 7 * time.Second,
		},
		{
			name: "until a release", after: 7 * time.Second,
			before: func(t *testing.T, s *Store) {
				push(t, s, punctual.NewMessage{ID: "a"})
				held = claim(t, s, 1)[0]
			},
			happens: func(t *testing.T, s *Store, _ func()) {
				if err := settle(s, held, punctual.SettleRelease); err != nil {
					t.Errorf("release: %v", err)
				}
			},
			want: 1, took: 7 * time.Second,
		},
		{
			name: "until claims are resumed", after: 7 * time.Second,
			before: func(t *testing.T, s *Store) {
				push(t, s, punctual.NewMessage{ID: "a"})
				configure(t, s, punctual.SettingsPatch{DeliveryPaused: &on})
			},
			happens: func(t *testing.T, s *Store, _ func()) {
				configure(t, s, punctual.SettingsPatch{DeliveryPaused: &off})
			},
			want: 1, took: 7 * time.Second,
		},
		{
			name: "until its context ends", after: 7 * time.Second,
			happens: func(_ *testing.T, _ *Store, cancel func()) { cancel() },
			wantErr: context.Canceled, took: 7 * time.Second,
		},
		{
			name: "until the store is closed", after: 7 * time.Second,
			happens: func(t *testing.T, s *Store, _ func()) {
				if err := s.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			},
			wantErr: punctual.ErrClosed, took: 7 * time.Second,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := New(nil)
				if tt.before != nil {
					tt.before(t, s)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				began := time.Now()
				if tt.happens != nil {
					timer := time.AfterFunc(tt.after, func() { tt.happens(t, s, cancel) })
					defer timer.Stop()
				}
				ds, err := s.Claim(ctx, punctual.Claim{Topics: []string{"other", "orders"}, Max: 5, Wait: time.Minute})
				if len(ds) != tt.want || !errors.Is(err, tt.wantErr) {
					t.Errorf("Claim = %v, %v; want %d deliveries, %v", ids(ds), err, tt.want, tt.wantErr)
				}
				if took := time.Since(began); took != tt.took {
					t.Errorf("P11: took %v, want %v", took, tt.took)
				}
			})
		})
	}
}

// A claim that ended with its context has leased nothing, even when a message became due at the
// same instant.
func TestClaimThatEndedLeasesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(nil)
		push(t, s, punctual.NewMessage{ID: "a", Delay: time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ds, err := s.Claim(ctx, punctual.Claim{Topics: []string{"orders"}, Max: 1, Wait: time.Minute})
		info, getErr := s.Get(t.Context(), "orders", "a")
		if getErr != nil {
			t.Fatal(getErr)
		}
		if leased := info.State == punctual.StateLeased; leased != (err == nil) || leased != (len(ds) == 1) {
			t.Errorf("P6: Claim = %v, %v but the message is %s", ids(ds), err, info.State)
		}
	})
}

// While no message is pending, a waiting claim sleeps without polling.
func TestClaimDoesNotPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &countingClock{}
		s := New(&Options{Clock: clock})
		_, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 1, Wait: 24 * time.Hour})
		if err != nil || clock.sleeps != 1 {
			t.Errorf("Claim of an empty topic slept %d times (%v), want once", clock.sleeps, err)
		}
	})
}

type countingClock struct {
	storekit.SystemClock
	sleeps int
}

func (c *countingClock) After(t time.Time) (<-chan time.Time, func()) {
	c.sleeps++
	return c.SystemClock.After(t)
}

func TestClaimWaitsByManualClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, clock := manual(t)
		push(t, s, punctual.NewMessage{ID: "a", Delay: 30 * time.Minute})
		got := make(chan []punctual.Delivery, 1)
		go func() {
			ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 1, Wait: time.Hour})
			if err != nil {
				t.Errorf("claim: %v", err)
			}
			got <- ds
		}()
		synctest.Wait()
		clock.Advance(30*time.Minute - 1)
		synctest.Wait()
		if len(got) != 0 {
			t.Fatalf("P2 never early: claimed 1ns before the due time")
		}
		clock.Advance(1)
		if ds := <-got; !slices.Equal(ids(ds), []string{"a"}) {
			t.Errorf("claimed %v, want a", ids(ds))
		}
	})
}

// When several claims wait for one message, one of them gets the message and the others go on
// waiting.
func TestClaimsWaitTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(nil)
		counts := make(chan int)
		for range 5 {
			go func() {
				ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 1, Wait: 10 * time.Second})
				if err != nil {
					t.Errorf("claim: %v", err)
				}
				counts <- len(ds)
			}()
		}
		synctest.Wait()
		push(t, s, punctual.NewMessage{ID: "a", Delay: time.Second})
		sum := 0
		for range 5 {
			sum += <-counts
		}
		if sum != 1 {
			t.Errorf("P3 one holder: five claims returned one message %d times", sum)
		}
	})
}

// leapingClock is a clock that jumps an hour ahead after each reading.
type leapingClock struct{ *storekit.ManualClock }

func (c leapingClock) Now() time.Time {
	defer c.Advance(time.Hour)
	return c.ManualClock.Now()
}

// TestClaimReadsTheClockAgain: a lease that has ended before Claim returns is not handed out, and
// uses up no attempt (P3, P6).
func TestClaimReadsTheClockAgain(t *testing.T) {
	clock := leapingClock{storekit.NewManualClock(time.Unix(1e9, 0))}
	s := New(&Options{Clock: clock})
	if _, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "t", ID: "a", MaxAttempts: 1}}); err != nil {
		t.Fatal(err)
	}
	for lease, want := range map[time.Duration]int{time.Minute: 0, time.Hour: 0, time.Hour + time.Millisecond: 1} {
		ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"t"}, Max: 1, Lease: lease})
		if err != nil || len(ds) != want {
			t.Errorf("a claim that took an hour, with a lease of %v: %d messages, %v; want %d", lease, len(ds), err, want)
		}
		for _, d := range ds {
			if d.Attempt != 1 {
				t.Errorf("attempt %d", d.Attempt)
			}
			errs, err := s.Settle(t.Context(), []punctual.Settlement{{Topic: "t", ID: "a", Token: d.Token, Verb: punctual.SettleRelease}})
			if err != nil || errs[0] != nil {
				t.Errorf("release: %v, %v", errs, err)
			}
		}
	}
}

// A purge of what has leases makes room at a bound, and wakes the claims that wait for it.
func TestPurgeWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(nil)
		defer s.Close()
		bound := 1
		if _, err := s.Configure(t.Context(), "a", punctual.SettingsPatch{MaxLeases: &bound}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "a", ID: "1"}, {Topic: "a", ID: "2"}}); err != nil {
			t.Fatal(err)
		}
		claim := punctual.Claim{Topics: []string{"a"}, Max: 2, Lease: time.Hour, Wait: time.Minute}
		if ds, err := s.Claim(t.Context(), claim); err != nil || len(ds) != 1 {
			t.Fatalf("a claim at a bound of 1: %v, %v", ds, err)
		}
		begun := time.Now()
		done := make(chan struct{})
		go func() {
			defer close(done)
			ds, err := s.Claim(t.Context(), claim)
			if err != nil || len(ds) != 1 || ds[0].ID != "2" || time.Since(begun) != 0 {
				t.Errorf("after the purge a claim got %v, %v, in %v; want 2 at once", ds, err, time.Since(begun))
			}
		}()
		synctest.Wait()
		if n, err := s.Purge(t.Context(), punctual.PurgeQuery{Topic: "a", State: punctual.StateLeased}); n != 1 || err != nil {
			t.Fatalf("the purge removed %d, %v", n, err)
		}
		<-done
	})
}
