package storetest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storetest/compare"
)

// duplicateCases: what happens when the ID is already in use?
func duplicateCases() []testCase {
	return []testCase{
		{"keep the first in every state", p7, duplicateKeep},
		{"replace in every state", p7, duplicateReplace},
		{"replace the dead in every state", p7, duplicateReplaceDead},
		{"fail in every state", p7, duplicateFail},
		{"replace takes the lease away", p4, duplicateReplaceLeased},
		{"replace starts anew", p7, duplicateReplaceAnew},
		{"replace moves due and body in one step", p7, duplicateDebounce},
		{"kept inside one batch", p7, duplicateBatchKeep},
		{"replaced inside one batch", p7, duplicateBatchReplace},
		{"refused inside one batch", p7, duplicateBatchFail},
		{"remembered IDs", p7, duplicateRemembered},
		{"remembered for as long as asked", p7, duplicateForgotten},
		{"remembered as the message asks", p7, duplicateRememberedItself},
		{"remembered as the message asks, after all that may happen to it", p7, duplicateRememberedLater},
		{"remembered as the message asks, when the store was opened anew under its lease", p7, duplicateRememberedReopened},
		{"remembered, each as it asks, in one call", p7, duplicateRememberedMany},
		{"not remembered when dead or purged", p7, duplicateNotRemembered},
		{"free again after ack and cancel", p7, duplicateFree},
	}
}

// second returns a push of the ID that the message of a situation has. Its body and its due time
// tell it from that message.
func second(how punctual.IfExists) punctual.NewMessage {
	return punctual.NewMessage{Topic: orders, ID: x, Body: []byte("second"), Delay: 2 * time.Hour, IfExists: how}
}

func duplicateKeep(s *harness) { s.duplicateKept(punctual.IfExistsKeep) }

func duplicateReplaceDead(s *harness) { s.duplicateKept(punctual.IfExistsReplaceDead) }

// duplicateKept pushes orders/x in every situation. A message that is not dead stays. A dead one is
// replaced with IfExistsReplaceDead; with IfExistsKeep the push fails, and the error says what to
// do.
func (s *harness) duplicateKept(how punctual.IfExists) {
	s.eachSituation(func(s *harness, at situation, last punctual.Delivery) {
		var before punctual.Info
		if at.state != punctual.StateNone && s.hasInspector() {
			before = s.get(orders, x)
		}
		r := s.try(second(how))
		switch {
		case at.state == punctual.StateNone:
			s.wantPush(r, punctual.PushStored, at.name)
			return
		case at.state == punctual.StateDead && how == punctual.IfExistsReplaceDead:
			s.wantPush(r, punctual.PushReplaced, at.name)
			s.advance(2 * time.Hour)
			s.wantBody("second")
			return
		case at.state == punctual.StateDead:
			s.wantErr(r.Err, punctual.ErrDuplicate, "push of an ID whose message is dead")
			if r.Existing != punctual.StateDead || r.Status != punctual.PushNone {
				s.fail("push of an ID whose message is dead reports status %q, existing %q; want none, dead", r.Status, r.Existing)
			}
			for _, part := range []string{"dead since " + s.now().Format(time.RFC3339), "requeue", "ReplaceDead()"} {
				if !strings.Contains(r.Err.Error(), part) {
					s.fail("push of an ID whose message is dead says %q, without %q", r.Err, part)
				}
			}
			if s.hasInspector() {
				s.wantUnchanged(before, "a push was refused")
			}
			s.outcome(requeue(orders, x, 0), nil, isDead)
			s.wantBody("body of x")
			return
		}
		s.wantPush(r, punctual.PushDuplicate, at.name)
		if r.Existing != at.state {
			s.fail("a duplicate of a message that is %s reports state %q; want %q", at.name, r.Existing, at.state)
		}
		if s.hasInspector() {
			s.wantUnchanged(before, "a duplicate was pushed")
			if !r.Due.Equal(before.Due) {
				s.fail("a duplicate of a message that is %s reports due %v; want that of the message kept, %v", at.name, r.Due, before.Due)
			}
		}
		if at.state == punctual.StateLeased && at.name != isLeasedCancelled {
			s.ack(last)
		}
	})
}

// wantPush checks the result of a push of orders/x. when says in which situation its message was.
func (s *harness) wantPush(r punctual.PushResult, want punctual.PushStatus, when string) {
	s.Helper()
	if r.Err != nil || r.Status != want {
		s.fail("push of an ID whose message is %s: status %q, error %v; want %q", when, r.Status, r.Err, want)
	}
	if r.ID != x || r.Topic != orders {
		s.fail("push of orders/x reports %s/%s", r.Topic, r.ID)
	}
}

