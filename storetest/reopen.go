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
	}
}

func reopenStates(s *subject) {
	s.eachSituation(func(s *subject, at situation, _ punctual.Delivery) {
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

func reopenLeases(s *subject) {
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

func reopenTokensGrow(s *subject) {
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

func reopenAttempts(s *subject) {
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

func reopenCancelled(s *subject) {
	d := bringLeasedCancelled(s)
	s.reopen()
	s.wantErr(s.settle(d, punctual.SettleExtend, time.Minute), punctual.ErrCancelled, "extend after reopening of a message cancelled while leased")
	s.reopen()
	s.advance(30 * time.Second)
	s.none(orders, "after the lease of a cancelled message ran out")
}

func reopenFinished(s *subject) {
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

func reopenSettings(s *subject) {
	s.configure(orders, punctual.SettingsPatch{
		Lease: ptr(time.Minute), MaxAttempts: ptr(3), Backoff: &punctual.Backoff{Delays: []time.Duration{time.Second}},
		Remember: ptr(time.Hour), DeadRetention: ptr(2 * time.Hour), PausedOut: ptr(true),
	})
	want := s.settings(orders)
	bringCancelled(s)
	s.reopen()
	s.wantSettings(orders, want)
	s.wantPush(s.try(order(x, 0)), punctual.PushDuplicate, "cancelled and remembered")
	s.advance(time.Hour + time.Millisecond)
	s.wantPush(s.try(order(x, 0)), punctual.PushStored, "cancelled more than an hour ago")
}

func reopenDueMeanwhile(s *subject) {
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

func reopenClock(s *subject) {
	s.advance(time.Hour)
	s.push(order(x, time.Minute))
	before := s.now()
	s.advance(-time.Hour)
	s.reopen()
	if now := s.now(); now.Before(before.Add(-time.Second)) {
		s.fail("reopened after a step of an hour back the store's clock says %v; it said %v before", now, before)
	}
	s.until(before.Add(time.Minute), time.Minute)
	s.ack(s.one(orders))
}
