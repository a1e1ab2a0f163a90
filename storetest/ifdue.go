package storetest

import (
	"errors"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
)

// ifDueCases: does a condition on the due time hold back a change of a message that somebody else
// has moved?
func ifDueCases() []testCase {
	return []testCase{
		{"replace in every state", p7, ifDueReplace},
		{"replace of an ID that is remembered", p7, ifDueRemembered},
		{"replace in a topic that does not exist", p13, ifDueNoTopic},
		{"replace inside one batch", p7, ifDueBatch},
		{"a push that does not replace", p13, ifDueMalformed},
		{"each change in every state", p5, ifDueEverywhere},
		{"a cancel that was noted, and the lease ran out", p5, ifDueCancelled},
		{"each thing that moves the due time", p13, ifDueMoved},
		{"of two changes with one condition the first is made", p13, ifDueTwice},
		{"broken milliseconds", p13, ifDueFine},
		{"each change leaves the others alone", p13, ifDueOthers},
		{"of a dead message, opened anew", p13, ifDueReopened},
	}
}

// due returns the due time of orders/x in a situation in which the message is stored.
func (at situation) due() time.Time {
	if at.state == punctual.StateScheduled {
		return noon.Add(time.Hour)
	}
	return noon
}

// wrongDues returns conditions (IfDue) that the message of the situation does not meet.
func (at situation) wrongDues() []time.Time {
	return []time.Time{at.due().Add(time.Millisecond), at.due().Add(-time.Millisecond), noon.Add(2 * time.Hour), limits.MaxDue}
}

// wantAsBefore runs f and checks that the message of a situation is as it was before, where the
// store has an Inspector.
func (s *harness) wantAsBefore(at situation, f func()) {
	s.Helper()
	if at.state == punctual.StateNone || !s.hasInspector() {
		f()
		s.wantState(orders, x, at.state)
		return
	}
	before := s.get(orders, x)
	f()
	s.wantUnchanged(before, "a change whose condition it does not meet")
}

// wantChanged checks that a push of orders/x was refused with ErrChanged, and that the error is
// definite.
func (s *harness) wantChanged(r punctual.PushResult, what string) {
	s.Helper()
	s.wantErr(r.Err, punctual.ErrChanged, "%s", what)
	if r.Status != punctual.PushNone || r.ID != x || r.Topic != orders || !punctual.Definite(r.Err) {
		s.fail("%s reports %s/%s with status %q, definite %t; want orders/x with none, definite", what, r.Topic, r.ID, r.Status, punctual.Definite(r.Err))
	}
}

func ifDueReplace(s *harness) {
	s.eachSituation(func(s *harness, at situation, last punctual.Delivery) {
		m := second(punctual.IfExistsReplace)
		for _, m.IfDue = range at.wrongDues() {
			s.wantAsBefore(at, func() {
				s.wantChanged(s.try(m), "a replacing push with another due time than that of a message that is "+at.name)
			})
		}
		m.IfDue = at.due()
		if at.state == punctual.StateNone {
			s.wantChanged(s.try(m), "a replacing push with a condition of a message that is "+at.name)
			s.wantState(orders, x, punctual.StateNone)
			return
		}
		s.wantPush(s.try(m), punctual.PushReplaced, at.name)
		if last.Token != 0 {
			s.wantErr(s.settle(last, punctual.SettleAck, 0), punctual.ErrLeaseLost, "ack of a message that was %s and replaced", at.name)
		}
		s.wantChanged(s.try(m), "the same push again, of a message that is due in two hours by then,")
		s.advance(2 * time.Hour)
		s.wantBody("second")
	})
}

func ifDueRemembered(s *harness) {
	s.remember = time.Hour
	bringAcked(s)
	m := second(punctual.IfExistsReplace)
	m.IfDue = noon
	s.wantChanged(s.try(m), "a replacing push with the due time of a message that is finished and remembered")
	s.wantPush(s.try(second(punctual.IfExistsKeep)), punctual.PushDuplicate, "acked and remembered, behind a push that was refused")
}

func ifDueNoTopic(s *harness) {
	s.inspector()
	m := second(punctual.IfExistsReplace)
	m.IfDue = noon
	s.wantChanged(s.try(m), "a replacing push with a condition to a topic that does not exist")
	s.wantTopics()
}

func ifDueBatch(s *harness) {
	s.push(order(x, time.Hour))
	m := second(punctual.IfExistsReplace)
	m.IfDue = noon.Add(time.Hour)
	behind := m
	behind.IfDue, behind.Body = noon.Add(2*time.Hour), []byte("third")
	rs := s.pushAll(m, m, behind, m)
	for i, want := range []error{nil, punctual.ErrChanged, nil, punctual.ErrChanged} {
		s.wantErr(rs[i].Err, want, "replacing push %d of four, each with the due time before or behind the first,", i+1)
	}
	s.advance(2 * time.Hour)
	s.wantBody("third")
}