// wantUnchanged checks that a stored message is as it was before.
func (s *harness) wantUnchanged(before punctual.Info, after string) {
	s.Helper()
	if d := compare.Info(before, s.get(before.Topic, before.ID)); d != "" {
		s.fail("%s/%s, %s, changed after %s: %s", before.Topic, before.ID, before.State, after, d)
	}
}

func duplicateReplace(s *harness) {
	s.eachSituation(func(s *harness, at situation, last punctual.Delivery) {
		r := s.try(second(punctual.IfExistsReplace))
		want := punctual.PushReplaced
		if at.state == punctual.StateNone {
			want = punctual.PushStored
		}
		s.wantPush(r, want, at.name)
		if due := s.now().Add(2 * time.Hour); !r.Due.Equal(due) {
			s.fail("replacing a message that is %s reports due %v; want the new one, %v", at.name, r.Due, due)
		}
		s.none(orders, "right after the replacing push, due in two hours,")
		s.wantState(orders, x, punctual.StateScheduled)
		s.advance(2 * time.Hour)
		if d := s.one(orders); string(d.Body) != "second" || d.Attempt != 1 || len(d.Failures) != 0 {
			s.fail("replacing a message that is %s delivered body %q, attempt %d, history %v; want the second anew", at.name, d.Body, d.Attempt, d.Failures)
		}
	})
}

func duplicateFail(s *harness) {
	s.eachSituation(func(s *harness, at situation, _ punctual.Delivery) {
		var before punctual.Info
		if at.state != punctual.StateNone && s.hasInspector() {
			before = s.get(orders, x)
		}
		r := s.try(second(punctual.IfExistsFail))
		if at.state == punctual.StateNone {
			s.wantPush(r, punctual.PushStored, at.name)
			return
		}
		s.wantErr(r.Err, punctual.ErrDuplicate, "a push that fails on duplicates, of an ID whose message is %s", at.name)
		if r.Status != punctual.PushNone {
			s.fail("a refused push has status %q; want none", r.Status)
		}
		if s.hasInspector() {
			s.wantUnchanged(before, "a push was refused")
		}
	})
}

func duplicateReplaceLeased(s *harness) {
	for _, verb := range Verbs() {
		old := bringLeased(s)
		s.wantPush(s.try(second(punctual.IfExistsReplace)), punctual.PushReplaced, isLeased)
		s.wantErr(s.settleVerb(old, verb), punctual.ErrLeaseLost, "%s by the holder of a replaced message", verb)
		s.advance(2 * time.Hour)
		d := s.one(orders)
		s.wantErr(s.settleVerb(old, verb), punctual.ErrLeaseLost, "%s by the holder of a replaced message while the new one is leased", verb)
		if d.Token <= old.Token {
			s.fail("the token of the message that replaced another is %d, not above %d", d.Token, old.Token)
		}
		s.ack(d)
	}
}

func duplicateReplaceAnew(s *harness) {
	s.push(punctual.NewMessage{Topic: orders, ID: x, MaxAttempts: 3, ExpireAfter: time.Hour, Headers: map[string]string{"a": "b"}})
	s.done(s.one(orders), punctual.SettleRetry, time.Minute)
	s.advance(time.Second)
	m := second(punctual.IfExistsReplace)
	s.wantPush(s.try(m), punctual.PushReplaced, isRetried)
	s.advance(2 * time.Hour)
	d := s.one(orders)
	s.wantMessage(d.Message, m, noon.Add(time.Second), noon.Add(time.Second+2*time.Hour))
}

func duplicateDebounce(s *harness) {
	for range 20 {
		m := order(x, time.Minute)
		m.IfExists = punctual.IfExistsReplace
		s.try(m)
		s.advance(59 * time.Second)
		s.none(orders, "before the last due time of a message pushed again and again")
	}
	s.advance(time.Second)
	s.ack(s.one(orders))
	s.advance(24 * time.Hour)
	s.none(orders, "after the only copy was acked")
}

func duplicateBatchKeep(s *harness) {
	rs := s.pushAll(order(x, 0), second(punctual.IfExistsKeep))
	s.wantPush(rs[0], punctual.PushStored, isUnknown)
	s.wantPush(rs[1], punctual.PushDuplicate, isReady)
	if rs[1].Existing != punctual.StateReady || !rs[1].Due.Equal(noon) {
		s.fail("a duplicate in its own batch reports state %q, due %v; want ready, %v", rs[1].Existing, rs[1].Due, noon)
	}
	s.wantBody("body of x")
}

