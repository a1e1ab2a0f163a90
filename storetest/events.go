package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/event"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// eventCases: does a topic tell of what happens to its messages, once of each event and of nothing
// else?
func eventCases() []testCase {
	return []testCase{
		{"a store that cannot", p13, eventsRefused},
		{"each ending", p13, eventEndings},
		{"none of anything else", p13, eventsNot},
		{"pushes and retries on request", p13, eventsOnRequest},
		{"those asked for alone", p13, eventsAsked},
		{"the message that tells", p13, eventMessage},
		{"odd names", p13, eventOddNames},
		{"in order", p12, eventOrder},
		{"off by default, and off again", p13, eventsOff},
		{"its companion comes and goes", p13, eventsCompanion},
		{"of changes that build on each other", p13, eventsOfChanges},
		{"of settlements that build on each other", p13, eventsOfSettlements},
		{"of follow-ups that find what settlements leave", p13, eventsOfTakenIDs},
		{"events tell of none", p13, eventsOfEvents},
		{"of a group", p13, eventsOfGroup},
		{"of a call with many items", p13, eventsOfBatch},
		{"of messages that a claim ends", p13, eventsOfClaim},
		{"beside follow-ups", p13, eventsBesideFollowUps},
		{"kept no longer than asked", p10, eventsKept},
		{"swept", p10, eventsSwept},
		{"sweep leaves those that somebody works on", p10, eventsSweptLeased},
		{"sweep while deliveries are paused", p10, eventsSweptPaused},
		{"sweep when many come in one call", p10, eventsSweptMany},
		{"sweep behind messages that stay", p10, eventsSweptBehind},
		{"sweep of a topic at rest", p10, eventsSweptAtRest},
		{"sweep in a companion that keeps finished records", p10, eventsSweptFinished},
		{"handled as any message", p1, eventsHandled},
		{"wakes a claim that waits", p11, eventsWake},
		{"wakes a claim when another claim ends a message", p11, eventsWakeClaim},
		{"in a topic of several partitions", p13, eventsDivided},
		{"opened anew", p1, eventsReopened},
		{"a call that is sent again", p13, eventsRepeated},
	}
}

// endings are the events of messages that finish or die.
const endings = punctual.EventAcked | punctual.EventDead | punctual.EventCancelled | punctual.EventExpired

// told is the topic of the events of orders.
const told = orders + "@events"

// tells has topic orders tell of events, or skips the case when the store cannot.
func (s *harness) tells(on punctual.Events) {
	s.Helper()
	s.inspector()
	if !s.abilities().Emit {
		s.Skipf("skipped: the store tells of no events")
	}
	s.configure(orders, punctual.SettingsPatch{Emit: &on})
}

// events claims and acks all events that are ready, and returns them in the order in which they
// were claimed.
func (s *harness) events() (out []event.Event) {
	s.Helper()
	for {
		ds := s.take(told, 100)
		if len(ds) == 0 {
			return out
		}
		for _, d := range ds {
			e, err := event.Parse(d.Body)
			if err != nil {
				s.fail("the message %s of %s has the body %q, which is no event: %v", d.ID, told, d.Body, err)
			}
			out = append(out, e)
			s.ack(d)
		}
	}
}

// wantEvents compares the events that are ready, in the order in which they are claimed, with the
// wanted ones.
func (s *harness) wantEvents(after string, want ...event.Event) {
	s.Helper()
	got := s.events()
	if !slices.Equal(got, want) {
		s.fail("after %s the events are\n%+v; want\n%+v", after, got, want)
	}
}

// happened returns an event that happens to orders/x now, by the store's clock, if the message was
// pushed at noon and due at once.
func (s *harness) happened(e punctual.Events, attempt int) event.Event {
	s.Helper()
	return event.Event{Event: e, Topic: orders, ID: x, Attempt: attempt, At: s.now(), Created: noon, FirstDue: noon, Due: noon}
}

// eventsRefused: a store that tells of none refuses the setting and changes nothing.
func eventsRefused(s *harness) {
	in := s.inspector()
	if s.abilities().Emit {
		s.Skipf("skipped: the store tells of events")
	}
	for name, p := range map[string]punctual.SettingsPatch{
		"events": {Emit: ptr(punctual.EventDead), Lease: ptr(time.Hour)}, "a time to keep events": {EmitKeep: ptr(time.Hour)},
	} {
		_, err := in.Configure(s.ctx, orders, p)
		s.wantErr(err, punctual.ErrUnsupported, "Configure with %s in a store that tells of none", name)
	}
	s.wantTopics()
	s.configure(orders, punctual.SettingsPatch{Emit: ptr(punctual.Events(0)), EmitKeep: ptr(24 * time.Hour)})
	bringAcked(s)
	s.none(told, "in a store that tells of no events")
}

// ending is a way in which orders/x ends, and what is told of it.
type ending struct {
	name string
	end  func(s *harness)
	want event.Event // has Event, Reason and Attempt; the case adds the other fields
	// leased is how long before the event the last lease began; -1 when the message was not leased.
	leased time.Duration
}