func ifDueMalformed(s *harness) {
	bringReady(s)
	for _, on := range []punctual.IfExists{punctual.IfExistsKeep, punctual.IfExistsFail, punctual.IfExistsReplaceDead} {
		m := second(on)
		m.IfDue = noon
		s.refused(m, punctual.ErrInvalid, "a condition although it does not replace")
	}
	s.wantBody("body of x")
}

// ifDueChanges returns an amendment of orders/x for each of the four changes.
func ifDueChanges() []punctual.Amendment {
	return []punctual.Amendment{cancel(orders, x), reschedule(orders, x, 3*time.Hour), requeue(orders, x, 3*time.Hour), remove(orders, x)}
}

// ifDueBare returns the answer to a change without a condition in a situation, and whether that
// change has an effect.
func ifDueBare(c punctual.Change, at situation) (err error, effect bool) {
	dead := at.state == punctual.StateDead
	switch {
	case at.state == punctual.StateNone:
		return punctual.ErrNotFound, false
	case c == punctual.ChangeDelete, c == punctual.ChangeRequeue && dead:
		return nil, true
	case c == punctual.ChangeRequeue:
		return punctual.ErrNotDead, false
	case dead:
		return punctual.ErrNotFound, false
	case at.state == punctual.StateLeased:
		return punctual.ErrLeased, c == punctual.ChangeCancel && at.name == isLeased
	}
	return nil, true
}

// ifDueEverywhere: a change that would fail without a condition, and have no effect, fails with the
// same error whatever the condition is. Any other change is made if the condition is met, and else
// fails with ErrChanged.
func ifDueEverywhere(s *harness) {
	for _, a := range ifDueChanges() {
		t := newHarness(s.T, s.promise, s.opener)
		t.eachSituation(func(s *harness, at situation, last punctual.Delivery) {
			bare, effect := ifDueBare(a.Change, at)
			want := bare
			if effect {
				want = punctual.ErrChanged
			}
			for _, a.IfDue = range at.wrongDues() {
				s.wantAsBefore(at, func() {
					if o := s.outcome(a, want, at.name+", with another due time"); !punctual.Definite(o.Err) {
						s.fail("%s of a message that is %s: %v is not definite", a.Change, at.name, o.Err)
					}
				})
			}
			a.IfDue = at.due()
			o := s.outcome(a, bare, at.name+", with its due time")
			if o.Err == nil && (a.Change == punctual.ChangeReschedule || a.Change == punctual.ChangeRequeue) {
				if want := s.now().Add(3 * time.Hour); !o.Due.Equal(want) {
					s.fail("%s of a message that is %s, with its due time, reports due %v; want %v", a.Change, at.name, o.Due, want)
				}
			}
			s.wantState(orders, x, ifDueState(a.Change, at, bare == nil))
			if at.name == isLeased && a.Change == punctual.ChangeCancel {
				s.wantErr(s.settle(last, punctual.SettleRetry, 0), punctual.ErrCancelled, "retry behind a cancel with the due time of the message")
			}
		})
	}
}

// ifDueState returns the state of the message after a change. made tells whether the change
// returned no error.
func ifDueState(c punctual.Change, at situation, made bool) punctual.State {
	switch {
	case !made:
		return at.state
	case c == punctual.ChangeCancel || c == punctual.ChangeDelete:
		return punctual.StateNone
	}
	return punctual.StateScheduled
}

// ifDueCancelled: a reschedule ends a message that was cancelled under a lease which has run out,
// but only if the message meets the condition.
func ifDueCancelled(s *harness) {
	d := bringLeasedCancelled(s)
	s.clock.Set(d.LeaseUntil)
	a := reschedule(orders, x, time.Hour)
	a.IfDue = noon.Add(time.Second)
	s.outcome(a, punctual.ErrChanged, "cancelled under a lease that ran out, with another due time")
	s.wantState(orders, x, punctual.StateReady)
	a.IfDue = noon
	s.outcome(a, punctual.ErrNotFound, "cancelled under a lease that ran out, with its due time")
	s.wantState(orders, x, punctual.StateNone)
}

