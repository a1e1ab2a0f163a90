package storetest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
)

// amendCases: what do cancel, reschedule, requeue and delete answer, and is it true?
func amendCases() []testCase {
	return []testCase{
		{"cancel in every state", p5, cancelEverywhere},
		{"cancelled is never delivered", p5, cancelHolds},
		{"cancel while leased, then each verb", p5, cancelThenSettle},
		{"cancel while leased, then the lease runs out", p5, cancelThenRunOut},
		{"cancel while leased, then touched after the lease ran out", p5, cancelThenTouched},
		{"cancel while leased, then a reschedule ends it", p5, cancelThenRescheduled},
		{"cancel while leased, then ack and discard after the lease ran out", p5, cancelThenLate},
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
		{"delete in every state", p13, deleteEverywhere},
		{"delete leaves no trace", p7, deleteTraceless},
		{"delete while leased makes the token stale", p4, deleteLeased},
		{"delete leaves the others alone", p1, deleteOne},
		{"delete of one that is dead for too long", p13, deletePastRetention},
		{"several changes of one message", p13, amendInOrder},
		{"outcome per item", p13, amendBatch},
		{"malformed items", p13, amendMalformed},
		{"beyond the last due time in every state", p9, amendBeyond},
	}
}

func cancelEverywhere(s *harness) {
	want := map[string]error{
		isScheduled: nil, isReady: nil, isRunOut: nil, isRetried: nil,
		isLeased: punctual.ErrLeased, isLeasedCancelled: punctual.ErrLeased,
	}
	s.eachSituation(func(s *harness, at situation, _ punctual.Delivery) {
		o := s.outcome(cancel(orders, x), orNotFound(want, at), at.name)
		s.saysDead(o, at)
		if o.Err == nil {
			s.wantState(orders, x, punctual.StateNone)
			s.outcome(cancel(orders, x), punctual.ErrNotFound, isCancelled)
		}
		s.advance(24 * time.Hour)
		s.none(orders, "a day after the cancel of a message that was "+at.name)
	})
}

// saysDead checks that the error of an amendment says of a dead message that it is dead, and of no
// other message.
func (s *harness) saysDead(o punctual.Amended, at situation) {
	s.Helper()
	if o.Err != nil && strings.Contains(o.Err.Error(), "it is dead; requeue it, or delete it") != (at.state == punctual.StateDead) {
		s.fail("an amendment of a message that is %s says %q", at.name, o.Err)
	}
}

// orNotFound returns the answer that want has for the situation, or ErrNotFound if want does not
// name the situation.
func orNotFound(want map[string]error, at situation) error {
	if err, named := want[at.name]; named {
		return err
	}
	return punctual.ErrNotFound
}

