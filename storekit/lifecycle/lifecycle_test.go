package lifecycle_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// The rules that a promise names, and a few others, written by hand, so that they do not stand or
// fall with a renewed decisions.txt.

func settle(m *lifecycle.Message, v punctual.Verb, delay time.Duration) (lifecycle.Decision, error) {
	x := punctual.Settlement{Topic: "orders", ID: "a", Token: m.Token, Verb: v, Delay: delay, Error: "broken"}
	return lifecycle.Settle(m, &x, topic(), clock)
}

func amend(m *lifecycle.Message, c punctual.Change) (lifecycle.Decision, punctual.Amended) {
	a := punctual.Amendment{Topic: "orders", ID: "a", Change: c}
	due, err := lifecycle.AmendDue(&a, clock)
	if err != nil {
		return lifecycle.Decision{}, punctual.Amended{Err: err}
	}
	return lifecycle.Amend(m, m.State(now), &a, due, now)
}

func TestAMessageGetsAsManyAttemptsAsItsTopicAllows(t *testing.T) {
	n := punctual.NewMessage{}
	m := lifecycle.New(&n, now, now)
	for attempt := 1; attempt <= 3; attempt++ {
		if d := lifecycle.Meet(&m, topic(), now); d.To != lifecycle.Stay {
			t.Fatalf("P6: attempt %d is not made: %s", attempt, d.To)
		}
		lifecycle.Lease(&m, int64(attempt), 0, topic(), now)
		if m.Attempts != attempt {
			t.Fatalf("P6: attempt %d counts as %d", attempt, m.Attempts)
		}
		d, err := settle(&m, punctual.SettleRetry, 0)
		if want := attempt == 3; err != nil || (d.To == lifecycle.Dead) != want || d.Failure.Attempt != attempt {
			t.Fatalf("P6: after attempt %d: %+v, %v; dead is to be %t", attempt, d, err, want)
		}
	}
	if m.Reason != punctual.ReasonAttemptsUsedUp || m.Died != now || m.Token != 0 {
		t.Errorf("P6: %+v; want it dead now, with its attempts used up and no token", m)
	}
}

func TestNoAttemptFollowsACancelUnderALease(t *testing.T) {
	m := held(1, false, false)
	if d, out := amend(&m, punctual.ChangeCancel); d.To != lifecycle.Leased || !errors.Is(out.Err, punctual.ErrLeased) {
		t.Fatalf("P5: cancel under a lease: %+v, %v; want it noted, and ErrLeased", d, out.Err)
	}
	for v := punctual.SettleAck; v <= punctual.SettleExtend; v++ {
		x := m
		d, err := settle(&x, v, 0)
		refused := errors.Is(err, punctual.ErrCancelled)
		switch v {
		case punctual.SettleAck, punctual.SettleDiscard:
			if refused {
				t.Errorf("P5: %s behind a cancel: %v; want none", v, err)
			}
		case punctual.SettleExtend:
			if !refused || d.To != lifecycle.Stay || x != m {
				t.Errorf("P5: extend behind a cancel: %+v, %v; want the lease as it is, and ErrCancelled", d, err)
			}
		default:
			if !refused || d.Outcome != punctual.OutcomeCancelled {
				t.Errorf("P5: %s behind a cancel: %+v, %v; want it cancelled, and ErrCancelled", v, d, err)
			}
		}
	}
	m.LeaseUntil = now // the lease has run out
	for what, d := range map[string]func(m *lifecycle.Message) lifecycle.Decision{
		"claim":      func(m *lifecycle.Message) lifecycle.Decision { return lifecycle.Meet(m, topic(), now) },
		"reschedule": func(m *lifecycle.Message) lifecycle.Decision { d, _ := amend(m, punctual.ChangeReschedule); return d },
		"give back":  func(m *lifecycle.Message) lifecycle.Decision { return lifecycle.GiveBack(m, now) },
	} {
		x := m
		if d := d(&x); d.To != lifecycle.Finished || d.Outcome != punctual.OutcomeCancelled {
			t.Errorf("P5: %s of a message that was cancelled under its last lease: %+v; want it cancelled", what, d)
		}
	}
}

func TestAStaleTokenChangesNothing(t *testing.T) {
	for v := punctual.SettleAck; v <= punctual.SettleExtend; v++ {
		m := held(2, false, true)
		was := m
		x := punctual.Settlement{Topic: "orders", ID: "a", Token: m.Token - 1, Verb: v}
		if d, err := lifecycle.Settle(&m, &x, topic(), clock); d != (lifecycle.Decision{}) || m != was || !errors.Is(err, punctual.ErrLeaseLost) {
			t.Errorf("P4: %s with a stale token: %+v, %v, of %+v; want ErrLeaseLost alone", v, d, err, m)
		}
	}
}

func TestTheTextOfAFailureIsTrimmed(t *testing.T) {
	m := held(1, false, false)
	x := punctual.Settlement{Token: 7, Verb: punctual.SettleDiscard, Error: strings.Repeat("x", 2*limits.MaxErrorBytes)}
	if d, _ := lifecycle.Settle(&m, &x, topic(), clock); d.Failure.Error != storekit.TrimError(x.Error) {
		t.Errorf("the history gets %d bytes, want %d", len(d.Failure.Error), len(storekit.TrimError(x.Error)))
	}
}