// ifDueMoved: after each operation that moves the due time a condition is compared with the new
// one. An extension and a release leave the due time as it is.
func ifDueMoved(s *harness) {
	s.push(order(x, time.Minute))
	at := noon.Add(time.Minute)
	holds := func(when string) {
		s.Helper()
		s.saysDue(at, when)
	}
	moved := func(a punctual.Amendment, what string) {
		s.Helper()
		at = s.outcome(a, nil, what).Due
		holds("behind a " + what)
	}
	holds("behind a push")
	moved(reschedule(orders, x, time.Second), "reschedule")
	s.clock.Set(at)
	for _, v := range []punctual.Verb{punctual.SettleExtend, punctual.SettleRelease, punctual.SettleRetry, punctual.SettleSnooze} {
		d := s.one(orders)
		s.advance(time.Second)
		s.wantErr(s.settleVerb(d, v), nil, "%s", v)
		if v == punctual.SettleRetry || v == punctual.SettleSnooze {
			at = s.now().Add(time.Minute)
		}
		holds("behind a " + v.String())
		s.advance(time.Minute)
	}
	s.done(s.one(orders), punctual.SettleDiscard, 0)
	holds("dead")
	moved(requeue(orders, x, time.Hour), "requeue")
	s.try(second(punctual.IfExistsReplace))
	at = s.now().Add(2 * time.Hour)
	holds("replaced")
}

// saysDue checks that orders/x is due at the time: a replacing push with a condition 1 ms earlier
// or later is refused, and the Inspector, if there is one, shows the time as the due time.
func (s *harness) saysDue(at time.Time, when string) {
	s.Helper()
	m := second(punctual.IfExistsReplace)
	for _, m.IfDue = range []time.Time{at.Add(time.Millisecond), at.Add(-time.Millisecond)} {
		s.wantChanged(s.try(m), when+", a replacing push with a due time 1 ms beside")
	}
	if s.hasInspector() {
		if got := s.get(orders, x).Due; !got.Equal(at) {
			s.fail("%s, a message is due %v; want %v", when, got, at)
		}
	}
}

func ifDueTwice(s *harness) {
	s.push(order(x, time.Hour))
	a := reschedule(orders, x, 2*time.Hour)
	a.IfDue = noon.Add(time.Hour)
	b := remove(orders, x)
	b.IfDue = noon.Add(2 * time.Hour)
	got, err := s.store.Amend(s.ctx, []punctual.Amendment{a, a, b, a})
	if err != nil || len(got) != 4 {
		s.fail("amend: %v, %v", got, err)
	}
	for i, want := range []error{nil, punctual.ErrChanged, nil, punctual.ErrNotFound} {
		if !errors.Is(got[i].Err, want) || (got[i].Err == nil) != (want == nil) {
			s.fail("change %d of a reschedule, the same again, a delete at the new due time, the reschedule again: %v; want %v", i+1, got[i].Err, want)
		}
	}
	s.wantState(orders, x, punctual.StateNone)
}

// ifDueFine: a condition is rounded up to whole milliseconds, as the due time was.
func ifDueFine(s *harness) {
	s.push(order(x, time.Hour))
	at := noon.Add(time.Hour)
	for _, f := range fractions() {
		a := reschedule(orders, x, 0)
		a.Delay, a.IfDue = at.Add(time.Millisecond).Sub(noon), at.Add(f)
		s.outcome(a, punctual.ErrChanged, "due a millisecond before the condition rounded up")
		m := second(punctual.IfExistsReplace)
		m.IfDue = at.Add(f)
		s.wantChanged(s.try(m), "a replacing push with a condition that is rounded up to a millisecond behind")
		a.IfDue = at.Add(f - time.Millisecond)
		at = s.outcome(a, nil, "due at the condition rounded up").Due
	}
}

func ifDueOthers(s *harness) {
	for _, id := range []string{"a", "b", "c", "d"} {
		s.push(order(id, time.Hour))
	}
	right, wrong := cancel(orders, "b"), cancel(orders, "c")
	right.IfDue, wrong.IfDue = noon.Add(time.Hour), noon
	got, err := s.store.Amend(s.ctx, []punctual.Amendment{wrong, right, cancel(orders, "d")})
	if err != nil || len(got) != 3 || !errors.Is(got[0].Err, punctual.ErrChanged) || got[1].Err != nil || got[2].Err != nil {
		s.fail("cancels with a wrong condition, a right one and none: %v, %v", got, err)
	}
	s.advance(time.Hour)
	ds := s.take(orders, 10)
	if len(ds) != 2 {
		s.fail("of a, b, c and d, of which b and d were cancelled, came %v", ids(ds))
	}
}

func ifDueReopened(s *harness) {
	bringDead(s)
	s.reopen()
	a := requeue(orders, x, time.Hour)
	a.IfDue = noon.Add(time.Millisecond)
	s.outcome(a, punctual.ErrChanged, "dead, with another due time")
	a.IfDue = noon
	s.outcome(a, nil, "dead, with its due time")
}
