package storetest

import (
	"context"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// repeatCases: what becomes of a call that is sent again?
func repeatCases() []testCase {
	return []testCase{
		{"a push is done once", p13, repeatPush},
		{"a push without IDs gets the same ones", p13, repeatPushNamed},
		{"a refused push is answered alike", p13, repeatRefused},
		{"each verb of a settlement is done once", p13, repeatSettle},
		{"an amendment is done once", p13, repeatAmend},
		{"a claim leases once", p3, repeatClaim},
		{"a claim leases once for two that wait", p3, repeatWaiting},
		{"a claim returns no lease that has ended", p3, repeatLapsed},
		{"a claim that found nothing looks again", p13, repeatNothing},
		{"a call that was not carried out can be", p13, repeatDefinite},
		{"a key belongs to one call", p13, repeatOther},
		{"answers are kept for as long as said", p13, repeatKept},
		{"nothing is done too late", p8, repeatLate},
		{"a claim does not wait too long", p8, repeatLateWait},
		{"a late copy asks what became of the call", p13, repeatAsk},
		{"a malformed request", p13, repeatInvalid},
	}
}

// repeater returns the store's Repeater. It skips the case when the store has none.
func (s *harness) repeater() storekit.Repeater {
	s.Helper()
	r, err := punctual.As[storekit.Repeater](s.store)
	if err != nil {
		s.Skipf("skipped: the case needs a Repeater")
	}
	if r.Repeats() <= 0 {
		s.fail("Repeats returns %v; want a positive duration", r.Repeats())
	}
	return r
}

// within runs f, whose calls to the store carry the request.
func (s *harness) within(r storekit.Request, f func()) {
	old := s.ctx
	s.ctx = storekit.WithRequest(old, r)
	f()
	s.ctx = old
}

// again runs f twice, both times with the same key, as a client does whose first answer was lost.
func (s *harness) again(key string, f func()) {
	s.Helper()
	s.repeater()
	for range 2 {
		s.within(storekit.Request{Key: key}, f)
	}
}

func repeatPush(s *harness) {
	s.again("push", func() { s.push(order("a", 0)) })
	s.ack(s.one(orders))
	s.within(storekit.Request{Key: "push"}, func() { s.push(order("a", 0)) })
	s.none(orders, "after a push was sent again whose message is finished")
	s.push(order("a", 0)) // without the key it is another call
	s.one(orders)
}

func repeatPushNamed(s *harness) {
	var rs []punctual.PushResult
	s.again("push", func() { rs = append(rs, s.pushAll(order("", 0), order("", 0))...) })
	if rs[0].ID != rs[2].ID || rs[1].ID != rs[3].ID || rs[0].ID == rs[1].ID {
		s.fail("a push of two messages without IDs, sent twice, was told %q, %q and then %q, %q", rs[0].ID, rs[1].ID, rs[2].ID, rs[3].ID)
	}
	if ds := s.take(orders, 10); len(ds) != 2 {
		s.fail("a push of two messages that was sent twice stored %d", len(ds))
	}
}

func repeatRefused(s *harness) {
	bad := order("b", 0)
	bad.MaxAttempts = -1
	s.again("push", func() {
		rs := s.pushAll(order("a", time.Hour), bad)
		if rs[0].Status != punctual.PushStored {
			s.fail("a push that was sent again reports status %q, error %v; want stored", rs[0].Status, rs[0].Err)
		}
		s.wantErr(rs[1].Err, punctual.ErrInvalid, "the malformed message of a push that is sent twice")
	})
	taken := order("a", 0)
	taken.IfExists = punctual.IfExistsFail
	s.again("taken", func() {
		s.wantErr(s.try(taken).Err, punctual.ErrDuplicate, "a push of an ID that is taken, sent twice")
	})
	s.outcome(cancel(orders, "a"), nil, isScheduled)
	s.within(storekit.Request{Key: "taken"}, func() {
		s.wantErr(s.try(taken).Err, punctual.ErrDuplicate, "a copy of a refused push once the ID is free")
	})
	s.wantState(orders, "a", punctual.StateNone)
}

func repeatSettle(s *harness) {
	if _, err := s.keeper(); err == nil && s.hasInspector() {
		s.keep(orders, time.Hour) // so that a record says when a message was acked
	}
	for _, c := range []struct {
		verb              punctual.Verb
		delay             time.Duration
		then              punctual.State
		attempt, failures int // of the message then
	}{
		{punctual.SettleAck, 0, punctual.StateNone, 0, 0},
		{punctual.SettleRetry, time.Hour, punctual.StateScheduled, 1, 1},
		{punctual.SettleSnooze, time.Hour, punctual.StateScheduled, 0, 0},
		{punctual.SettleDiscard, 0, punctual.StateDead, 1, 1},
		{punctual.SettleRelease, 0, punctual.StateReady, 0, 0},
		{punctual.SettleExtend, time.Minute, punctual.StateLeased, 1, 0},
	} {
		id := c.verb.String()
		s.push(order(id, 0))
		d := s.one(orders)
		s.again(id, func() {
			s.done(d, c.verb, c.delay)
			s.advance(time.Second) // the time of a settlement that is made a second time would be this one
		})
		s.wantState(orders, id, c.then)
		s.wantTimeOfFirst(d, c.verb, c.delay)
		if s.hasInspector() && c.then != punctual.StateNone {
			if info := s.get(orders, id); info.Attempt != c.attempt || len(info.Failures) != c.failures {
				s.fail("a %s that was sent twice left attempt %d and %d failures; want %d and %d", c.verb, info.Attempt, len(info.Failures), c.attempt, c.failures)
			}
		}
		switch c.verb { // so that the claim for the next verb does not return the message
		case punctual.SettleAck:
			s.none(orders, "after an ack that was sent twice")
		case punctual.SettleRelease:
			again := s.one(orders)
			if again.Attempt != 1 {
				s.fail("after a release that was sent twice the message is delivered as attempt %d; want 1", again.Attempt)
			}
			s.ack(again)
		case punctual.SettleExtend:
			s.ack(d)
		default:
			s.amend(cancel(orders, id))
		}
	}
}

// wantTimeOfFirst checks by the time which a settlement has set, where the store shows it, that the
// first of two copies was carried out and the second one was not. The first copy was sent at the
// time of the claim, and the second one a second later.
func (s *harness) wantTimeOfFirst(d punctual.Delivery, v punctual.Verb, delay time.Duration) {
	s.Helper()
	if !s.hasInspector() {
		return
	}
	var at time.Time
	want := d.Delivered.Add(delay)
	if v == punctual.SettleAck {
		if _, err := s.keeper(); err != nil {
			return
		}
		at = s.record(d.ID).At
	} else {
		switch info := s.get(orders, d.ID); v {
		case punctual.SettleDiscard:
			at = info.Died
		case punctual.SettleExtend:
			at = info.LeaseUntil
		case punctual.SettleRelease: // keeps the due time
			at, want = info.Due, d.Due
		default:
			at = info.Due
		}
	}
	if !at.Equal(want) {
		s.fail("a %s by %v that was sent again a second later set the time to %v; want %v", v, delay, at, want)
	}
}

func repeatAmend(s *harness) {
	s.push(order("a", time.Hour))
	var due []time.Time
	s.again("reschedule", func() {
		due = append(due, s.outcome(reschedule(orders, "a", time.Minute), nil, isScheduled).Due)
		s.advance(time.Second)
	})
	if !due[0].Equal(due[1]) {
		s.fail("a reschedule that was sent again set the time to %v and then %v", due[0], due[1])
	}
	s.again("cancel", func() { s.outcome(cancel(orders, "a"), nil, isScheduled) })
	s.push(order("a", time.Hour))
	s.within(storekit.Request{Key: "cancel"}, func() { s.outcome(cancel(orders, "a"), nil, isScheduled) })
	s.wantState(orders, "a", punctual.StateScheduled)
}

func repeatClaim(s *harness) {
	s.push(order("a", 0))
	s.push(order("b", 0))
	var tokens []int64
	s.again("claim", func() {
		ds := s.take(orders, 1)
		if len(ds) != 1 || ds[0].Attempt != 1 || string(ds[0].Body) != "body of "+ds[0].ID {
			s.fail("a claim of one message that is sent twice returned %v; want one, each time with its body and as attempt 1", ds)
		}
		tokens = append(tokens, ds[0].Token)
	})
	if tokens[0] != tokens[1] {
		s.fail("a claim that was sent again has token %d after %d: it leased a second time", tokens[1], tokens[0])
	}
	if ds := s.take(orders, 10); len(ds) != 1 {
		s.fail("after a claim of one of two messages that was sent twice, a claim of all returned %v; want the other one", ids(ds))
	}
}

func repeatWaiting(s *harness) {
	s.repeater()
	ctx := storekit.WithRequest(s.ctx, storekit.Request{Key: "claim"})
	c := punctual.Claim{Topics: []string{orders}, Max: 1, Wait: time.Minute}
	first, second := s.wait(ctx, c), s.wait(ctx, c)
	s.pushAll(order("a", 0), order("b", 0))
	one, err := first.result("a push")
	other, err2 := second.result("a push")
	if err != nil || err2 != nil || len(one) != 1 || len(other) != 1 || one[0].ID != other[0].ID || one[0].Token != other[0].Token {
		s.fail("two waiting claims with one key returned %v, %v and %v, %v; want the same lease", ids(one), err, ids(other), err2)
	}
	s.one(orders)
}

func repeatLapsed(s *harness) {
	s.repeater()
	s.push(order("a", 0))
	s.within(storekit.Request{Key: "claim"}, func() {
		d := s.one(orders)
		s.clock.Set(d.LeaseUntil)
		s.none(orders, "when a claim is sent again and its lease has ended")
	})
	s.one(orders)
}

func repeatNothing(s *harness) {
	s.repeater()
	s.within(storekit.Request{Key: "claim"}, func() { s.none(orders, "while there is none") })
	s.push(order("a", 0))
	s.within(storekit.Request{Key: "claim"}, func() { s.one(orders) })
}

func repeatDefinite(s *harness) {
	s.repeater()
	ended, end := context.WithCancel(storekit.WithRequest(s.ctx, storekit.Request{Key: "push"}))
	end()
	_, err := s.store.Push(ended, []punctual.NewMessage{order("a", 0)})
	s.wantErr(err, context.Canceled, "a push whose context has ended")
	s.within(storekit.Request{Key: "push"}, func() { s.push(order("a", 0)) })
}

func repeatOther(s *harness) {
	s.push(order("a", time.Hour))
	s.again("amend", func() { s.outcome(reschedule(orders, "a", time.Minute), nil, isScheduled) })
	ctx := storekit.WithRequest(s.ctx, storekit.Request{Key: "amend"})
	as, err := s.store.Amend(ctx, []punctual.Amendment{reschedule(orders, "a", time.Hour)})
	s.wantRefused(err, len(as) == 1 && as[0].Err != nil, as)
	if s.hasInspector() && !s.get(orders, "a").Due.Equal(s.now().Add(time.Minute)) {
		s.fail("a reschedule with the key of another one was made")
	}
	ctx = storekit.WithRequest(s.ctx, storekit.Request{Key: "push"})
	if rs, err := s.store.Push(ctx, []punctual.NewMessage{order("c", time.Hour)}); err != nil || rs[0].Err != nil {
		s.fail("push with a key: %v, %v", rs, err)
	}
	other := order("c", time.Hour)
	other.Body = []byte("another body")
	rs, err := s.store.Push(ctx, []punctual.NewMessage{other})
	s.wantRefused(err, len(rs) == 1 && rs[0].Err != nil, rs)
}

// wantRefused checks that a call whose key was used for another call returned ErrInvalid. item
// tells whether an item of the call has failed instead.
func (s *harness) wantRefused(err error, item bool, results any) {
	s.Helper()
	if err == nil || item {
		s.fail("a call with the key of another one returned %v, %v; want an error of the call", results, err)
	}
	s.wantErr(err, punctual.ErrInvalid, "a call with the key of another one")
}

func repeatKept(s *harness) {
	s.again("push", func() { s.push(order("a", 0)) })
	s.ack(s.one(orders))
	s.advance(s.repeater().Repeats() - time.Millisecond)
	s.within(storekit.Request{Key: "push"}, func() { s.push(order("a", 0)) })
	s.none(orders, "after a copy of a push just before its answer is forgotten")
}

func repeatLate(s *harness) {
	s.repeater()
	s.push(order("leased", 0))
	d := s.one(orders)
	s.push(order("ready", 0))
	late := storekit.Request{Key: "x", NotAfter: s.now().Add(time.Second)}
	s.advance(time.Second)
	ctx := storekit.WithRequest(s.ctx, late)
	_, err := s.store.Push(ctx, []punctual.NewMessage{order("late", 0)})
	s.wantErr(err, context.DeadlineExceeded, "a push at its NotAfter")
	ds, err := s.store.Claim(ctx, punctual.Claim{Topics: []string{orders}, Max: 10})
	s.noneWith(err, ds)
	s.wantErr(err, context.DeadlineExceeded, "a claim at its NotAfter")
	_, err = s.store.Settle(ctx, []punctual.Settlement{{Topic: orders, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck}})
	s.wantErr(err, context.DeadlineExceeded, "an ack at its NotAfter")
	_, err = s.store.Amend(ctx, []punctual.Amendment{cancel(orders, "ready")})
	s.wantErr(err, context.DeadlineExceeded, "a cancel at its NotAfter")
	s.wantState(orders, "late", punctual.StateNone)
	s.wantState(orders, "leased", punctual.StateLeased)
	s.wantState(orders, "ready", punctual.StateReady)
	s.within(storekit.Request{Key: "y", NotAfter: s.now().Add(time.Millisecond)}, func() { s.push(order("in time", 0)) })
}

func repeatLateWait(s *harness) {
	s.repeater()
	late := storekit.Request{Key: "claim", NotAfter: s.now().Add(time.Second)}
	w := s.wait(storekit.WithRequest(s.ctx, late), punctual.Claim{Topics: []string{orders}, Max: 1, Wait: time.Minute})
	for tick := time.NewTicker(time.Millisecond); ; { // the claim may not have begun to wait yet
		s.advance(time.Second)
		select {
		case <-w.done:
		case <-tick.C:
			continue
		}
		tick.Stop()
		break
	}
	_, err := w.result("its NotAfter")
	s.wantErr(err, context.DeadlineExceeded, "a claim that waited until its NotAfter")
}

func repeatAsk(s *harness) {
	s.repeater()
	ask := storekit.Request{Key: "push", NotAfter: s.now()}
	ctx := storekit.WithRequest(s.ctx, ask)
	_, err := s.store.Push(ctx, []punctual.NewMessage{order("a", 0)})
	s.wantErr(err, context.DeadlineExceeded, "asking for the answer of a push that never came")
	s.wantState(orders, "a", punctual.StateNone)
	s.within(storekit.Request{Key: "push"}, func() { s.push(order("a", 0)) })
	s.within(ask, func() { s.push(order("a", 0)) })
}

func repeatInvalid(s *harness) {
	s.repeater()
	for _, r := range []storekit.Request{{}, {Key: "a b"}, {Key: "k", NotAfter: s.now().Add(s.repeater().Repeats() + time.Second)}} {
		_, err := s.store.Push(storekit.WithRequest(s.ctx, r), []punctual.NewMessage{order("a", 0)})
		s.wantErr(err, punctual.ErrInvalid, "a push with request %+v", r)
	}
	s.wantState(orders, "a", punctual.StateNone)
}
