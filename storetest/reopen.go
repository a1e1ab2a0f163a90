package storetest

import (
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
)

// reopenCases: does a durable store know everything after a restart? They are skipped
// without WithReopen.
func reopenCases() []testCase {
	return []testCase{
		{"every state", p1, reopenStates},
		{"leases and tokens", p4, reopenLeases},
		{"tokens grow", p4, reopenTokensGrow},
		{"attempts", p6, reopenAttempts},
		{"cancel while leased", p5, reopenCancelled},
		{"finished stay finished", p1, reopenFinished},
		{"settings and remembered IDs", p7, reopenSettings},
		{"due while closed", p1, reopenDueMeanwhile},
		{"clock stepped back while closed", p8, reopenClock},
		{"clock stepped back after an hour without a push", p8, reopenClockAfterEachCall},
	}
}

func reopenStates(s *harness) {
	s.eachSituation(func(s *harness, at situation, _ punctual.Delivery) {
		if at.state == punctual.StateNone {
			s.reopen()
			s.wantState(orders, x, punctual.StateNone)
			s.advance(24 * time.Hour)
			s.none(orders, "a day after reopening; its message was "+at.name)
			return
		}
		s.inspector()
		before := s.get(orders, x)
		s.reopen()
		s.wantUnchanged(before, "reopening")
	})
}

func reopenLeases(s *harness) {
	s.push(order("a", 0))
	s.push(order("b", 0))
	ds := s.take(orders, 2)
	s.reopen()
	s.none(orders, "after reopening, while all leases last,")
	s.ack(ds[0])
	wrong := ds[1]
	wrong.Token++
	s.wantFenced(wrong, "after reopening")
	s.advance(30 * time.Second)
	again := s.one(orders)
	if again.ID != ds[1].ID || again.Token <= ds[1].Token || again.Attempt != 2 {
		s.fail("when the lease ran out after reopening, %s came with token %d, attempt %d; want %s, above %d, 2", again.ID, again.Token, again.Attempt, ds[1].ID, ds[1].Token)
	}
	s.reopen()
	s.wantFenced(ds[1], "two claims and two restarts later")
	s.ack(again)
}

func reopenTokensGrow(s *harness) {
	var token int64
	for i := range 5 {
		d := bringLeased(s)
		if i > 0 && d.Token <= token {
			s.fail("after %d restarts a token is %d, not above %d", i, d.Token, token)
		}
		token = d.Token
		s.ack(d)
		s.reopen()
	}
}

func reopenAttempts(s *harness) {
	s.poison(3)
	for i := range 3 {
		if d := s.one(orders); d.Attempt != i+1 || len(d.Failures) != i {
			s.fail("delivery %d, with a restart after each, is attempt %d with history %v", i+1, d.Attempt, d.Failures)
		}
		s.reopen()
		s.advance(30 * time.Second)
	}
	s.none(orders, "after 3 of 3 attempts, each ended by a restart")
	s.reopen()
	s.wantDead(orders, x, punctual.ReasonAttemptsUsedUp)
}

func reopenCancelled(s *harness) {
	d := bringLeasedCancelled(s)
	s.reopen()
	s.wantErr(s.settle(d, punctual.SettleExtend, time.Minute), punctual.ErrCancelled, "extend after reopening of a message cancelled while leased")
	s.reopen()
	s.advance(30 * time.Second)
	s.none(orders, "after the lease of a cancelled message ran out")
}

func reopenFinished(s *harness) {
	for i := range 30 {
		s.push(order(fmt.Sprint(i), 0))
	}
	for i, d := range s.take(orders, 20) {
		if i%2 == 0 {
			s.ack(d)
		} else {
			s.done(d, punctual.SettleRelease, 0)
		}
	}
	for i := range 30 {
		s.amend(cancel(orders, fmt.Sprint(i)))
	}
	s.reopen()
	s.advance(24 * time.Hour)
	s.none(orders, "after all messages were acked or cancelled and the store was reopened")
}

func reopenSettings(s *harness) {
	s.configure(orders, punctual.SettingsPatch{
		Lease: ptr(time.Minute), MaxAttempts: ptr(3), Backoff: &punctual.Backoff{Delays: []time.Duration{time.Second}},
		DedupeWindow: ptr(time.Hour), DeadRetention: ptr(2 * time.Hour), DeliveryPaused: ptr(true),
	})
	want := s.settings(orders)
	bringCancelled(s)
	s.reopen()
	s.wantSettings(orders, want)
	s.wantPush(s.try(order(x, 0)), punctual.PushDuplicate, "cancelled and remembered")
	s.advance(time.Hour + time.Millisecond)
	s.wantPush(s.try(order(x, 0)), punctual.PushStored, "cancelled more than an hour ago")
}