func endingsOfX() []ending {
	dead := func(why punctual.DeathReason, attempt int) event.Event {
		return event.Event{Event: punctual.EventDead, Reason: why, Attempt: attempt}
	}
	of := func(e punctual.Events, attempt int) event.Event { return event.Event{Event: e, Attempt: attempt} }
	expiring := func(s *harness, drop bool) {
		s.push(punctual.NewMessage{Topic: orders, ID: x, ExpireAfter: time.Second, DropExpired: drop})
		s.advance(time.Minute)
		s.none(orders, "after a message has expired")
	}
	const not = -1
	return []ending{
		{"an ack", func(s *harness) { s.endLeased(punctual.SettleAck) }, of(punctual.EventAcked, 1), time.Second},
		{"a late ack", func(s *harness) { d := bringRunOut(s); s.ack(d) }, of(punctual.EventAcked, 1), 30 * time.Second},
		{"a discard", func(s *harness) { s.endLeased(punctual.SettleDiscard) }, dead(punctual.ReasonDiscarded, 1), time.Second},
		{"the last retry", func(s *harness) {
			s.push(punctual.NewMessage{Topic: orders, ID: x, MaxAttempts: 1})
			s.done(s.one(orders), punctual.SettleRetry, time.Hour)
		}, dead(punctual.ReasonAttemptsUsedUp, 1), 0},
		{"the last lease that ran out", func(s *harness) {
			s.push(punctual.NewMessage{Topic: orders, ID: x, MaxAttempts: 1})
			s.one(orders)
			s.advance(time.Minute)
			s.none(orders, "after the last lease ran out")
		}, dead(punctual.ReasonAttemptsUsedUp, 1), time.Minute},
		{"an expiry", func(s *harness) { expiring(s, false) }, dead(punctual.ReasonExpired, 0), not},
		{"an expiry and drop", func(s *harness) { expiring(s, true) }, of(punctual.EventExpired, 0), not},
		{"a cancel", func(s *harness) { bringCancelled(s) }, of(punctual.EventCancelled, 0), not},
		{"a cancel after a lease that ran out", func(s *harness) {
			bringRunOut(s)
			s.outcome(cancel(orders, x), nil, isRunOut)
		}, of(punctual.EventCancelled, 1), 30 * time.Second},
		{"a cancel under a lease that runs out", func(s *harness) {
			bringLeasedCancelled(s)
			s.advance(time.Minute)
			s.none(orders, "after the lease of a cancelled message ran out")
		}, of(punctual.EventCancelled, 1), time.Minute},
		{"a cancel under a lease, and a reschedule when it has run out", func(s *harness) {
			d := bringLeasedCancelled(s)
			s.clock.Set(d.LeaseUntil)
			s.outcome(reschedule(orders, x, time.Hour), punctual.ErrNotFound, "cancelled under a lease that ran out")
		}, of(punctual.EventCancelled, 1), 30 * time.Second},
		{"a cancel under a lease, and an ack", func(s *harness) { s.ack(bringLeasedCancelled(s)) }, of(punctual.EventAcked, 1), 0},
		{"a cancel under a lease, and a discard", func(s *harness) {
			s.done(bringLeasedCancelled(s), punctual.SettleDiscard, 0)
		}, dead(punctual.ReasonDiscarded, 1), 0},
		{"a cancel under a lease, and a retry", func(s *harness) {
			s.wantErr(s.settle(bringLeasedCancelled(s), punctual.SettleRetry, 0), punctual.ErrCancelled, "retry of a cancelled message")
		}, of(punctual.EventCancelled, 1), 0},
		{"a cancel under a lease, and a snooze", func(s *harness) {
			s.wantErr(s.settle(bringLeasedCancelled(s), punctual.SettleSnooze, 0), punctual.ErrCancelled, "snooze of a cancelled message")
		}, of(punctual.EventCancelled, 1), 0},
		{"a cancel under a lease, and a release", func(s *harness) {
			s.wantErr(s.settle(bringLeasedCancelled(s), punctual.SettleRelease, 0), punctual.ErrCancelled, "release of a cancelled message")
		}, of(punctual.EventCancelled, 1), 0},
	}
}

// endLeased leases orders/x and settles it by a verb a second later.
func (s *harness) endLeased(v punctual.Verb) {
	s.Helper()
	d := bringLeased(s)
	s.advance(time.Second)
	s.done(d, v, 0)
}

func eventEndings(s *harness) {
	s.tells(endings)
	for _, keeps := range []bool{false, true} {
		for _, e := range endingsOfX() {
			t := newHarness(s.T, s.promise, s.opener)
			t.tells(endings)
			if keeps { // what a topic keeps of finished messages makes no difference
				t.configure(orders, punctual.SettingsPatch{DedupeWindow: ptr(time.Hour)})
				if _, err := t.keeper(); err == nil {
					t.keep(orders, time.Hour)
				}
			}
			e.end(t)
			want := t.happened(e.want.Event, e.want.Attempt)
			want.Reason = e.want.Reason
			if e.leased >= 0 {
				want.Delivered = t.now().Add(-e.leased)
			}
			t.wantEvents(e.name, want)
			t.advance(time.Hour)
			t.none(orders, "an hour after "+e.name)
			t.wantEvents("an hour more")
			t.checkSound()
		}
	}
}