func cancelHolds(s *harness) {
	const n = 50
	for i := range n {
		s.push(order(fmt.Sprint(i), time.Duration(i)*time.Second))
	}
	s.advance(10 * time.Second)
	cancelled := make(map[string]bool)
	for i := 0; i < n; i += 2 {
		id := fmt.Sprint(i)
		s.outcome(cancel(orders, id), nil, isScheduled)
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

// cancelThenSettle: an ack and a discard end the message as without the cancel. The verbs that
// would give the message back end it and return ErrCancelled. No attempt follows any of them.
func cancelThenSettle(s *harness) {
	for i, v := range Verbs() {
		if v == punctual.SettleExtend {
			continue
		}
		t := s
		if i > 0 {
			t = newHarness(s.T, s.promise, s.opener)
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

func cancelThenRunOut(s *harness) {
	d := bringLeasedCancelled(s)
	s.advance(30 * time.Second)
	s.none(orders, "when the lease of a cancelled message ran out")
	s.wantErr(s.settle(d, punctual.SettleAck, 0), punctual.ErrLeaseLost, "ack of a cancelled message whose lease ran out and that was met by a claim")
	s.outcome(cancel(orders, x), punctual.ErrNotFound, "cancelled under its last lease and gone")
	s.advance(24 * time.Hour)
	s.none(orders, "a day later")
}

// cancelThenTouched: between the end of the lease and the next claim nothing brings a
// cancelled message back, whatever the caller is answered.
func cancelThenTouched(s *harness) {
	for name, touch := range map[string]func(*harness, punctual.Delivery){
		"reschedule": func(s *harness, _ punctual.Delivery) { s.amend(reschedule(orders, x, 0)) },
		"requeue":    func(s *harness, _ punctual.Delivery) { s.amend(requeue(orders, x, 0)) },
		"cancel":     func(s *harness, _ punctual.Delivery) { s.amend(cancel(orders, x)) },
		"retry": func(s *harness, d punctual.Delivery) {
			s.wantErr(s.settle(d, punctual.SettleRetry, 0), punctual.ErrCancelled, "retry after the lease of a cancelled message ran out")
		},
		"extend": func(s *harness, d punctual.Delivery) {
			s.wantErr(s.settle(d, punctual.SettleExtend, time.Hour), punctual.ErrCancelled, "extend after the lease of a cancelled message ran out")
		},
	} {
		t := newHarness(s.T, s.promise, s.opener)
		d := bringLeasedCancelled(t)
		t.clock.Set(d.LeaseUntil)
		touch(t, d)
		t.none(orders, "after the lease of a cancelled message ran out, and a "+name+",")
		t.advance(24 * time.Hour)
		t.none(orders, "a day later")
		t.checkSound()
	}
}

// cancelThenRescheduled: once the lease has run out a reschedule ends the message and returns
// ErrNotFound. Afterwards the token is stale, and the ID is free.
func cancelThenRescheduled(s *harness) {
	d := bringLeasedCancelled(s)
	s.clock.Set(d.LeaseUntil)
	s.outcome(reschedule(orders, x, time.Hour), punctual.ErrNotFound, "cancelled under a lease that ran out")
	s.wantState(orders, x, punctual.StateNone)
	s.wantFenced(d, "after a reschedule ended the cancelled message")
	s.wantPush(s.try(order(x, 0)), punctual.PushStored, "cancelled, and ended by a reschedule")
}

// cancelThenLate: the holder's token stays the current one when the lease has run out, so that an
// ack or a discard still succeeds.
func cancelThenLate(s *harness) {
	for _, v := range []punctual.Verb{punctual.SettleAck, punctual.SettleDiscard} {
		t := newHarness(s.T, s.promise, s.opener)
		d := bringLeasedCancelled(t)
		t.clock.Set(d.LeaseUntil)
		t.done(d, v, 0)
		t.wantErr(t.settleVerb(d, v), punctual.ErrLeaseLost, "%s again of a message that ended", v)
	}
}

func cancelThenExtend(s *harness) {
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

func cancelShows(s *harness) {
	s.inspector()
	bringLeased(s)
	if s.get(orders, x).CancelRequested {
		s.fail("CancelRequested before anybody asked")
	}
	s.outcome(cancel(orders, x), punctual.ErrLeased, isLeased)
	if info := s.get(orders, x); !info.CancelRequested || info.State != punctual.StateLeased {
		s.fail("a message cancelled while leased is shown %s with CancelRequested %v", info.State, info.CancelRequested)
	}
}

func cancelDead(s *harness) {
	bringDead(s)
	s.outcome(cancel(orders, x), punctual.ErrNotFound, isDead)
	s.outcome(requeue(orders, x, 0), nil, isDead)
	s.one(orders)
}

func rescheduleEverywhere(s *harness) {
	want := map[string]error{
		isScheduled: nil, isReady: nil, isRunOut: nil, isRetried: nil,
		isLeased: punctual.ErrLeased, isLeasedCancelled: punctual.ErrLeased,
	}
	s.eachSituation(func(s *harness, at situation, last punctual.Delivery) {
		due := s.now().Add(2 * time.Hour)
		o := s.outcome(reschedule(orders, x, 2*time.Hour), orNotFound(want, at), at.name)
		if o.Err != nil {
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

func rescheduleMoves(s *harness) {
	s.push(order(x, time.Hour))
	for _, delay := range []time.Duration{2 * time.Hour, time.Minute, 3 * time.Minute, time.Millisecond} {
		if o := s.outcome(reschedule(orders, x, delay), nil, isScheduled); !o.Due.Equal(noon.Add(delay)) {
			s.fail("a reschedule by %v reports due %v", delay, o.Due)
		}
	}
	s.ack(s.dueAt(noon.Add(time.Millisecond), "the last of four due times"))
	s.advance(24 * time.Hour)
	s.none(orders, "a day later, past all former due times")

	s.push(order(x, time.Hour))
	s.outcome(punctual.Amendment{Change: punctual.ChangeReschedule, Topic: orders, ID: x}, nil, isScheduled)
	s.ack(s.one(orders))
	s.push(order(x, time.Hour))
	past := noon.Add(-time.Hour)
	o := s.outcome(punctual.Amendment{Change: punctual.ChangeReschedule, Topic: orders, ID: x, Due: past}, nil, isScheduled)
	if !o.Due.Equal(past) {
		s.fail("a reschedule to %v in the past reports due %v", past, o.Due)
	}
	s.ack(s.one(orders))
}

func rescheduleReady(s *harness) {
	bringReady(s)
	s.outcome(reschedule(orders, x, time.Minute), nil, isReady)
	s.none(orders, "after a ready message was moved to later")
	s.ack(s.dueAt(noon.Add(time.Minute), "the new due time"))
}

func rescheduleLeased(s *harness) {
	d := bringLeased(s)
	for _, delay := range []time.Duration{0, time.Hour} {
		if o := s.outcome(reschedule(orders, x, delay), punctual.ErrLeased, isLeased); !o.Due.IsZero() {
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

func rescheduleKeeps(s *harness) {
	m := punctual.NewMessage{Topic: orders, ID: x, Body: []byte("kept"), Headers: map[string]string{"k": "v"}, MaxAttempts: 3}
	s.push(m)
	d := s.one(orders)
	s.settleAs(punctual.Settlement{Topic: orders, ID: x, Token: d.Token, Verb: punctual.SettleRetry, Delay: time.Hour, Error: "first"})
	s.advance(time.Minute)
	s.outcome(reschedule(orders, x, time.Minute), nil, isRetried)
	s.advance(time.Minute)
	d = s.one(orders)
	s.wantMessage(d.Message, m, noon, noon.Add(2*time.Minute))
	if d.Attempt != 2 || len(d.Failures) != 1 || d.Failures[0].Error != "first" {
		s.Fatalf("%s: after a reschedule the delivery is attempt %d with history %v; want both kept", p6, d.Attempt, d.Failures)
	}
}

func rescheduleFine(s *harness) {
	s.push(order(x, time.Hour))
	for _, f := range fractions() {
		o := s.outcome(punctual.Amendment{Change: punctual.ChangeReschedule, Topic: orders, ID: x, Due: noon.Add(time.Minute + f)}, nil, isScheduled)
		if want := noon.Add(time.Minute + time.Millisecond); !o.Due.Equal(want) {
			s.fail("a reschedule to x ms + %v reports due %v; want it rounded up to %v", f, o.Due, want)
		}
	}
	s.dueAt(noon.Add(time.Minute+time.Millisecond), "the due time rounded up")
}

func requeueEverywhere(s *harness) {
	s.eachSituation(func(s *harness, at situation, last punctual.Delivery) {
		want := error(punctual.ErrNotDead)
		switch at.state {
		case punctual.StateNone:
			want = punctual.ErrNotFound
		case punctual.StateDead:
			want = nil
		}
		var before punctual.Info
		if want == punctual.ErrNotDead && s.hasInspector() {
			before = s.get(orders, x)
		}
		s.outcome(requeue(orders, x, time.Minute), want, at.name)
		if want == punctual.ErrNotDead && s.hasInspector() {
			s.wantUnchanged(before, "a requeue that was refused")
		}
		if at.name == isLeased {
			s.ack(last)
		}
	})
}

func requeueAnew(s *harness) {
	s.poison(2)
	for i := range 3 {
		for attempt := 1; attempt <= 2; attempt++ {
			d := s.one(orders)
			if d.Attempt != attempt || len(d.Failures) != 2*i+attempt-1 {
				s.fail("after %d requeues a delivery is attempt %d with history %v; want attempt %d and all %d failures", i, d.Attempt, d.Failures, attempt, 2*i+attempt-1)
			}
			s.done(d, punctual.SettleRetry, 0)
		}
		o := s.outcome(requeue(orders, x, 0), nil, isDead)
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

func requeueAt(s *harness) {
	bringDead(s)
	due := noon.Add(time.Hour + 200*time.Microsecond)
	o := s.outcome(punctual.Amendment{Change: punctual.ChangeRequeue, Topic: orders, ID: x, Due: due}, nil, isDead)
	if want := noon.Add(time.Hour + time.Millisecond); !o.Due.Equal(want) {
		s.fail("a requeue to %v reports due %v; want it rounded up to %v", due, o.Due, want)
	}
	s.wantState(orders, x, punctual.StateScheduled)
	s.ack(s.dueAt(o.Due, "the due time of a requeued message"))
}

func amendInOrder(s *harness) {
	s.push(order(x, time.Hour))
	got, err := s.store.Amend(s.ctx, []punctual.Amendment{
		reschedule(orders, x, time.Minute), requeue(orders, x, 0), cancel(orders, x), cancel(orders, x), reschedule(orders, x, 0),
	})
	want := []error{nil, punctual.ErrNotDead, nil, punctual.ErrNotFound, punctual.ErrNotFound}
	if err != nil || len(got) != len(want) {
		s.fail("amend: %v, %v", got, err)
	}
	for i := range want {
		if !errors.Is(got[i].Err, want[i]) {
			s.fail("change %d of reschedule, requeue, cancel, cancel, reschedule: %v; want %v", i+1, got[i].Err, want[i])
		}
	}
	s.advance(24 * time.Hour)
	s.none(orders, "a day after the cancel")
}

func deleteEverywhere(s *harness) {
	s.eachSituation(func(s *harness, at situation, last punctual.Delivery) {
		var want error
		if at.state == punctual.StateNone {
			want = punctual.ErrNotFound
		}
		s.outcome(remove(orders, x), want, at.name)
		for _, a := range []punctual.Amendment{remove(orders, x), cancel(orders, x), requeue(orders, x, 0), reschedule(orders, x, 0)} {
			s.outcome(a, punctual.ErrNotFound, "deleted when it was "+at.name)
		}
		if last.Token != 0 {
			s.wantErr(s.settle(last, punctual.SettleAck, 0), punctual.ErrLeaseLost, "ack of a message deleted when it was %s", at.name)
		}
		if s.hasInspector() {
			s.wantState(orders, x, punctual.StateNone)
			s.wantEmpty(orders, "after a delete of its only message, "+at.name)
		}
		if s.opener.reopen != nil {
			s.reopen()
			s.outcome(remove(orders, x), punctual.ErrNotFound, "deleted before the store was opened anew")
		}
		s.advance(24 * time.Hour)
		s.none(orders, "a day after the delete of a message that was "+at.name)
	})
}

// wantEmpty checks that a topic, if it exists, counts no message and has no next due time.
func (s *harness) wantEmpty(topic, when string) {
	s.Helper()
	st, err := s.inspector().Stats(s.ctx, topic)
	if errors.Is(err, punctual.ErrNotFound) {
		return
	}
	if err != nil || st.Live()+st.Dead != 0 || !st.NextDue.IsZero() {
		s.fail("%s, %s counts %+v, %v; want no message", when, topic, st, err)
	}
}

// deleteTraceless: the ID of a deleted message is free at once, and no finished record of it is
// kept, whatever topic and message ask for. The record of an earlier message with the ID stays. An
// ID that is remembered stays remembered: there is no message to be deleted.
func deleteTraceless(s *harness) {
	s.inspector()
	s.eachSituation(func(s *harness, at situation, _ punctual.Delivery) {
		if at.state == punctual.StateNone {
			return
		}
		s.configure(orders, punctual.SettingsPatch{DedupeWindow: ptr(time.Hour)})
		if _, err := s.keeper(); err == nil {
			s.keep(orders, time.Hour)
		}
		m := second(punctual.IfExistsReplace)
		m.Remember = time.Hour
		s.wantPush(s.try(m), punctual.PushReplaced, at.name)
		s.outcome(remove(orders, x), nil, isScheduled)
		if _, err := s.keeper(); err == nil {
			s.noRecord(x, "deleted")
		}
		s.wantPush(s.try(order(x, 0)), punctual.PushStored, "deleted")
		d := s.one(orders)
		s.outcome(remove(orders, x), nil, isLeased)
		s.wantPush(s.try(order(x, 0)), punctual.PushStored, "deleted while leased")
		if e := s.one(orders); e.Attempt != 1 || e.Token <= d.Token {
			s.fail("a message pushed after a delete is attempt %d with token %d; want 1, above %d", e.Attempt, e.Token, d.Token)
		}
	})
	t := newHarness(s.T, s.promise, s.opener)
	t.configure(orders, punctual.SettingsPatch{DedupeWindow: ptr(time.Hour)})
	bringAcked(t)
	t.outcome(remove(orders, x), punctual.ErrNotFound, isAcked)
	t.wantPush(t.try(second(punctual.IfExistsKeep)), punctual.PushDuplicate, "acked, remembered, and not there to be deleted")
	if _, err := s.keeper(); err == nil {
		deleteKeepsEarlierRecord(newHarness(s.T, s.promise, s.opener))
	}
}

func deleteKeepsEarlierRecord(s *harness) {
	s.keep(orders, time.Hour)
	bringAcked(s)
	earlier := s.record(x)
	for _, bring := range []func(*harness) punctual.Delivery{bringReady, bringLeased, bringDead} {
		s.advance(time.Second)
		bring(s)
		if r := s.amend(remove(orders, x)); r.Err != nil {
			s.fail("delete of a message with a record of an earlier one: %v", r.Err)
		}
		s.wantState(orders, x, punctual.StateNone)
		s.wantRecord(earlier, "of an acked message, after a later message with its ID was deleted")
	}
	s.checkSound()
}

func deleteLeased(s *harness) {
	for _, verb := range Verbs() {
		old := bringLeased(s)
		s.outcome(remove(orders, x), nil, isLeased)
		s.wantErr(s.settleVerb(old, verb), punctual.ErrLeaseLost, "%s by the holder of a deleted message", verb)
		bringReady(s)
		d := s.one(orders)
		s.wantErr(s.settleVerb(old, verb), punctual.ErrLeaseLost, "%s by the holder of a deleted message while the next one is leased", verb)
		if d.Token <= old.Token {
			s.fail("the token of a message with the ID of a deleted one is %d, not above %d", d.Token, old.Token)
		}
		s.ack(d)
	}
}

func deleteOne(s *harness) {
	for _, id := range []string{"a", "b", "c", "d"} {
		s.push(order(id, time.Hour))
	}
	s.push(punctual.NewMessage{Topic: mails, ID: "b"})
	got, err := s.store.Amend(s.ctx, []punctual.Amendment{
		remove(orders, "b"), remove(orders, "unknown"), remove("never-heard-of", "b"),
		{Change: punctual.ChangeDelete, ID: "a"},
		cancel(orders, "c"), remove(orders, "b"),
		remove(orders, "c"), reschedule(orders, "d", 2*time.Hour), remove(orders, "d"),
	})
	want := []error{nil, punctual.ErrNotFound, punctual.ErrNotFound, punctual.ErrInvalid, nil, punctual.ErrNotFound, punctual.ErrNotFound, nil, nil}
	if err != nil || len(got) != len(want) {
		s.fail("amend: %v, %v", got, err)
	}
	for i := range want {
		if !errors.Is(got[i].Err, want[i]) || i != 7 && !got[i].Due.IsZero() {
			s.fail("answer %d is %v, due %v; want %v", i, got[i].Err, got[i].Due, want[i])
		}
	}
	s.ack(s.one(mails))
	s.advance(3 * time.Hour)
	if d := s.one(orders); d.ID != "a" {
		s.fail("%s was delivered; want a", d.ID)
	}
	s.none(orders, "after the only message that was neither deleted nor cancelled")
}

func deletePastRetention(s *harness) {
	s.configure(orders, punctual.SettingsPatch{DeadRetention: ptr(time.Minute)})
	bringDead(s)
	s.advance(time.Minute + time.Millisecond)
	s.outcome(remove(orders, x), punctual.ErrNotFound, "dead for longer than its topic keeps it")
	s.wantPush(s.try(order(x, 0)), punctual.PushStored, "dead for longer than its topic keeps it")
}

func amendBatch(s *harness) {
	for _, id := range []string{"a", "b", "c"} {
		s.push(order(id, time.Hour))
	}
	got, err := s.store.Amend(s.ctx, []punctual.Amendment{
		cancel(orders, "c"), cancel(orders, "unknown"), {Change: punctual.ChangeCancel, Topic: orders}, reschedule(orders, "b", 0), cancel(orders, "a"),
	})
	want := []error{nil, punctual.ErrNotFound, punctual.ErrInvalid, nil, nil}
	if err != nil || len(got) != len(want) {
		s.fail("amend: %v, %v", got, err)
	}
	for i := range want {
		if !errors.Is(got[i].Err, want[i]) {
			s.fail("answer %d is %v; want %v", i, got[i].Err, want[i])
		}
	}
	if d := s.one(orders); d.ID != "b" {
		s.fail("%s was delivered; want b", d.ID)
	}
}

func amendMalformed(s *harness) {
	bringReady(s)
	bad := map[string]punctual.Amendment{
		"no topic":            {Change: punctual.ChangeCancel, ID: x},
		"a bad topic":         {Change: punctual.ChangeCancel, Topic: "a b", ID: x},
		"no ID":               {Change: punctual.ChangeCancel, Topic: orders},
		"an ID of 129 bytes":  {Change: punctual.ChangeCancel, Topic: orders, ID: strings.Repeat("i", 129)},
		"no change":           {Topic: orders, ID: x},
		"an unknown change":   {Change: punctual.ChangeDelete + 1, Topic: orders, ID: x},
		"a delete without ID": {Change: punctual.ChangeDelete, Topic: orders},
		"a negative delay":    {Change: punctual.ChangeReschedule, Topic: orders, ID: x, Delay: -1},
		"a due and a delay":   {Change: punctual.ChangeReschedule, Topic: orders, ID: x, Delay: 1, Due: noon},
		"a due in 10000":      {Change: punctual.ChangeReschedule, Topic: orders, ID: x, Due: limits.MaxDue.Add(1)},
		"a requeue to 10000":  {Change: punctual.ChangeRequeue, Topic: orders, ID: x, Due: limits.MaxDue.Add(1)},
		"a due in the year 0": {
			Change: punctual.ChangeReschedule, Topic: orders, ID: x, Due: time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC),
		},
	}
	for name, a := range bad {
		s.wantErr(s.amend(a).Err, punctual.ErrInvalid, "an amendment with %s", name)
	}
	s.ack(s.one(orders))
}

// amendBeyond: an amendment whose delay leads beyond limits.MaxDue is ErrInvalid, whatever there is
// to change. A settlement is judged in another order: a token that is not current, and then a
// cancel under the lease, count before a due time beyond limits.MaxDue.
func amendBeyond(s *harness) {
	for _, at := range situations() {
		t := newHarness(s.T, s.promise, s.opener)
		t.clock.Set(limits.MaxDue.Add(-48 * time.Hour))
		d := at.bring(t)
		for _, c := range []punctual.Change{punctual.ChangeReschedule, punctual.ChangeRequeue} {
			for _, topic := range []string{orders, "none"} {
				o := t.amend(punctual.Amendment{Change: c, Topic: topic, ID: x, Delay: 49 * time.Hour})
				t.wantErr(o.Err, punctual.ErrInvalid, "%s of a message that is %s to after %v", c, at.name, limits.MaxDue)
			}
		}
		if t.hasInspector() {
			t.wantState(orders, x, at.state)
		}
		for _, v := range []punctual.Verb{punctual.SettleRetry, punctual.SettleSnooze} {
			d.Topic, d.ID = orders, x
			t.wantErr(t.settle(punctual.Delivery{Message: d.Message, Token: d.Token + 1}, v, 49*time.Hour), punctual.ErrLeaseLost, "%s with a token that is not current, to after %v", v, limits.MaxDue)
		}
		if at.name == isLeasedCancelled {
			t.wantErr(t.settle(d, punctual.SettleRetry, 49*time.Hour), punctual.ErrCancelled, "a retry after a cancel, to after %v", limits.MaxDue)
		}
	}
}