func reopenDueMeanwhile(s *harness) {
	for i := range 50 {
		s.push(order(fmt.Sprintf("%02d", i), time.Duration(i+1)*time.Minute))
	}
	s.reopen()
	s.none(orders, "right after reopening")
	s.advance(25 * time.Minute)
	s.reopen()
	var want []string
	for i := range 25 {
		want = append(want, fmt.Sprintf("%02d", i))
	}
	s.wantOrder(s.take(orders, 100), want...)
}

func reopenClock(s *harness) {
	s.advance(time.Hour)
	s.push(order(x, time.Minute))
	before := s.now()
	s.advance(-time.Hour)
	s.reopen()
	if now := s.now(); now.Before(before) {
		s.fail("reopened after a step of an hour back the store's clock says %v; it said %v before", now, before)
	}
	s.until(before.Add(time.Minute), time.Minute)
	s.ack(s.one(orders))
}

// reopenClockAfterEachCall makes one call an hour after all other calls. When the store was opened
// again, its clock must not be before the time of that call, whichever method it was.
func reopenClockAfterEachCall(s *harness) {
	for _, c := range clockCalls() {
		t := newHarness(s.T, s.promise, s.opener)
		t.push(order(x, 0))
		held := t.claim(punctual.Claim{Topics: []string{orders}, Max: 1, Lease: 3 * time.Hour})[0]
		t.push(order("ready", 0))
		t.push(order("scheduled", 100*time.Hour))
		t.advance(time.Hour)
		c.call(t, held)
		before := t.clock.Now()
		t.advance(-2 * time.Hour)
		t.reopen()
		if now := t.now(); now.Before(before) {
			t.fail("the last call of the store, %s, was at %v; reopened after a step of two hours back its clock says %v", c.name, before, now)
		}
	}
}

// clockCall is a call that tells its caller something about the time.
type clockCall struct {
	name string
	call func(s *harness, held punctual.Delivery)
}

func clockCalls() []clockCall {
	settle := func(name string, v punctual.Verb) clockCall {
		return clockCall{name, func(s *harness, held punctual.Delivery) {
			if err := s.settleVerb(held, v); err != nil {
				s.fail("%s of %s/%s: unexpected error: %v", v, held.Topic, held.ID, err)
			}
		}}
	}
	look := func(name string, call func(s *harness, in punctual.Inspector) error) clockCall {
		return clockCall{name, func(s *harness, _ punctual.Delivery) {
			if !s.hasInspector() {
				return
			}
			if err := call(s, s.inspector()); err != nil {
				s.fail("%s: unexpected error: %v", name, err)
			}
		}}
	}
	return []clockCall{
		{"a push", func(s *harness, _ punctual.Delivery) { s.push(order("new", 0)) }},
		{"a push of a taken ID", func(s *harness, _ punctual.Delivery) {
			s.wantPush(s.try(order(x, 0)), punctual.PushDuplicate, isLeased)
		}},
		{"a claim", func(s *harness, _ punctual.Delivery) { s.one(orders) }},
		settle("an ack", punctual.SettleAck), settle("a retry", punctual.SettleRetry), settle("a snooze", punctual.SettleSnooze),
		settle("a discard", punctual.SettleDiscard), settle("a release", punctual.SettleRelease), settle("an extension", punctual.SettleExtend),
		{"a cancel", func(s *harness, _ punctual.Delivery) {
			s.outcome(cancel(orders, "scheduled"), nil, isScheduled)
		}},
		{"a cancel that is too late", func(s *harness, _ punctual.Delivery) { s.outcome(cancel(orders, x), punctual.ErrLeased, isLeased) }},
		{"Now", func(s *harness, _ punctual.Delivery) { s.now() }},
		look("Get", func(s *harness, in punctual.Inspector) error { _, err := in.Get(s.ctx, orders, "ready"); return err }),
		look("List", func(s *harness, in punctual.Inspector) error {
			_, err := in.List(s.ctx, punctual.ListQuery{Topic: orders, State: punctual.StateReady})
			return err
		}),
		look("Topics", func(s *harness, in punctual.Inspector) error { _, err := in.Topics(s.ctx); return err }),
		look("Forecast", func(s *harness, in punctual.Inspector) error {
			_, err := in.Forecast(s.ctx, punctual.ForecastQuery{Step: time.Hour, Buckets: 1})
			return err
		}),
	}
}