// eventsNot: a topic that tells of endings alone tells of nothing that leaves a message scheduled,
// ready or leased, and of no end that is no event: a replacing push, a delete, a purge, and the end
// of the retention of dead messages.
func eventsNot(s *harness) {
	s.tells(endings)
	s.configure(orders, punctual.SettingsPatch{DeadRetention: ptr(time.Hour)})
	nothing := func(after string) {
		s.Helper()
		s.wantEvents(after)
	}
	s.push(order(x, 0))
	nothing("a push")
	s.try(order(x, 0))
	nothing("a duplicate")
	s.try(punctual.NewMessage{Topic: orders, ID: x, IfExists: punctual.IfExistsFail})
	nothing("a push that was refused")
	s.try(second(punctual.IfExistsReplace))
	nothing("a replacing push")
	s.outcome(reschedule(orders, x, 0), nil, isScheduled)
	nothing("a reschedule")
	for _, v := range []punctual.Verb{punctual.SettleRetry, punctual.SettleSnooze, punctual.SettleRelease, punctual.SettleExtend} {
		d := s.one(orders)
		s.wantErr(s.settleVerb(d, v), nil, "%s", v)
		s.advance(time.Minute)
		nothing(v.String())
		s.wantErr(s.settleAs(punctual.Settlement{Topic: orders, ID: x, Token: d.Token + 1000, Verb: punctual.SettleAck}), punctual.ErrLeaseLost, "ack with a stale token")
		nothing("an ack with a stale token")
	}
	d := s.one(orders)
	s.outcome(cancel(orders, x), punctual.ErrLeased, isLeased)
	nothing("a cancel that was noted")
	s.wantErr(s.settle(d, punctual.SettleExtend, time.Minute), punctual.ErrCancelled, "extend of a cancelled message")
	nothing("an extension of a cancelled message")
	s.try(second(punctual.IfExistsReplace))
	nothing("a push that replaced a leased message")
	s.outcome(remove(orders, x), nil, isScheduled)
	nothing("a delete")
	s.push(order(x, 0))
	s.purge(punctual.PurgeQuery{Topic: orders}, 1)
	nothing("a purge")
	bringDead(s)
	s.events()
	s.outcome(requeue(orders, x, 0), nil, isDead)
	nothing("a requeue")
	s.done(s.one(orders), punctual.SettleDiscard, 0)
	s.events()
	s.try(second(punctual.IfExistsReplaceDead))
	nothing("a push that replaced a dead message")
	s.outcome(reschedule(orders, x, 0), nil, isScheduled)
	s.done(s.one(orders), punctual.SettleDiscard, 0)
	s.events()
	s.advance(2 * time.Hour)
	s.wantState(orders, x, punctual.StateNone)
	nothing("the end of the time for which a dead message is kept")
}

// eventsOnRequest: a topic that asks for pushes and retries tells of these, and of nothing else.
func eventsOnRequest(s *harness) {
	s.tells(punctual.EventPushed | punctual.EventRetried)
	bad := order("bad", -1)
	s.pushAll(order(x, 0), order(x, 0), bad)
	s.wantEvents("a push, a duplicate and a malformed one", s.happened(punctual.EventPushed, 0))
	d := s.one(orders)
	s.advance(time.Second)
	s.done(d, punctual.SettleRetry, time.Minute)
	want := s.happened(punctual.EventRetried, 1)
	want.Due, want.Delivered = s.now().Add(time.Minute), noon
	s.wantEvents("a retry", want)
	s.advance(time.Minute)
	d = s.one(orders)
	s.done(d, punctual.SettleSnooze, 0)
	d = s.one(orders)
	s.done(d, punctual.SettleRelease, 0)
	s.wantEvents("a snooze and a release")
	s.try(second(punctual.IfExistsReplace))
	want = s.happened(punctual.EventPushed, 0)
	want.Created, want.FirstDue, want.Due = s.now(), s.now().Add(2*time.Hour), s.now().Add(2*time.Hour)
	s.wantEvents("a replacing push", want)
	s.outcome(cancel(orders, x), nil, isScheduled)
	s.push(punctual.NewMessage{Topic: orders, ID: x, MaxAttempts: 1})
	s.events()
	s.done(s.one(orders), punctual.SettleRetry, 0)
	s.wantEvents("a cancel, and a last retry, which leaves a dead message")
	s.outcome(requeue(orders, x, 0), nil, isDead)
	s.wantEvents("a requeue")
}

func eventsAsked(s *harness) {
	s.tells(endings)
	for _, on := range []punctual.Events{punctual.EventAcked, punctual.EventDead, punctual.EventCancelled, punctual.EventExpired} {
		t := newHarness(s.T, s.promise, s.opener)
		t.tells(on)
		bringAcked(t)
		bringCancelled(t)
		t.push(punctual.NewMessage{Topic: orders, ID: x, ExpireAfter: time.Second, DropExpired: true})
		t.advance(time.Minute)
		t.none(orders, "after a message has expired")
		bringDead(t)
		if got := t.events(); len(got) != 1 || got[0].Event != on {
			t.fail("a topic that tells of %s alone told after an ack, a cancel, an expiry and a discard of %+v", on, got)
		}
	}
}

// eventMessage: the message that tells of an event has the body that every store writes
// (storekit.EventBody), is due at once, and expires EmitKeep later.
func eventMessage(s *harness) {
	s.tells(endings)
	s.configure(orders, punctual.SettingsPatch{EmitKeep: ptr(90 * time.Minute)})
	bringReady(s)
	s.advance(time.Second)
	s.ack(s.one(orders))
	e := s.happened(punctual.EventAcked, 1)
	e.Delivered = s.now()
	m := s.one(told)
	if want := storekit.EventBody(&e); !bytes.Equal(m.Body, want) {
		s.fail("the body of an event is\n%s\nwant\n%s", m.Body, want)
	}
	want := punctual.NewMessage{Topic: told, ID: m.ID, Body: m.Body, ExpireAfter: 90 * time.Minute, DropExpired: true}
	s.wantMessage(m.Message, want, s.now(), s.now())
	if err := storekit.CheckID(m.ID); err != nil || m.Attempt != 1 {
		s.fail("an event came with the ID %q, %v, as attempt %d", m.ID, err, m.Attempt)
	}
}

