package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
)

// amendCases: what do cancel, reschedule and requeue answer, and is it true?
func amendCases() []testCase {
	return []testCase{
		{"cancel in every state", p5, cancelEverywhere},
		{"cancelled is never delivered", p5, cancelHolds},
		{"cancel while leased, then each verb", p5, cancelThenSettle},
		{"cancel while leased, then the lease runs out", p5, cancelThenRunOut},
		{"cancel while leased, then touched after the lease ran out", p5, cancelThenTouched},
		{"cancel while leased, then extend", p5, cancelThenExtend},
		{"cancel shows while leased", p5, cancelShows},
		{"cancel leaves the dead alone", p5, cancelDead},
		{"reschedule in every state", p5, rescheduleEverywhere},
		{"reschedule to later, earlier and now", p2, rescheduleMoves},
		{"reschedule of a ready message to later", p2, rescheduleReady},
		{"reschedule while leased has no effect", p3, rescheduleLeased},
		{"reschedule keeps the message", p1, rescheduleKeeps},
		{"reschedule to broken milliseconds", p2, rescheduleFine},
		{"requeue in every state", p5, requeueEverywhere},
		{"requeue starts anew and keeps the history", p6, requeueAnew},
		{"requeue at a time", p2, requeueAt},
		{"several changes of one message", p13, amendInOrder},
		{"outcome per item", p13, amendBatch},
		{"malformed items", p13, amendMalformed},
	}
}

func cancelEverywhere(s *subject) {
	want := map[string]punctual.OutcomeStatus{
		isScheduled: punctual.Cancelled, isReady: punctual.Cancelled, isRunOut: punctual.Cancelled, isRetried: punctual.Cancelled,
		isLeased: punctual.TooLate, isLeasedCancelled: punctual.TooLate,
	}
	s.eachSituation(func(s *subject, at situation, _ punctual.Delivery) {
		s.outcome(cancel(orders, x), orNotFound(want[at.name]), at.name)
		if want[at.name] == punctual.Cancelled {
			s.wantState(orders, x, punctual.StateNone)
			s.outcome(cancel(orders, x), punctual.NotFound, isCancelled)
		}
		s.advance(24 * time.Hour)
		s.none(orders, "a day after the cancel of a message that was "+at.name)
	})
}

func orNotFound(o punctual.OutcomeStatus) punctual.OutcomeStatus {
	if o == punctual.OutcomeNone {
		return punctual.NotFound
	}
	return o
}

func cancelHolds(s *subject) {
	const n = 50
	for i := range n {
		s.push(order(fmt.Sprint(i), time.Duration(i)*time.Second))
	}
	s.advance(10 * time.Second)
	cancelled := make(map[string]bool)
	for i := 0; i < n; i += 2 {
		id := fmt.Sprint(i)
		s.outcome(cancel(orders, id), punctual.Cancelled, isScheduled)
		cancelled[id] = true
	}
	s.advance(time.Hour)
	got := s.take(orders, 100)
	for _, d := range got {
		if cancelled[d.ID] {
			s.fail("%s was answered cancelled and delivered", d.ID)
		}
	}
	if len(got) != n-len(cancelled) {
		s.Fatalf("%s: %d messages were not cancelled, %d of them delivered", p1, n-len(cancelled), len(got))
	}
}

// cancelThenSettle: ack and discard end the message as ever, the verbs that would give
// it back end it and say so. No attempt follows any of them.
func cancelThenSettle(s *subject) {
	for i, v := range verbs() {
		if v == punctual.SettleExtend {
			continue
		}
		t := s
		if i > 0 {
			t = newSubject(s.T, s.promise, s.opener)
		}
		d := bringLeasedCancelled(t)
		var want error
		if v != punctual.SettleAck && v != punctual.SettleDiscard {
			want = punctual.ErrCancelled
		}
		t.wantErr(t.settleVerb(d, v), want, "%s of a message that was cancelled while leased", v)
		t.wantErr(t.settleVerb(d, v), punctual.ErrLeaseLost, "%s again of a message that ended", v)
		if v != punctual.SettleDiscard {
			t.wantState(orders, x, punctual.StateNone)
		}
		t.advance(24 * time.Hour)
		t.none(orders, fmt.Sprintf("a day after %s of a message cancelled while leased", v))
	}
}

func cancelThenRunOut(s *subject) {
	d := bringLeasedCancelled(s)
	s.advance(30 * time.Second)
	s.none(orders, "when the lease of a cancelled message ran out")
	s.wantErr(s.settle(d, punctual.SettleAck, 0), punctual.ErrLeaseLost, "ack of a cancelled message whose lease ran out and that was met by a claim")
	s.outcome(cancel(orders, x), punctual.NotFound, "cancelled under its last lease and gone")
	s.advance(24 * time.Hour)
	s.none(orders, "a day later")
}

