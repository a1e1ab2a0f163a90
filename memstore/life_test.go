package memstore

import (
	"errors"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// The corners of a message's life that are easiest to get wrong. The conformance suite
// holds the rest.

func get(t *testing.T, s *Store, id string) punctual.Info {
	t.Helper()
	i, err := s.Get(t.Context(), "orders", id)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func wantGone(t *testing.T, s *Store, id string) {
	t.Helper()
	if i, err := s.Get(t.Context(), "orders", id); !errors.Is(err, punctual.ErrNotFound) {
		t.Errorf("Get(%s) = %s, %v; want ErrNotFound", id, i.State, err)
	}
}

func wantStatus(t *testing.T, s *Store, a punctual.Amendment, want error) {
	t.Helper()
	if got := amend(t, s, a); !errors.Is(got, want) {
		t.Errorf("%s of %s = %v, want %v", a.Change, a.ID, got, want)
	}
}

// leased returns a message under a lease of 30 s from start.
func leased(t *testing.T, s *Store, m punctual.NewMessage) punctual.Delivery {
	t.Helper()
	m.ID = "a"
	push(t, s, m)
	return claim(t, s, 1)[0]
}

var (
	cancelA     = punctual.Amendment{Change: punctual.ChangeCancel, ID: "a"}
	rescheduleA = punctual.Amendment{Change: punctual.ChangeReschedule, ID: "a", Delay: time.Minute}
	requeueA    = punctual.Amendment{Change: punctual.ChangeRequeue, ID: "a", Delay: time.Minute}
)

func TestHolderMayAckAfterItsLeaseRanOut(t *testing.T) {
	s, clock := manual(t)
	d := leased(t, s, punctual.NewMessage{})
	clock.Advance(time.Hour)
	if i := get(t, s, "a"); i.State != punctual.StateReady {
		t.Errorf("state after the lease ran out = %s, want ready", i.State)
	}
	if err := settle(s, d, punctual.SettleAck); err != nil {
		t.Errorf("ack after the lease ran out: %v", err)
	}
	wantGone(t, s, "a")
}

func TestLateHolderLosesToAmend(t *testing.T) {
	for _, a := range []punctual.Amendment{cancelA, rescheduleA} {
		s, clock := manual(t)
		d := leased(t, s, punctual.NewMessage{})
		wantStatus(t, s, punctual.Amendment{Change: punctual.ChangeReschedule, ID: "a"}, punctual.ErrLeased)
		clock.Advance(30 * time.Second)
		if err := amend(t, s, a); err != nil {
			t.Errorf("%s after the lease ran out = %v", a.Change, err)
		}
		if err := settle(s, d, punctual.SettleAck); !errors.Is(err, punctual.ErrLeaseLost) {
			t.Errorf("P4 fencing: ack after a %s = %v, want ErrLeaseLost", a.Change, err)
		}
	}
}

func TestCancelUnderLease(t *testing.T) {
	for _, verb := range []punctual.Verb{punctual.SettleRetry, punctual.SettleSnooze, punctual.SettleRelease} {
		s, _ := manual(t)
		d := leased(t, s, punctual.NewMessage{})
		wantStatus(t, s, cancelA, punctual.ErrLeased)
		if err := settle(s, d, punctual.SettleExtend); !errors.Is(err, punctual.ErrCancelled) {
			t.Errorf("P5: extend = %v, want ErrCancelled", err)
		}
		if err := settle(s, d, verb); !errors.Is(err, punctual.ErrCancelled) {
			t.Errorf("P5: %s = %v, want ErrCancelled", verb, err)
		}
		wantGone(t, s, "a")
	}
}

// A cancel under a lease that then runs out holds against a claim and a reschedule. A further
// cancel succeeds.
func TestCancelOutlivesTheLease(t *testing.T) {
	for _, next := range []func(t *testing.T, s *Store){
		func(t *testing.T, s *Store) {
			if ds := claim(t, s, 1); len(ds) != 0 {
				t.Errorf("P5 cancel is definite: claimed %v", ids(ds))
			}
		},
		func(t *testing.T, s *Store) { wantStatus(t, s, rescheduleA, punctual.ErrNotFound) },
		func(t *testing.T, s *Store) { wantStatus(t, s, cancelA, nil) },
	} {
		s, clock := manual(t)
		leased(t, s, punctual.NewMessage{})
		wantStatus(t, s, cancelA, punctual.ErrLeased)
		clock.Advance(30 * time.Second)
		next(t, s)
		wantGone(t, s, "a")
	}
}

func TestAttemptsUsedUpByALeaseThatRanOut(t *testing.T) {
	s, clock := manual(t)
	leased(t, s, punctual.NewMessage{MaxAttempts: 1, ExpireAfter: time.Second, DropExpired: true})
	clock.Advance(30 * time.Second)
	if ds := claim(t, s, 1); len(ds) != 0 {
		t.Errorf("P6 attempts are bounded: claimed %v", ids(ds))
	}
	i := get(t, s, "a")
	if i.State != punctual.StateDead || i.Reason != punctual.ReasonAttemptsUsedUp {
		t.Errorf("got %s, %s; want dead with its attempts used up, also when it has expired meanwhile", i.State, i.Reason)
	}
	want := punctual.Failure{Attempt: 1, At: start.Add(30 * time.Second), Error: storekit.LeaseRanOut}
	if len(i.Failures) != 1 || i.Failures[0] != want {
		t.Errorf("P6: history = %v, want %v", i.Failures, want)
	}
}

func TestGivenBackAttempts(t *testing.T) {
	for _, verb := range []punctual.Verb{punctual.SettleSnooze, punctual.SettleRelease} {
		s, _ := manual(t)
		d := leased(t, s, punctual.NewMessage{MaxAttempts: 1})
		if err := settle(s, d, verb); err != nil {
			t.Fatal(err)
		}
		again := claim(t, s, 1)
		if len(again) != 1 || again[0].Attempt != 1 || len(again[0].Failures) != 0 {
			t.Errorf("P6: after %s claimed %+v; want attempt 1 once more, without a failure", verb, again)
		}
		if again[0].Token <= d.Token {
			t.Errorf("P4: token %d after %d", again[0].Token, d.Token)
		}
	}
}

func TestExpiryMovesWithRescheduleAndRequeue(t *testing.T) {
	s, clock := manual(t)
	push(t, s, punctual.NewMessage{ID: "a", ExpireAfter: time.Second})
	wantStatus(t, s, rescheduleA, nil)
	if i := get(t, s, "a"); !i.Expires.Equal(start.Add(time.Minute + time.Second)) {
		t.Errorf("expires %v after the reschedule, want 1s after the new due time", i.Expires)
	}
	clock.Advance(time.Minute + time.Second)
	if ds := claim(t, s, 1); len(ds) != 0 {
		t.Errorf("claimed %v at its expiry", ids(ds))
	}
	if i := get(t, s, "a"); i.Reason != punctual.ReasonExpired {
		t.Errorf("reason = %q, want expired", i.Reason)
	}
	wantStatus(t, s, requeueA, nil)
	if i := get(t, s, "a"); i.State != punctual.StateScheduled || i.Reason != "" || !i.Expires.Equal(i.Due.Add(time.Second)) {
		t.Errorf("after the requeue: %+v", i)
	}
}

func TestRequeueStartsAttemptsAnewAndKeepsHistory(t *testing.T) {
	s, clock := manual(t)
	d := leased(t, s, punctual.NewMessage{MaxAttempts: 1})
	if err := settle(s, d, punctual.SettleRetry); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, s, requeueA, nil)
	clock.Advance(time.Minute)
	again := claim(t, s, 1)
	if len(again) != 1 || again[0].Attempt != 1 || len(again[0].Failures) != 1 {
		t.Errorf("claimed %+v; want attempt 1 with the old failure", again)
	}
}

func TestDeadRetention(t *testing.T) {
	s, clock := manual(t)
	keep, longer := time.Hour, 24*time.Hour
	configure(t, s, punctual.SettingsPatch{DeadRetention: &keep})
	if err := settle(s, leased(t, s, punctual.NewMessage{}), punctual.SettleDiscard); err != nil {
		t.Fatal(err)
	}
	clock.Advance(time.Hour - time.Millisecond)
	if i := get(t, s, "a"); i.State != punctual.StateDead {
		t.Errorf("state = %s just before the retention ends, want dead", i.State)
	}
	clock.Advance(time.Millisecond)
	// What has gone does not come back with a longer retention.
	configure(t, s, punctual.SettingsPatch{DeadRetention: &longer})
	wantGone(t, s, "a")
	push(t, s, punctual.NewMessage{ID: "a", IfExists: punctual.IfExistsFail})
}

func TestRemember(t *testing.T) {
	finish := map[string]struct {
		by     func(t *testing.T, s *Store)
		remind bool
	}{
		"acked": {func(t *testing.T, s *Store) {
			if err := settle(s, claim(t, s, 1)[0], punctual.SettleAck); err != nil {
				t.Fatal(err)
			}
		}, true},
		"cancelled": {func(t *testing.T, s *Store) { amend(t, s, cancelA) }, true},
		"purged": {func(t *testing.T, s *Store) {
			if _, err := s.Purge(t.Context(), punctual.PurgeQuery{Topic: "orders"}); err != nil {
				t.Fatal(err)
			}
		}, false},
	}
	for name, f := range finish {
		t.Run(name, func(t *testing.T) {
			s, clock := manual(t)
			hour := time.Hour
			configure(t, s, punctual.SettingsPatch{DedupeWindow: &hour})
			push(t, s, punctual.NewMessage{ID: "a"})
			f.by(t, s)
			clock.Advance(time.Hour - time.Millisecond)
			if got := duplicate(t, s); got != f.remind {
				t.Errorf("P7: a push just before it is forgotten: duplicate = %v, want %v", got, f.remind)
			}
			clock.Advance(time.Millisecond)
			if f.remind && duplicate(t, s) {
				t.Error("P7: still remembered after an hour")
			}
		})
	}
}

func duplicate(t *testing.T, s *Store) bool {
	t.Helper()
	rs, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: "a"}})
	if err != nil || rs[0].Err != nil {
		t.Fatalf("push: %v, %v", err, rs)
	}
	return rs[0].Status == punctual.PushDuplicate && rs[0].Existing == punctual.StateNone
}