func eventOddNames(s *harness) {
	s.tells(endings)
	for _, id := range []string{`"`, `\`, `a"b\c`, `\\"`, " ", "</script>&", "~", "a~b", strings.Repeat(`"`, limits.MaxIDBytes)} {
		s.push(order(id, 0))
		s.ack(s.one(orders))
		if got := s.events(); len(got) != 1 || got[0].ID != id {
			s.fail("the event of the message %q is %+v", id, got)
		}
	}
	long := strings.Repeat("t", limits.MaxTopicBytes)
	s.configure(long, punctual.SettingsPatch{Emit: ptr(endings)})
	s.push(punctual.NewMessage{Topic: long, ID: x})
	s.ack(s.one(long))
	if e, err := event.Parse(s.one(storekit.EventTopic(long)).Body); err != nil || e.Topic != long {
		s.fail("the event of a topic with a name of %d bytes is %+v, %v", len(long), e, err)
	}
}

// eventOrder: sorted by their IDs, the events of one partition are in the order in which they
// happened.
func eventOrder(s *harness) {
	s.tells(endings)
	var bodies []string
	for i := range 40 {
		id := fmt.Sprintf("%s~%d", x, i) // one stem, so one partition
		s.push(order(id, 0))
		s.ack(s.one(orders))
		bodies = append(bodies, id)
		if i%3 == 0 {
			s.advance(time.Millisecond)
		}
	}
	ds := s.take(told, 100)
	for len(ds) < len(bodies) {
		ds = append(ds, s.take(told, 100)...)
	}
	slices.SortFunc(ds, func(a, b punctual.Delivery) int { return strings.Compare(a.ID, b.ID) })
	var got []string
	for _, d := range ds {
		e, err := event.Parse(d.Body)
		if err != nil {
			s.fail("%q is no event: %v", d.Body, err)
		}
		got = append(got, e.ID)
	}
	if !slices.Equal(got, bodies) {
		s.fail("by their IDs the events tell of %v; want the order in which the messages were acked, %v", got, bodies)
	}
}

func eventsOff(s *harness) {
	s.tells(0)
	bringAcked(s)
	s.wantTopics(orders)
	s.configure(orders, punctual.SettingsPatch{Emit: ptr(endings)})
	bringAcked(s)
	s.push(punctual.NewMessage{Topic: mails, ID: x})
	s.ack(s.one(mails))
	s.configure(orders, punctual.SettingsPatch{Emit: ptr(punctual.Events(0))})
	bringAcked(s)
	s.wantTopics(mails, orders, told)
	if got := s.events(); len(got) != 1 {
		s.fail("of three acks, told of the second alone, came %+v", got)
	}
}

func eventsCompanion(s *harness) {
	s.tells(endings)
	s.wantTopics(orders)
	bringAcked(s)
	s.wantTopics(orders, told)
	s.wantSettings(told, s.defaults())
	s.wantStats(punctual.TopicStats{Topic: told, Ready: 1, NextDue: noon, Settings: s.defaults()})
	if n, err := s.inspector().DeleteTopic(s.ctx, orders); err != nil || n != 1 {
		s.fail("DeleteTopic of a topic with an event removed %d, %v; want 1", n, err)
	}
	s.wantTopics()
	bringAcked(s)
	s.wantTopics(orders)
}

// eventsOfChanges: whether a change ends a message is decided by what the changes before it in the
// same call have left, so that the companion is made when there is an event for it, and only then.
func eventsOfChanges(s *harness) {
	s.tells(endings)
	ifDue := func(a punctual.Amendment, due time.Time) punctual.Amendment {
		a.IfDue = due
		return a
	}
	amend := func(as []punctual.Amendment, want ...error) {
		s.Helper()
		got, err := s.store.Amend(s.ctx, as)
		if err != nil || len(got) != len(want) {
			s.fail("amend: %v, %v", got, err)
		}
		for i, a := range got {
			s.wantErr(a.Err, want[i], "change %d of %v", i, as)
		}
	}
	s.push(order(x, 0))
	amend([]punctual.Amendment{ifDue(remove(orders, x), noon), ifDue(cancel(orders, x), noon)}, nil, punctual.ErrNotFound)
	s.push(order(x, 0))
	later := noon.Add(time.Hour)
	amend([]punctual.Amendment{reschedule(orders, x, time.Hour), ifDue(cancel(orders, x), noon)}, nil, punctual.ErrChanged)
	s.wantTopics(orders)
	amend([]punctual.Amendment{
		ifDue(reschedule(orders, x, 0), later), ifDue(cancel(orders, x), later), ifDue(cancel(orders, x), noon),
	}, nil, punctual.ErrChanged, nil)
	s.wantTopics(orders, told)
	s.wantEvents("the cancel", s.happened(punctual.EventCancelled, 0))
}