func duplicateBatchReplace(s *harness) {
	m := second(punctual.IfExistsReplace)
	m.Delay = 0
	rs := s.pushAll(order(x, 0), m)
	s.wantPush(rs[0], punctual.PushStored, isUnknown)
	s.wantPush(rs[1], punctual.PushReplaced, isReady)
	s.wantBody("second")
}

func duplicateBatchFail(s *harness) {
	rs := s.pushAll(order(x, 0), second(punctual.IfExistsFail))
	s.wantPush(rs[0], punctual.PushStored, isUnknown)
	s.wantErr(rs[1].Err, punctual.ErrDuplicate, "the second push of an ID in one batch")
	s.wantBody("body of x")
}

// wantBody claims the only message of orders, which must have this body, acks it, and checks that
// nothing follows within a day.
func (s *harness) wantBody(body string) {
	s.Helper()
	d := s.one(orders)
	if string(d.Body) != body {
		s.fail("the message delivered has body %q; want %q", d.Body, body)
	}
	s.ack(d)
	s.advance(24 * time.Hour)
	s.none(orders, "after the only message with this ID was acked")
}

// finishes are ways in which a message ends that a topic remembers.
func finishes() map[string]func(s *harness) {
	return map[string]func(s *harness){
		"acked":     func(s *harness) { bringAcked(s) },
		"cancelled": func(s *harness) { bringCancelled(s) },
		"cancelled while leased": func(s *harness) {
			d := bringLeasedCancelled(s)
			s.wantErr(s.settle(d, punctual.SettleRetry, 0), punctual.ErrCancelled, "retry of a cancelled message")
		},
		"dropped when it expired": func(s *harness) {
			s.push(punctual.NewMessage{Topic: orders, ID: x, ExpireAfter: time.Second, DropExpired: true})
			s.advance(time.Second)
			s.none(orders, "when its message has expired")
		},
	}
}

func duplicateRemembered(s *harness) {
	s.inspector()
	for how, finish := range finishes() {
		for _, on := range []punctual.IfExists{punctual.IfExistsKeep, punctual.IfExistsReplaceDead, punctual.IfExistsFail, punctual.IfExistsReplace} {
			s := newHarness(s.T, s.promise, s.opener)
			s.configure(orders, punctual.SettingsPatch{DedupeWindow: ptr(time.Hour)})
			finish(s)
			r := s.try(second(on))
			switch on {
			case punctual.IfExistsKeep, punctual.IfExistsReplaceDead:
				s.wantPush(r, punctual.PushDuplicate, how+" and remembered")
				if r.Existing != punctual.StateNone || !r.Due.IsZero() {
					s.fail("a duplicate of a message that was %s reports state %q, due %v; want none, zero", how, r.Existing, r.Due)
				}
			case punctual.IfExistsFail:
				s.wantErr(r.Err, punctual.ErrDuplicate, "a push of an ID that was %s and is remembered", how)
			case punctual.IfExistsReplace:
				s.wantPush(r, punctual.PushStored, how+" and remembered")
				s.advance(2 * time.Hour)
				s.wantBody("second")
				continue
			}
			s.advance(3 * time.Hour)
			s.none(orders, "after the second push was refused")
		}
	}
}

func duplicateForgotten(s *harness) {
	s.configure(orders, punctual.SettingsPatch{DedupeWindow: ptr(time.Hour)})
	bringAcked(s)
	s.advance(time.Hour - time.Millisecond)
	s.wantPush(s.try(second(punctual.IfExistsKeep)), punctual.PushDuplicate, "acked 1 ms less than an hour ago")
	s.advance(2 * time.Millisecond)
	s.wantPush(s.try(second(punctual.IfExistsKeep)), punctual.PushStored, "acked more than an hour ago")
}