// cancelThenTouched: between the end of the lease and the next claim nothing brings a
// cancelled message back, whatever it is answered.
func cancelThenTouched(s *subject) {
	for name, touch := range map[string]func(*subject, punctual.Delivery){
		"reschedule": func(s *subject, _ punctual.Delivery) { s.amend(reschedule(orders, x, 0)) },
		"requeue":    func(s *subject, _ punctual.Delivery) { s.amend(requeue(orders, x, 0)) },
		"cancel":     func(s *subject, _ punctual.Delivery) { s.amend(cancel(orders, x)) },
		"retry": func(s *subject, d punctual.Delivery) {
			s.wantErr(s.settle(d, punctual.SettleRetry, 0), punctual.ErrCancelled, "retry after the lease of a cancelled message ran out")
		},
		"extend": func(s *subject, d punctual.Delivery) {
			s.wantErr(s.settle(d, punctual.SettleExtend, time.Hour), punctual.ErrCancelled, "extend after the lease of a cancelled message ran out")
		},
	} {
		t := newSubject(s.T, s.promise, s.opener)
		d := bringLeasedCancelled(t)
		t.clock.Set(d.LeaseUntil)
		touch(t, d)
		t.none(orders, "after the lease of a cancelled message ran out, and a "+name+",")
		t.advance(24 * time.Hour)
		t.none(orders, "a day later")
		t.checkSound()
	}
}

func cancelThenExtend(s *subject) {
	d := bringLeasedCancelled(s)
	s.advance(20 * time.Second)
	for range 2 {
		s.wantErr(s.settle(d, punctual.SettleExtend, time.Hour), punctual.ErrCancelled, "extend of a message cancelled while leased")
	}
	if s.hasInspector() {
		if info := s.get(orders, x); !info.LeaseUntil.Equal(d.LeaseUntil) {
			s.fail("extend of a cancelled message moved the end of its lease from %v to %v", d.LeaseUntil, info.LeaseUntil)
		}
	}
	s.ack(d)
	s.advance(24 * time.Hour)
	s.none(orders, "a day after the ack")
}

func cancelShows(s *subject) {
	s.inspector()
	bringLeased(s)
	if s.get(orders, x).CancelRequested {
		s.fail("CancelRequested before anybody asked")
	}
	s.outcome(cancel(orders, x), punctual.TooLate, isLeased)
	if info := s.get(orders, x); !info.CancelRequested || info.State != punctual.StateLeased {
		s.fail("a message cancelled while leased is shown %s with CancelRequested %v", info.State, info.CancelRequested)
	}
}

func cancelDead(s *subject) {
	bringDead(s)
	s.outcome(cancel(orders, x), punctual.NotFound, isDead)
	s.outcome(requeue(orders, x, 0), punctual.Requeued, isDead)
	s.one(orders)
}

func rescheduleEverywhere(s *subject) {
	want := map[string]punctual.OutcomeStatus{
		isScheduled: punctual.Rescheduled, isReady: punctual.Rescheduled, isRunOut: punctual.Rescheduled, isRetried: punctual.Rescheduled,
		isLeased: punctual.TooLate, isLeasedCancelled: punctual.TooLate,
	}
	s.eachSituation(func(s *subject, at situation, last punctual.Delivery) {
		due := s.now().Add(2 * time.Hour)
		o := s.outcome(reschedule(orders, x, 2*time.Hour), orNotFound(want[at.name]), at.name)
		if o.Status != punctual.Rescheduled {
			return
		}
		if !o.Due.Equal(due) {
			s.fail("a reschedule by two hours reports due %v; want %v", o.Due, due)
		}
		s.wantState(orders, x, punctual.StateScheduled)
		d := s.dueAt(due, "the new due time of a message that was "+at.name)
		if !d.Due.Equal(due) || d.Attempt != last.Attempt+1 {
			s.fail("a message that was %s and rescheduled to %v is delivered as attempt %d, due %v; want attempt %d", at.name, due, d.Attempt, d.Due, last.Attempt+1)
		}
	})
}