// settleTogether makes settlements in one call and compares their errors.
func (s *harness) settleTogether(ss []punctual.Settlement, want ...error) {
	s.Helper()
	errs, err := s.store.Settle(s.ctx, ss)
	if err != nil || len(errs) != len(want) {
		s.fail("settle: %v, %v", errs, err)
	}
	for i, err := range errs {
		s.wantErr(err, want[i], "settlement %d of %v", i, ss)
	}
}

// eventsOfSettlements: in one call an ack after an extension succeeds and is told of, and an ack
// after a retry fails and is not told of. The companion is made by the first call that has an
// event, and not before.
func eventsOfSettlements(s *harness) {
	s.tells(punctual.EventAcked | punctual.EventDead)
	d := bringLeased(s)
	as := func(v punctual.Verb) punctual.Settlement {
		return punctual.Settlement{Topic: orders, ID: x, Token: d.Token, Verb: v, Delay: time.Minute}
	}
	ack := punctual.Settlement{Topic: orders, ID: x, Token: d.Token, Verb: punctual.SettleAck}
	s.settleTogether([]punctual.Settlement{as(punctual.SettleRetry), ack}, nil, punctual.ErrLeaseLost)
	s.wantTopics(orders)
	s.advance(time.Minute)
	d = s.one(orders)
	ack.Token = d.Token
	s.settleTogether([]punctual.Settlement{as(punctual.SettleExtend), ack, ack}, nil, nil, punctual.ErrLeaseLost)
	s.wantTopics(orders, told)
	acked := s.happened(punctual.EventAcked, 2)
	acked.Due, acked.Delivered = noon.Add(time.Minute), s.now()
	s.wantEvents("an extension and an ack in one call", acked)
}

// eventsOfTakenIDs: a follow-up with IfExistsFail is stored, and told of, if a settlement before it
// in the call has freed its ID. It is refused, and not told of, if one before it has stored a
// message with the ID.
func eventsOfTakenIDs(s *harness) {
	s.tells(punctual.EventPushed)
	s.follows(storekit.ReachFamily)
	off := punctual.Events(0)
	s.configure(orders, punctual.SettingsPatch{Emit: &off})
	s.pushAll(order(x, 0), order(x+"~2", 0), order(x+"~3", 0))
	on := punctual.EventPushed
	s.configure(orders, punctual.SettingsPatch{Emit: &on})
	held := map[string]punctual.Delivery{}
	for _, d := range s.take(orders, 10) {
		held[d.ID] = d
	}
	ack := func(id string, then ...punctual.NewMessage) punctual.Settlement {
		return punctual.Settlement{Topic: orders, ID: id, Token: held[id].Token, Verb: punctual.SettleAck, Then: then}
	}
	next := func(id string) punctual.NewMessage {
		return punctual.NewMessage{Topic: orders, ID: id, Delay: time.Hour, IfExists: punctual.IfExistsFail}
	}
	s.settleTogether([]punctual.Settlement{ack(x, next(x+"~2"))}, punctual.ErrDuplicate)
	s.wantTopics(orders)
	s.settleTogether([]punctual.Settlement{ack(x + "~2"), ack(x, next(x+"~2")), ack(x+"~3", next(x+"~2"))}, nil, nil, punctual.ErrDuplicate)
	s.wantTopics(orders, told)
	pushed := s.happened(punctual.EventPushed, 0)
	pushed.ID, pushed.FirstDue, pushed.Due = x+"~2", noon.Add(time.Hour), noon.Add(time.Hour)
	s.wantEvents("an ack whose follow-up takes an ID that was freed before it", pushed)
}

// eventsOfEvents: a companion that is no group's topic tells of no events, so that an event does
// not cause another event.
func eventsOfEvents(s *harness) {
	s.tells(event.All)
	for _, topic := range []string{told, bills} {
		_, err := s.inspector().Configure(s.ctx, topic, punctual.SettingsPatch{Emit: ptr(punctual.EventDead)})
		s.wantErr(err, punctual.ErrInvalid, "Configure of %s with events", topic)
	}
	s.wantTopics(orders)
	s.push(punctual.NewMessage{Topic: bills, ID: x})
	s.ack(s.one(bills))
	s.wantTopics(orders, bills)
	bringAcked(s)
	for range 2 { // pushed and acked
		s.done(s.oneEvent(), punctual.SettleDiscard, 0)
	}
	s.wantEvents("discards of all events")
	s.wantTopics(orders, bills, told)
}

// eventsOfGroup: the events of a group's topic go to the companion events of the topic that the
// group belongs to, as the events of that topic do.
func eventsOfGroup(s *harness) {
	s.tells(endings)
	group := punctual.GroupTopic(orders, "billing")
	s.configure(group, punctual.SettingsPatch{Emit: ptr(punctual.EventAcked)})
	for range 5 { // five times each, so that the IDs of events would meet if each topic numbered its events by itself
		bringAcked(s)
		s.push(punctual.NewMessage{Topic: group, ID: x})
		s.ack(s.one(group))
	}
	s.push(punctual.NewMessage{Topic: group, ID: x})
	s.done(s.one(group), punctual.SettleDiscard, 0)
	s.wantTopics(orders, told, group)
	count := map[string]int{}
	for _, e := range s.events() {
		count[e.Topic]++
	}
	if count[orders] != 5 || count[group] != 5 || len(count) != 2 {
		s.fail("five acks in a topic and five in its group, and a discard that the group does not tell of: %v", count)
	}
}