// Push resets what an earlier try has left in the answer, because a store may call it again for the
// same message.
func TestPushAnswersAnew(t *testing.T) {
	r := punctual.PushResult{ID: "a", Topic: "orders", Due: clock, Status: punctual.PushReplaced, Existing: punctual.StateDead, Err: punctual.ErrDuplicate}
	if !lifecycle.Push(&punctual.NewMessage{IfExists: punctual.IfExistsFail}, lifecycle.Holder{}, &r) || r != (punctual.PushResult{ID: "a", Topic: "orders", Status: punctual.PushStored}) {
		t.Errorf("a push of a free ID is answered with %+v", r)
	}
}

func TestFillIsTheInverseOfNew(t *testing.T) {
	n := punctual.NewMessage{MaxAttempts: 4, ExpireAfter: 1500 * time.Microsecond, DropExpired: true, Remember: 2500 * time.Microsecond}
	m := lifecycle.New(&n, now, now)
	m.Attempts = 2
	out := punctual.Message{ID: "a", Topic: "orders", Expires: clock}
	m.Fill(&out)
	want := punctual.Message{
		ID: "a", Topic: "orders", Due: clock, FirstDue: clock, Attempt: 2, MaxAttempts: 4,
		Expires: clock.Add(2 * time.Millisecond), DropExpired: true, Remember: 3 * time.Millisecond,
	}
	if out.ID != want.ID || out.Due != want.Due || out.FirstDue != want.FirstDue || out.Attempt != want.Attempt || out.MaxAttempts != want.MaxAttempts ||
		out.Expires != want.Expires || out.DropExpired != want.DropExpired || out.Remember != want.Remember {
		t.Errorf("Fill gives %+v, want %+v", out, want)
	}
	m.ExpireAfter = 0
	if m.Fill(&out); !out.Expires.IsZero() {
		t.Errorf("a message that never expires does so at %v", out.Expires)
	}
}

// life decides about a message from its push to its ack.
func life(n *punctual.NewMessage, set *punctual.Settings, r *punctual.PushResult, x *punctual.Settlement) lifecycle.Kept {
	m := lifecycle.New(n, now, now)
	if !lifecycle.Push(n, lifecycle.Holder{}, r) || lifecycle.Meet(&m, set, now).To != lifecycle.Stay {
		panic("the message is not delivered")
	}
	lifecycle.Lease(&m, 7, 0, set, now)
	if d, err := lifecycle.Settle(&m, x, set, clock); err != nil || d.To != lifecycle.Finished {
		panic("the message is not acked")
	}
	return m.Keep(set, now)
}

func TestDecisionsDoNotAllocate(t *testing.T) {
	set, reschedule := topic(), punctual.Amendment{Change: punctual.ChangeReschedule, Delay: time.Hour}
	requeue := punctual.Amendment{Change: punctual.ChangeRequeue}
	settlement := func(v punctual.Verb) *punctual.Settlement {
		return &punctual.Settlement{Token: 7, Verb: v, Error: "broken"}
	}
	ack, retry, snooze, discard := settlement(punctual.SettleAck), settlement(punctual.SettleRetry), settlement(punctual.SettleSnooze), settlement(punctual.SettleDiscard)
	release, extend := settlement(punctual.SettleRelease), settlement(punctual.SettleExtend)
	r, n := punctual.PushResult{}, &punctual.NewMessage{ExpireAfter: time.Hour, Remember: time.Hour}
	over := &punctual.NewMessage{IfExists: punctual.IfExistsReplace, IfDue: storekit.FromMillis(now - minute)}
	followed := settlement(punctual.SettleAck)
	followed.Then = []punctual.NewMessage{{Topic: "orders", ID: "b"}}
	for what, f := range map[string]func(){
		"push, claim and ack": func() { life(n, set, &r, ack) },
		"settlements": func() {
			for _, x := range [...]*punctual.Settlement{ack, retry, snooze, discard, release, extend} {
				m := held(1, false, false)
				if _, err := lifecycle.Settle(&m, x, set, clock); err != nil {
					t.Error(err)
				}
			}
		},
		"ends": func() {
			for _, attempts := range [...]int{1, 3} {
				m := held(attempts, true, attempts == 1)
				lifecycle.Meet(&m, set, now)
			}
		},
		"amendments": func() {
			for _, a := range [...]*punctual.Amendment{&reschedule, &requeue} {
				m := held(1, true, false)
				if a == &requeue {
					m.Token, m.Reason = 0, punctual.ReasonDiscarded
				}
				due, err := lifecycle.AmendDue(a, clock)
				if _, out := lifecycle.Amend(&m, m.State(now), a, due, now); err != nil || out.Err != nil {
					t.Error(err, out.Err)
				}
			}
		},
		"an ack with a follow-up": func() {
			m := held(1, false, false)
			d, err := lifecycle.Settle(&m, followed, set, clock)
			if err == nil {
				_, err = lifecycle.FollowUp(followed, 0, m.Behind(d, set, now), set, &r)
			}
			if err != nil {
				t.Error(err)
			}
		},
		"push over a message": func() {
			m := held(1, false, false)
			lifecycle.Push(over, m.Holder(now), &r)
		},
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations, want none", what, n)
		}
	}
}

// BenchmarkLife measures what the decisions about a message cost that is pushed, claimed and acked.
func BenchmarkLife(b *testing.B) {
	set, n, r := topic(), &punctual.NewMessage{ExpireAfter: time.Hour}, punctual.PushResult{}
	ack := &punctual.Settlement{Topic: "orders", ID: "a", Token: 7, Verb: punctual.SettleAck}
	b.ReportAllocs()
	for b.Loop() {
		life(n, set, &r, ack)
	}
}