func rescheduleMoves(s *subject) {
	s.push(order(x, time.Hour))
	for _, delay := range []time.Duration{2 * time.Hour, time.Minute, 3 * time.Minute, time.Millisecond} {
		if o := s.outcome(reschedule(orders, x, delay), punctual.Rescheduled, isScheduled); !o.Due.Equal(noon.Add(delay)) {
			s.fail("a reschedule by %v reports due %v", delay, o.Due)
		}
	}
	s.ack(s.dueAt(noon.Add(time.Millisecond), "the last of four due times"))
	s.advance(24 * time.Hour)
	s.none(orders, "a day later, past all former due times")

	s.push(order(x, time.Hour))
	s.outcome(punctual.Amendment{Change: punctual.ChangeReschedule, Topic: orders, ID: x}, punctual.Rescheduled, isScheduled)
	s.ack(s.one(orders))
	s.push(order(x, time.Hour))
	past := noon.Add(-time.Hour)
	o := s.outcome(punctual.Amendment{Change: punctual.ChangeReschedule, Topic: orders, ID: x, Due: past}, punctual.Rescheduled, isScheduled)
	if !o.Due.Equal(past) {
		s.fail("a reschedule to %v in the past reports due %v", past, o.Due)
	}
	s.ack(s.one(orders))
}

func rescheduleReady(s *subject) {
	bringReady(s)
	s.outcome(reschedule(orders, x, time.Minute), punctual.Rescheduled, isReady)
	s.none(orders, "after a ready message was moved to later")
	s.ack(s.dueAt(noon.Add(time.Minute), "the new due time"))
}

func rescheduleLeased(s *subject) {
	d := bringLeased(s)
	for _, delay := range []time.Duration{0, time.Hour} {
		if o := s.outcome(reschedule(orders, x, delay), punctual.TooLate, isLeased); !o.Due.IsZero() {
			s.fail("a reschedule that was too late reports due %v", o.Due)
		}
	}
	s.none(orders, "after a reschedule to now of a leased message")
	if s.hasInspector() {
		info := s.get(orders, x)
		if !info.Due.Equal(noon) || !info.LeaseUntil.Equal(d.LeaseUntil) || info.CancelRequested {
			s.fail("a reschedule that was too late changed the message to %+v", info)
		}
	}
	s.done(d, punctual.SettleRelease, 0)
	s.ack(s.one(orders))
}

func rescheduleKeeps(s *subject) {
	m := punctual.NewMessage{Topic: orders, ID: x, Body: []byte("kept"), Headers: map[string]string{"k": "v"}, MaxAttempts: 3}
	s.push(m)
	d := s.one(orders)
	s.settleAs(punctual.Settlement{Topic: orders, ID: x, Token: d.Token, Verb: punctual.SettleRetry, Delay: time.Hour, Error: "first"})
	s.advance(time.Minute)
	s.outcome(reschedule(orders, x, time.Minute), punctual.Rescheduled, isRetried)
	s.advance(time.Minute)
	d = s.one(orders)
	s.wantMessage(d.Message, m, noon, noon.Add(2*time.Minute))
	if d.Attempt != 2 || len(d.Failures) != 1 || d.Failures[0].Error != "first" {
		s.Fatalf("%s: after a reschedule the delivery is attempt %d with history %v; want both kept", p6, d.Attempt, d.Failures)
	}
}

func rescheduleFine(s *subject) {
	s.push(order(x, time.Hour))
	for _, f := range fractions() {
		o := s.outcome(punctual.Amendment{Change: punctual.ChangeReschedule, Topic: orders, ID: x, Due: noon.Add(time.Minute + f)}, punctual.Rescheduled, isScheduled)
		if want := noon.Add(time.Minute + time.Millisecond); !o.Due.Equal(want) {
			s.fail("a reschedule to x ms + %v reports due %v; want it rounded up to %v", f, o.Due, want)
		}
	}
	s.dueAt(noon.Add(time.Minute+time.Millisecond), "the due time rounded up")
}

func requeueEverywhere(s *subject) {
	s.eachSituation(func(s *subject, at situation, last punctual.Delivery) {
		want := punctual.NotDead
		switch at.state {
		case punctual.StateNone:
			want = punctual.NotFound
		case punctual.StateDead:
			want = punctual.Requeued
		}
		var before punctual.Info
		if want == punctual.NotDead && s.hasInspector() {
			before = s.get(orders, x)
		}
		s.outcome(requeue(orders, x, time.Minute), want, at.name)
		if want == punctual.NotDead && s.hasInspector() {
			s.wantUnchanged(before, "a requeue that was refused")
		}
		if at.name == isLeased {
			s.ack(last)
		}
	})
}

func requeueAnew(s *subject) {
	s.poison(2)
	for i := range 3 {
		for attempt := 1; attempt <= 2; attempt++ {
			d := s.one(orders)
			if d.Attempt != attempt || len(d.Failures) != 2*i+attempt-1 {
				s.fail("after %d requeues a delivery is attempt %d with history %v; want attempt %d and all %d failures", i, d.Attempt, d.Failures, attempt, 2*i+attempt-1)
			}
			s.done(d, punctual.SettleRetry, 0)
		}
		o := s.outcome(requeue(orders, x, 0), punctual.Requeued, isDead)
		if !o.Due.Equal(s.now()) {
			s.fail("a requeue without a time reports due %v; want now, %v", o.Due, s.now())
		}
	}
	if s.hasInspector() {
		if info := s.get(orders, x); info.Attempt != 0 || !info.Died.IsZero() || info.Reason != "" {
			s.fail("a requeued message shows attempt %d, died %v, reason %q; want none", info.Attempt, info.Died, info.Reason)
		}
	}
}