// oneEvent claims one of several events.
func (s *harness) oneEvent() punctual.Delivery {
	s.Helper()
	ds := s.take(told, 1)
	if len(ds) != 1 {
		s.fail("a claim of one of several events returned %v", ids(ds))
	}
	return ds[0]
}

func eventsOfBatch(s *harness) {
	s.tells(endings)
	var ms []punctual.NewMessage
	want := map[string]punctual.Events{}
	for i := range 20 {
		ms = append(ms, order(fmt.Sprint(i), 0))
	}
	s.pushAll(ms...)
	var ss []punctual.Settlement
	for i, d := range s.take(orders, 20) {
		v := []punctual.Verb{punctual.SettleAck, punctual.SettleDiscard, punctual.SettleSnooze, punctual.SettleAck}[i%4]
		ss = append(ss, punctual.Settlement{Topic: orders, ID: d.ID, Token: d.Token + int64(i%4/3), Verb: v})
		want[d.ID] = []punctual.Events{punctual.EventAcked, punctual.EventDead, punctual.EventCancelled, punctual.EventCancelled}[i%4]
	}
	if len(ss) != 20 {
		s.fail("claimed %d of 20", len(ss))
	}
	if errs, err := s.store.Settle(s.ctx, append(ss, ss...)); err != nil || len(errs) != 40 {
		s.fail("settle: %v, %v", errs, err)
	}
	s.advance(time.Minute) // the leases of those whose token was wrong run out
	var as []punctual.Amendment
	for i := range 20 {
		as = append(as, cancel(orders, fmt.Sprint(i)), cancel(orders, fmt.Sprint(i)))
	}
	if os, err := s.store.Amend(s.ctx, as); err != nil || len(os) != 40 {
		s.fail("amend: %v, %v", os, err)
	}
	got := map[string]punctual.Events{}
	for _, e := range s.events() {
		if got[e.ID] != 0 {
			s.fail("two events of %s: %s and %s", e.ID, got[e.ID], e.Event)
		}
		got[e.ID] = e.Event
	}
	for id, e := range want {
		if got[id] != e {
			s.fail("%s: told of %s; want %s", id, got[id], e)
		}
	}
	if len(got) != len(want) {
		s.fail("%d events of %d messages", len(got), len(want))
	}
}

// eventsOfClaim: a claim that ends ten messages and delivers another one stores an event for each
// message that it ends.
func eventsOfClaim(s *harness) {
	s.tells(endings)
	for i := range 10 {
		m := order(fmt.Sprint(i), 0)
		m.ExpireAfter, m.DropExpired = time.Second, i%2 == 0
		s.push(m)
	}
	s.push(order("delivered", 2*time.Second))
	s.advance(time.Minute)
	s.ack(s.one(orders))
	got := map[string]punctual.Events{}
	for _, e := range s.events() {
		got[e.ID] |= e.Event
		if e.Event == punctual.EventDead && e.Reason != punctual.ReasonExpired || !e.At.Equal(s.now()) {
			s.fail("told of a message that has expired: %+v", e)
		}
	}
	for i := range 10 {
		want := punctual.EventDead
		if i%2 == 0 {
			want = punctual.EventExpired
		}
		if id := fmt.Sprint(i); got[id] != want {
			s.fail("a claim ended %s, and told of %s; want %s", id, got[id], want)
		}
	}
	if got["delivered"] != punctual.EventAcked || len(got) != 11 {
		s.fail("ten messages expired and one was acked; told of %v", got)
	}
}

// eventsBesideFollowUps: a settlement with follow-ups is told of if it is made, and not if it is
// refused.
func eventsBesideFollowUps(s *harness) {
	s.tells(event.All)
	s.follows(storekit.ReachFamily)
	d := bringLeased(s)
	s.wantEvents("a push", s.happened(punctual.EventPushed, 0))
	bad := billed(-1)
	for _, v := range thenVerbs() {
		s.unfollowed(followed(d, v, noted(0), bad), punctual.ErrInvalid, 2, "the second malformed")
	}
	stale := followed(d, punctual.SettleAck, billed(0))
	stale.Token++
	s.unfollowed(stale, punctual.ErrLeaseLost, 0, "with a stale token")
	s.wantEvents("settlements that were refused")
	s.follow(d, punctual.SettleAck, billed(0), again(punctual.IfExistsKeep))
	acked, pushed := s.happened(punctual.EventAcked, 1), s.happened(punctual.EventPushed, 0)
	acked.Delivered = noon
	pushed.FirstDue, pushed.Due = noon.Add(time.Hour), noon.Add(time.Hour)
	got := s.events()
	slices.SortFunc(got, func(a, b event.Event) int { return int(a.Event) - int(b.Event) })
	if !slices.Equal(got, []event.Event{acked, pushed}) {
		s.fail("after an ack with itself and a companion's message as follow-ups the events are %+v; want %+v and %+v", got, acked, pushed)
	}
}

// eventsKept: an event that nobody has claimed within EmitKeep is never delivered.
func eventsKept(s *harness) {
	s.tells(endings)
	s.configure(orders, punctual.SettingsPatch{EmitKeep: ptr(time.Minute)})
	bringAcked(s)
	s.advance(30 * time.Second)
	s.configure(orders, punctual.SettingsPatch{EmitKeep: ptr(time.Hour)}) // for later events
	bringAcked(s)
	s.advance(30 * time.Second)
	if got := s.events(); len(got) != 1 || !got[0].At.Equal(noon.Add(30*time.Second)) {
		s.fail("a minute after an event that is kept for a minute, and half a minute after one that is kept for an hour: %+v", got)
	}
	s.wantStats(punctual.TopicStats{Topic: told, Settings: s.defaults()})
}