// duplicateRememberedItself: Remember takes the place of the topic's window, which may be none,
// shorter or longer.
func duplicateRememberedItself(s *harness) {
	for _, window := range []time.Duration{0, time.Minute, 3 * time.Hour} {
		for how, finish := range finishes() {
			s := newHarness(s.T, s.promise, s.opener)
			if window > 0 {
				s.configure(orders, punctual.SettingsPatch{DedupeWindow: &window})
			}
			s.remember = time.Hour
			finish(s)
			s.remember = 0
			if s.opener.reopen != nil {
				s.reopen()
			}
			s.advance(time.Hour - time.Millisecond)
			when := fmt.Sprintf("%s 1 ms less than an hour ago, in a topic with a window of %v,", how, window)
			r := s.try(second(punctual.IfExistsKeep))
			s.wantPush(r, punctual.PushDuplicate, when)
			if r.Existing != punctual.StateNone || !r.Due.IsZero() {
				s.fail("a duplicate of a message that was %s reports state %q, due %v; want none, zero", when, r.Existing, r.Due)
			}
			s.wantErr(s.try(second(punctual.IfExistsFail)).Err, punctual.ErrDuplicate, "a push of an ID that was %s", when)
			s.none(orders, "after the second push was refused")
			s.checkSound()
			s.advance(2 * time.Millisecond)
			when = fmt.Sprintf("%s more than an hour ago, in a topic with a window of %v,", how, window)
			s.wantPush(s.try(second(punctual.IfExistsKeep)), punctual.PushStored, when)
			s.checkSound()
		}
	}
}

// duplicateRememberedLater: a message keeps its Remember whatever happens to it before it finishes.
// The message that replaces it has a Remember of its own, and a message that is removed leaves no
// remembered ID.
func duplicateRememberedLater(s *harness) {
	kept := map[string]func(s *harness){
		"retried": func(s *harness) {
			s.done(s.one(orders), punctual.SettleRetry, time.Second)
			s.advance(time.Second)
		},
		"snoozed": func(s *harness) {
			s.done(s.one(orders), punctual.SettleSnooze, time.Second)
			s.advance(time.Second)
		},
		"released":     func(s *harness) { s.done(s.one(orders), punctual.SettleRelease, 0) },
		"extended":     func(s *harness) { s.done(s.one(orders), punctual.SettleExtend, time.Minute); s.advance(time.Minute) },
		"not answered": func(s *harness) { s.clock.Set(s.one(orders).LeaseUntil) },
		"rescheduled":  func(s *harness) { s.outcome(reschedule(orders, x, time.Minute), nil, isReady); s.advance(time.Minute) },
		"discarded, and requeued": func(s *harness) {
			s.done(s.one(orders), punctual.SettleDiscard, 0)
			s.outcome(requeue(orders, x, 0), nil, isDead)
		},
		"pushed again": func(s *harness) { s.wantPush(s.try(second(punctual.IfExistsKeep)), punctual.PushDuplicate, isReady) },
	}
	ends := map[string]func(s *harness, what string){
		"acked": func(s *harness, what string) {
			d := s.one(orders)
			if d.Remember != time.Hour {
				s.fail("a message that was %s is delivered with Remember %v; want %v", what, d.Remember, time.Hour)
			}
			s.ack(d)
		},
		"cancelled": func(s *harness, what string) { s.outcome(cancel(orders, x), nil, what) },
	}
	for what, happen := range kept {
		for end, finish := range ends {
			s := newHarness(s.T, s.promise, s.opener)
			m := order(x, 0)
			m.Remember = time.Hour
			s.push(m)
			happen(s)
			s.checkSound()
			finish(s, what)
			s.advance(time.Hour - time.Millisecond)
			s.wantPush(s.try(second(punctual.IfExistsKeep)), punctual.PushDuplicate, what+", then "+end+" less than an hour ago")
			s.advance(2 * time.Millisecond)
			s.wantPush(s.try(second(punctual.IfExistsKeep)), punctual.PushStored, what+", then "+end+" more than an hour ago")
		}
	}

	// The message that replaces another one has a Remember of its own.
	for _, first := range []time.Duration{0, time.Hour} {
		s := newHarness(s.T, s.promise, s.opener)
		m := order(x, 0)
		m.Remember = first
		s.push(m)
		m.IfExists, m.Remember = punctual.IfExistsReplace, time.Hour-first
		s.wantPush(s.try(m), punctual.PushReplaced, isReady)
		s.ack(s.one(orders))
		want := punctual.PushDuplicate
		if first > 0 {
			want = punctual.PushStored
		}
		s.wantPush(s.try(second(punctual.IfExistsKeep)), want, fmt.Sprintf("pushed with Remember %v, replaced by one with %v, and acked", first, m.Remember))
	}

	// A message that replaces another one in the same call has a Remember of its own, too, also
	// while the topic has another message that was retried.
	s.push(order("other", 0))
	s.done(s.one(orders), punctual.SettleRetry, 24*time.Hour)
	for _, first := range []time.Duration{0, time.Hour} {
		a, b := order(x, 0), second(punctual.IfExistsReplace)
		a.Remember, b.Remember, b.Delay = first, time.Hour-first, 0
		rs := s.pushAll(a, b)
		s.wantPush(rs[0], punctual.PushStored, isUnknown)
		s.wantPush(rs[1], punctual.PushReplaced, isReady)
		d := s.one(orders)
		if d.Remember != time.Hour-first {
			s.fail("a message with Remember %v that replaced one with %v in its call is delivered with %v", b.Remember, a.Remember, d.Remember)
		}
		s.ack(d)
		if first > 0 {
			break // the ID is not remembered after this order, so there is no need to let an hour pass
		}
		s.advance(2 * time.Hour)
	}
	s.outcome(remove(orders, "other"), nil, isRetried)

	// A message that died and was removed has not finished, so its ID is not remembered.
	m := order(x, 0)
	m.Remember = time.Hour
	for range 2 {
		s.push(m)
		s.done(s.one(orders), punctual.SettleDiscard, 0)
		s.outcome(remove(orders, x), nil, isDead)
	}
	s.push(m)
	if s.hasInspector() {
		s.purge(punctual.PurgeQuery{Topic: orders}, 1)
		s.push(m)
	}
}

