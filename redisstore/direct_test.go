package redisstore

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

// Direct cases of promises in which random histories have found faults of scripts. Each case runs
// on the fast path and on the general one.

func onBothPaths(t *testing.T, run func(t *testing.T, o Options)) {
	t.Run("fast path", func(t *testing.T) { run(t, Options{}) })
	t.Run("general path", func(t *testing.T) { run(t, Options{general: func() bool { return true }}) })
}

// P5: what a cancel says is definite in every situation of a message. Nothing that was cancelled is
// claimed again, and what was leased ends with that lease.
func TestCancelIsDefinite(t *testing.T) {
	const lease = time.Minute
	claim := func(t *testing.T, s *Store) punctual.Delivery {
		t.Helper()
		return claimFor(t, s, lease)
	}
	settle := func(t *testing.T, s *Store, x punctual.Settlement) {
		t.Helper()
		d := claim(t, s)
		x.Topic, x.ID, x.Token = d.Topic, d.ID, d.Token
		if errs, err := s.Settle(t.Context(), []punctual.Settlement{x}); err != nil || errs[0] != nil {
			t.Fatal(errs, err)
		}
	}
	due := time.Unix(1, 0)
	for name, c := range map[string]struct {
		prepare func(t *testing.T, s *Store)
		passed  time.Duration
		want    error
	}{
		"scheduled": {func(t *testing.T, s *Store) { push(t, s, punctual.NewMessage{ID: "x", Delay: time.Hour}) }, 0, nil},
		"ready":     {func(t *testing.T, s *Store) { push(t, s, punctual.NewMessage{ID: "x", Due: due}) }, 0, nil},
		"leased": {func(t *testing.T, s *Store) {
			push(t, s, punctual.NewMessage{ID: "x", Due: due})
			claim(t, s)
		}, lease - time.Millisecond, punctual.ErrLeased},
		"leased, with headers that need a state": {func(t *testing.T, s *Store) {
			push(t, s, punctual.NewMessage{ID: "x", Due: due, ExpireAfter: 200 * 365 * 24 * time.Hour})
			claim(t, s)
		}, lease - time.Millisecond, punctual.ErrLeased},
		"its lease has run out": {func(t *testing.T, s *Store) {
			push(t, s, punctual.NewMessage{ID: "x", Due: due})
			claim(t, s)
		}, lease, nil},
		"extended": {func(t *testing.T, s *Store) {
			push(t, s, punctual.NewMessage{ID: "x", Due: due})
			settle(t, s, punctual.Settlement{Verb: punctual.SettleExtend, Delay: time.Hour})
		}, lease, punctual.ErrLeased},
		"to be retried": {func(t *testing.T, s *Store) {
			push(t, s, punctual.NewMessage{ID: "x", Due: due})
			settle(t, s, punctual.Settlement{Verb: punctual.SettleRetry, Delay: time.Minute})
		}, 0, nil},
		"released": {func(t *testing.T, s *Store) {
			push(t, s, punctual.NewMessage{ID: "x", Due: due})
			settle(t, s, punctual.Settlement{Verb: punctual.SettleRelease})
		}, 0, nil},
		"rescheduled": {func(t *testing.T, s *Store) {
			push(t, s, punctual.NewMessage{ID: "x", Due: due})
			if out, err := s.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeReschedule, Topic: "orders", ID: "x", Delay: time.Minute}}); err != nil || out[0].Err != nil {
				t.Fatal(out, err)
			}
		}, time.Hour, nil},
		"absent": {func(t *testing.T, s *Store) { push(t, s, punctual.NewMessage{ID: "y", Delay: 9999 * time.Hour}) }, 0, punctual.ErrNotFound},
		"acked": {func(t *testing.T, s *Store) {
			push(t, s, punctual.NewMessage{ID: "x", Due: due})
			settle(t, s, punctual.Settlement{Verb: punctual.SettleAck})
		}, 0, punctual.ErrNotFound},
		"dead": {func(t *testing.T, s *Store) {
			push(t, s, punctual.NewMessage{ID: "x", Due: due})
			settle(t, s, punctual.Settlement{Verb: punctual.SettleDiscard})
		}, 0, punctual.ErrNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			onBothPaths(t, func(t *testing.T, o Options) {
				s, clock := openStill(t, o)
				c.prepare(t, s)
				clock.Advance(c.passed)
				out, err := s.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: "orders", ID: "x"}})
				if err != nil || !errors.Is(out[0].Err, c.want) || c.want == nil && out[0].Err != nil {
					t.Fatalf("P5: cancel = %+v, %v; want %v", out, err, c.want)
				}
				wantSound(t, s)
				for _, step := range []time.Duration{0, 10 * time.Second, lease, time.Hour, 10 * time.Hour} {
					clock.Advance(step)
					if ds, err := s.Claim(t.Context(), orders(0)); err != nil || len(ds) > 0 {
						t.Errorf("P5: claimed %+v, %v, %v later; want nothing", ds, err, step)
					}
				}
				wantSound(t, s)
			})
		})
	}
}

// P12, P8: claims take messages by the time at which they need attention, however the messages came
// by that time. When the clock is set back meanwhile, nothing changes.
func TestOrderOfClaims(t *testing.T) {
	onBothPaths(t, func(t *testing.T, o Options) {
		s, clock := openStill(t, o)
		start := clock.Now()
		at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
		push(t, s, punctual.NewMessage{ID: "2 lapsed", Due: at(-100)}, punctual.NewMessage{ID: "4 retried", Due: at(-99)})
		if d := claimFor(t, s, 10*time.Second); d.ID != "2 lapsed" {
			t.Fatalf("P12: claimed %s first", d.ID)
		}
		d := claimFor(t, s, time.Minute)
		retry := punctual.Settlement{Topic: "orders", ID: d.ID, Token: d.Token, Verb: punctual.SettleRetry, Delay: 20 * time.Second}
		if errs, err := s.Settle(t.Context(), []punctual.Settlement{retry}); err != nil || errs[0] != nil {
			t.Fatal(errs, err)
		}
		push(
			t, s, punctual.NewMessage{ID: "6 last", Due: at(40)}, punctual.NewMessage{ID: "1 first", Due: at(9.999)}, punctual.NewMessage{ID: "3 between", Due: at(10.001)},
			punctual.NewMessage{ID: "5 rescheduled", Due: at(1)},
		)
		if out, err := s.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeReschedule, Topic: "orders", ID: "5 rescheduled", Due: at(30)}}); err != nil || out[0].Err != nil {
			t.Fatal(out, err)
		}
		clock.Advance(time.Minute)
		before := now(t, s)
		var got []string
		for range 6 {
			got = append(got, claimFor(t, s, time.Hour).ID)
			clock.Advance(-10 * time.Second)
			if after := now(t, s); after.Before(before) {
				t.Errorf("P8: the clock went from %v back to %v", before, after)
			}
		}
		want := []string{"1 first", "2 lapsed", "3 between", "4 retried", "5 rescheduled", "6 last"}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("P12: claimed %q; want %q", got, want)
		}
		wantSound(t, s)
	})
}