// old has n events happen that nobody reads, and lets the time pass for which they are kept. All
// are in one partition.
func (s *harness) old(n int) {
	s.Helper()
	s.configure(orders, punctual.SettingsPatch{EmitKeep: ptr(time.Minute)})
	for range n {
		bringAcked(s)
	}
	if got := s.unread(); got < int64(n) {
		s.fail("%d events wait after %d happened", got, n)
	}
	s.advance(time.Minute)
}

// unread returns how many events are ready or scheduled.
func (s *harness) unread() int64 {
	s.Helper()
	st, err := s.inspector().Stats(s.ctx, told)
	if err != nil {
		s.fail("Stats of %s: %v", told, err)
	}
	return st.Ready + st.Scheduled
}

// eventsSwept: if nobody reads events, a sweep removes those that were kept long enough.
func eventsSwept(s *harness) {
	s.tells(endings)
	const n = 200
	s.old(n)
	if got := s.unread(); got > n {
		s.fail("%d events wait that nobody has read; want up to %d", got, n)
	}
	const more = 10
	for range more {
		bringAcked(s)
	}
	s.sweepEvents()
	if got := s.unread(); got != more {
		s.fail("after %d old events and %d new ones %d wait; want the new ones alone", n, more, got)
	}
}

func eventsSweptLeased(s *harness) {
	s.tells(endings)
	s.configure(told, punctual.SettingsPatch{Lease: ptr(time.Hour)})
	bringAcked(s)
	d := s.one(told)
	s.old(3)
	bringAcked(s)
	s.sweepEvents()
	if got := s.unread(); got != 1 {
		s.fail("beside one that somebody works on, and three that are too old, %d events wait; want the new one", got)
	}
	s.ack(d)
}

func eventsSweptPaused(s *harness) {
	s.tells(endings)
	bringAcked(s)
	s.events()
	s.configure(told, punctual.SettingsPatch{DeliveryPaused: ptr(true)})
	s.old(5)
	bringAcked(s)
	s.sweepEvents()
	if got := s.unread(); got != 1 {
		s.fail("behind five events that are too old, in a companion whose deliveries are paused, %d wait; want the new one", got)
	}
}

// eventsSweptMany: where each call has many events, the old ones are removed as well.
func eventsSweptMany(s *harness) {
	s.tells(punctual.EventPushed)
	s.configure(orders, punctual.SettingsPatch{EmitKeep: ptr(time.Minute)})
	const n = 250
	for round := range 4 {
		var ms []punctual.NewMessage
		for i := range n {
			ms = append(ms, order(fmt.Sprint(round, " ", i), 24*time.Hour))
		}
		s.pushAll(ms...)
		s.sweepEvents()
		if got := s.unread(); got != n {
			s.fail("after call %d of %d pushes, a minute after the one before, %d events wait; want those of the last call", round, n, got)
		}
		s.advance(time.Minute)
	}
}

// sweepEvents removes what storekit.SweepEvents removes, which durable stores do by themselves from
// time to time.
func (s *harness) sweepEvents() {
	s.Helper()
	if err := storekit.SweepEvents(s.ctx, s.store); err != nil {
		s.fail("SweepEvents: %v", err)
	}
}

// eventsSweptBehind: messages that do not expire, or later than the events, do not protect the old
// events behind them. An event that is not too old stays, and so does what a claim would make dead
// and not drop.
func eventsSweptBehind(s *harness) {
	const stay = 250 // more than a sweep reads at once
	var ms []punctual.NewMessage
	for i := range stay {
		ms = append(ms, punctual.NewMessage{Topic: told, ID: fmt.Sprint("stays ", i), Due: noon.Add(-time.Hour)})
	}
	ms[1].ExpireAfter, ms[1].DropExpired = 24*time.Hour, true
	ms[2].ExpireAfter = time.Minute // would be dead, and not dropped
	s.tells(endings)
	s.pushAll(ms...)
	s.old(64)
	bringAcked(s)
	s.sweepEvents()
	if got := s.unread(); got != stay+1 {
		s.fail("behind %d messages that do not expire %d wait; want the new event alone", stay, got-stay)
	}
	s.wantState(told, ms[2].ID, punctual.StateReady)
	s.sweepEvents()
	if got := s.unread(); got != stay+1 {
		s.fail("a second sweep left %d messages; want %d", got, stay+1)
	}
}

// eventsSweptAtRest: events of a topic in which nothing happens any more are removed, also when it
// does not tell of events any more.
func eventsSweptAtRest(s *harness) {
	for _, on := range []punctual.Events{endings, 0} {
		s.tells(endings)
		s.old(5)
		s.configure(orders, punctual.SettingsPatch{Emit: &on})
		s.sweepEvents()
		s.wantStats(punctual.TopicStats{Topic: told, Settings: s.defaults()})
	}
}

// RunSweeps shows that a store removes old events of a topic at rest by itself. It is for a durable
// store whose time between two sweeps of events (storekit.SweepEventsUntil) is short.
func RunSweeps(t *testing.T, open Open) {
	s := newHarness(t, p10, opener{open: func(c storekit.Clock) punctual.Store { return open(t, c) }})
	s.tells(endings)
	s.old(5)
	for end := time.Now().Add(time.Minute); s.unread() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.fail("a minute of real time after five events have become too old, %d are there", s.unread())
		}
	}
}