func requeueAt(s *subject) {
	bringDead(s)
	due := noon.Add(time.Hour + 200*time.Microsecond)
	o := s.outcome(punctual.Amendment{Change: punctual.ChangeRequeue, Topic: orders, ID: x, Due: due}, punctual.Requeued, isDead)
	if want := noon.Add(time.Hour + time.Millisecond); !o.Due.Equal(want) {
		s.fail("a requeue to %v reports due %v; want it rounded up to %v", due, o.Due, want)
	}
	s.wantState(orders, x, punctual.StateScheduled)
	s.ack(s.dueAt(o.Due, "the due time of a requeued message"))
}

func amendInOrder(s *subject) {
	s.push(order(x, time.Hour))
	got, err := s.store.Amend(s.ctx, []punctual.Amendment{
		reschedule(orders, x, time.Minute), requeue(orders, x, 0), cancel(orders, x), cancel(orders, x), reschedule(orders, x, 0),
	})
	want := []punctual.OutcomeStatus{punctual.Rescheduled, punctual.NotDead, punctual.Cancelled, punctual.NotFound, punctual.NotFound}
	if err != nil || len(got) != len(want) {
		s.fail("amend: %v, %v", got, err)
	}
	for i := range want {
		if got[i].Status != want[i] || got[i].Err != nil {
			s.fail("change %d of reschedule, requeue, cancel, cancel, reschedule: %q, %v; want %q", i+1, got[i].Status, got[i].Err, want[i])
		}
	}
	s.advance(24 * time.Hour)
	s.none(orders, "a day after the cancel")
}

func amendBatch(s *subject) {
	for _, id := range []string{"a", "b", "c"} {
		s.push(order(id, time.Hour))
	}
	got, err := s.store.Amend(s.ctx, []punctual.Amendment{
		cancel(orders, "c"), cancel(orders, "unknown"), {Change: punctual.ChangeCancel, Topic: orders}, reschedule(orders, "b", 0), cancel(orders, "a"),
	})
	want := []punctual.OutcomeStatus{punctual.Cancelled, punctual.NotFound, punctual.OutcomeNone, punctual.Rescheduled, punctual.Cancelled}
	if err != nil || len(got) != len(want) {
		s.fail("amend: %v, %v", got, err)
	}
	for i := range want {
		if got[i].Status != want[i] {
			s.fail("outcome %d is %q; want %q", i, got[i].Status, want[i])
		}
	}
	s.wantErr(got[2].Err, punctual.ErrInvalid, "a malformed item")
	if d := s.one(orders); d.ID != "b" {
		s.fail("%s was delivered; want b", d.ID)
	}
}

func amendMalformed(s *subject) {
	bringReady(s)
	bad := map[string]punctual.Amendment{
		"no topic":           {Change: punctual.ChangeCancel, ID: x},
		"a bad topic":        {Change: punctual.ChangeCancel, Topic: "a b", ID: x},
		"no ID":              {Change: punctual.ChangeCancel, Topic: orders},
		"an ID of 129 bytes": {Change: punctual.ChangeCancel, Topic: orders, ID: strings.Repeat("i", 129)},
		"no change":          {Topic: orders, ID: x},
		"an unknown change":  {Change: 4, Topic: orders, ID: x},
		"a negative delay":   {Change: punctual.ChangeReschedule, Topic: orders, ID: x, Delay: -1},
		"a due and a delay":  {Change: punctual.ChangeReschedule, Topic: orders, ID: x, Delay: 1, Due: noon},
		"a due in 10000":     {Change: punctual.ChangeReschedule, Topic: orders, ID: x, Due: punctual.MaxDue.Add(1)},
		"a requeue to 10000": {Change: punctual.ChangeRequeue, Topic: orders, ID: x, Due: punctual.MaxDue.Add(1)},
		"a due in the year 0": {
			Change: punctual.ChangeReschedule, Topic: orders, ID: x, Due: time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC),
		},
	}
	for name, a := range bad {
		o := s.amendAny(a)
		s.wantErr(o.Err, punctual.ErrInvalid, "an amendment with %s", name)
		if o.Status != punctual.OutcomeNone {
			s.fail("an amendment with %s has outcome %q; want none", name, o.Status)
		}
	}
	s.ack(s.one(orders))
}