// duplicateRememberedReopened: an ack under a lease from before the store was opened anew remembers
// the ID as any other ack does.
func duplicateRememberedReopened(s *harness) {
	for i, window := range []time.Duration{time.Hour, 0} {
		id := fmt.Sprint("id-", i)
		m := order(id, 0)
		m.Remember = window
		s.push(m)
		d := s.one(orders)
		s.reopen()
		s.ack(d)
		s.reopen()
		want := punctual.PushDuplicate
		if window == 0 {
			want = punctual.PushStored
		}
		m.Delay = time.Hour
		if r := s.try(m); r.Err != nil || r.Status != want {
			s.fail("push of an ID that was acked under a lease from before an open, with Remember %v: status %q, error %v; want %q", window, r.Status, r.Err, want)
		}
		s.checkSound()
	}
}

// duplicateRememberedMany: messages that one call finishes are remembered each for its own time.
func duplicateRememberedMany(s *harness) {
	windows := []time.Duration{0, time.Minute, 0, time.Hour, 2 * time.Hour, 0}
	push := func(id int, how punctual.IfExists) punctual.NewMessage {
		return punctual.NewMessage{Topic: orders, ID: fmt.Sprint(id), IfExists: how, Remember: windows[id], Delay: 24 * time.Hour}
	}
	var ms []punctual.NewMessage
	for id := range windows {
		ms = append(ms, push(id, punctual.IfExistsKeep))
		ms[id].Delay = 0
	}
	for i, r := range s.pushAll(ms...) {
		if r.Err != nil || r.Status != punctual.PushStored {
			s.fail("message %d: status %q, error %v; want stored", i, r.Status, r.Err)
		}
	}
	var acks []punctual.Settlement
	for _, d := range s.take(orders, len(ms)) {
		acks = append(acks, punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck})
	}
	if len(acks) != len(ms) {
		s.fail("%d of %d messages were delivered", len(acks), len(ms))
	}
	errs, err := s.store.Settle(s.ctx, acks)
	if err := errors.Join(append(errs, err)...); err != nil {
		s.fail("ack of %d messages: %v", len(acks), err)
	}
	s.checkSound()
	s.advance(30 * time.Minute)
	for id, window := range windows {
		want := punctual.PushStored
		if window > 30*time.Minute {
			want = punctual.PushDuplicate
		}
		if r := s.try(push(id, punctual.IfExistsKeep)); r.Err != nil || r.Status != want {
			s.fail("half an hour after the ack of a message with Remember %v, a push of its ID: status %q, error %v; want %q", window, r.Status, r.Err, want)
		}
	}
}

func duplicateNotRemembered(s *harness) {
	s.configure(orders, punctual.SettingsPatch{DedupeWindow: ptr(time.Hour)})
	bringReady(s)
	s.purge(punctual.PurgeQuery{Topic: orders}, 1)
	s.wantPush(s.try(order(x, 0)), punctual.PushStored, "purged")
	s.done(s.one(orders), punctual.SettleDiscard, 0)
	s.purge(punctual.PurgeQuery{Topic: orders, State: punctual.StateDead}, 1)
	s.wantPush(s.try(order(x, 0)), punctual.PushStored, "purged when dead")
}

func duplicateFree(s *harness) {
	for range 3 {
		bringAcked(s)
		bringCancelled(s)
	}
	s.none(orders, "after all were acked or cancelled")
}