func eventsSweptFinished(s *harness) {
	s.tells(endings)
	s.configure(told, punctual.SettingsPatch{FinishedRetention: ptr(time.Hour)})
	s.old(5)
	bringAcked(s)
	s.sweepEvents()
	if got := s.unread(); got != 1 {
		s.fail("behind five events that are too old, in a companion that keeps finished records, %d wait; want the new one", got)
	}
}

// eventsHandled: an event can be retried, discarded, purged, requeued and acked as any message.
func eventsHandled(s *harness) {
	s.tells(endings)
	bringAcked(s)
	d := s.one(told)
	s.done(d, punctual.SettleRetry, time.Minute)
	s.advance(time.Minute)
	d = s.one(told)
	if d.Attempt != 2 {
		s.fail("an event that was retried came as attempt %d", d.Attempt)
	}
	s.done(d, punctual.SettleDiscard, 0)
	s.wantState(told, d.ID, punctual.StateDead)
	bringAcked(s)
	bringAcked(s)
	s.purge(punctual.PurgeQuery{Topic: told}, 2)
	s.outcome(requeue(told, d.ID, 0), nil, isDead)
	s.ack(s.one(told))
}

func eventsWake(s *harness) {
	s.tells(endings)
	for i := range rounds {
		d := bringLeased(s)
		w := s.wait(s.ctx, punctual.Claim{Topics: []string{mails, told}, Max: 1, Wait: time.Hour})
		if i%2 == 0 {
			asleep()
		}
		if i%3 == 0 {
			s.outcome(cancel(orders, x), punctual.ErrLeased, isLeased)
			s.wantErr(s.settle(d, punctual.SettleRelease, 0), punctual.ErrCancelled, "release of a cancelled message")
		} else {
			s.ack(d)
		}
		ds, err := w.result("an event")
		if err != nil || len(ds) != 1 {
			s.fail("a claim that waits for events returned %v, %v", ids(ds), err)
		}
		s.ack(ds[0])
	}
}

func eventsWakeClaim(s *harness) {
	s.tells(endings)
	for range rounds {
		s.push(punctual.NewMessage{Topic: orders, ID: x, ExpireAfter: time.Millisecond, DropExpired: true})
		w := s.wait(s.ctx, punctual.Claim{Topics: []string{mails, told}, Max: 1, Wait: time.Hour})
		asleep()
		s.advance(time.Second)
		s.none(orders, "after its message has expired")
		ds, err := w.result("an event that a claim has caused")
		if err != nil || len(ds) != 1 {
			s.fail("a claim that waits for events returned %v, %v", ids(ds), err)
		}
		s.ack(ds[0])
	}
}

// eventsDivided: in a topic of several partitions each event is delivered once, and is found by its
// ID.
func eventsDivided(s *harness) {
	s.tells(endings)
	if _, err := s.inspector().DeleteTopic(s.ctx, orders); err != nil {
		s.fail("DeleteTopic: %v", err)
	}
	s.divide(orders, 4)
	s.configure(orders, punctual.SettingsPatch{Emit: ptr(endings)})
	const n = 24
	for i := range n {
		s.push(order(fmt.Sprintf("%d~a", i), 0))
		s.ack(s.one(orders))
	}
	if p := s.settings(told).Partitions; p != 4 {
		s.fail("the events of a topic with 4 partitions have %d", p)
	}
	seen := make(map[string]bool)
	for len(seen) < n {
		ds := s.take(told, n)
		if len(ds) == 0 {
			s.Fatalf("%s: of %d events %d were delivered", p1, n, len(seen))
		}
		for _, d := range ds {
			e, err := event.Parse(d.Body)
			if err != nil || seen[e.ID] {
				s.fail("the event %s is %+v, %v; or it came twice", d.ID, e, err)
			}
			seen[e.ID] = true
			s.wantState(told, d.ID, punctual.StateLeased)
			s.ack(d)
		}
	}
}

func eventsReopened(s *harness) {
	s.tells(endings)
	bringAcked(s)
	s.push(punctual.NewMessage{Topic: orders, ID: "leased"})
	d := s.one(orders)
	s.reopen()
	s.ack(d)
	got := s.events()
	slices.SortFunc(got, func(a, b event.Event) int { return strings.Compare(b.ID, a.ID) }) // events of different partitions come in no order
	if len(got) != 2 || got[0].ID != x || got[1].ID != "leased" {
		s.fail("an event before the store was opened anew and one after: %+v", got)
	}
	for _, e := range got {
		if e.Event != punctual.EventAcked || e.ID == "leased" && !e.Delivered.IsZero() && !e.Delivered.Equal(noon) {
			s.fail("told of %+v", e)
		}
	}
}

// eventsRepeated: a copy of a call stores no further event.
func eventsRepeated(s *harness) {
	s.repeater()
	s.tells(endings)
	d := bringLeased(s)
	s.again("ack", func() { s.ack(d) })
	s.push(order(x, 0))
	s.again("cancel", func() {
		if o := s.amend(cancel(orders, x)); o.Err != nil && !errors.Is(o.Err, punctual.ErrNotFound) {
			s.fail("cancel: %v", o.Err)
		}
	})
	if got := s.events(); len(got) != 2 {
		s.fail("an ack and a cancel, each sent twice: %+v", got)
	}
}
