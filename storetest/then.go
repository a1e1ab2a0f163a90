package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest/compare"
)

// thenCases: are a settlement and its follow-ups one step?
func thenCases() []testCase {
	return []testCase{
		{"each verb stores them", p13, thenEachVerb},
		{"each verb, each IfExists, in every state of the ID", p7, thenEverywhere},
		{"the message's own ID", p7, thenItself},
		{"the message's own ID, of a topic that remembers", p7, thenItselfRemembered},
		{"the message's own ID, with a condition", p7, thenItselfIfDue},
		{"each refusal, with each verb", p13, thenRefused},
		{"whichever of several is refused", p13, thenRefusedAmong},
		{"paused pushes", p13, thenPaused},
		{"with a stale token", p4, thenStale},
		{"after the lease ran out", p4, thenLate},
		{"of a message cancelled under its lease", p5, thenCancelled},
		{"of a snooze beyond the last due time", p9, thenBeyond},
		{"verbs that have none", p13, thenOtherVerbs},
		{"as many as allowed", p13, thenBounds},
		{"as large as allowed", p13, thenLarge},
		{"the same ID twice", p13, thenSameID},
		{"all that a message may have", p1, thenWhole},
		{"delays count from the settlement", p2, thenDelays},
		{"without IDs", p7, thenNamed},
		{"without IDs in a call of many, sent again", p7, thenNamedMany},
		{"items of a call in order", p13, thenInOrder},
		{"behind an item that is refused", p13, thenBehindRefused},
		{"before a later item for the message", p4, thenBeforeLater},
		{"items of a call in order across topics", p13, thenInOrderAcross},
		{"results of a call", p13, thenBatch},
		{"an ack in the same call loses its lease", p4, thenTakesLease},
		{"creates its topic", p13, thenCreates},
		{"from a companion to its topic", p13, thenFromCompanion},
		{"wakes a claim that waits", p11, thenWakes},
		{"wakes a claim when it is due", p11, thenWakesDue},
		{"finished record and history beside it", p6, thenBeside},
		{"in any topic", p13, thenAnywhere},
		{"out of reach", p13, thenOutOfReach},
		{"opened anew", p1, thenReopened},
		{"a call that is sent again", p13, thenRepeated},
		{"a chain", p1, thenChain},
	}
}

// reach returns where the follow-ups of a settlement may go in the store.
func (s *harness) reach() storekit.Reach { return s.abilities().Follow }

// follows skips the case when the store reaches less far than need.
func (s *harness) follows(need storekit.Reach) {
	s.Helper()
	if r := s.reach(); r < need {
		s.Skipf("skipped: the case needs follow-ups in reach %q, and the store reaches %q", need, r)
	}
}

// thenVerbs are the verbs that may have follow-ups.
func thenVerbs() []punctual.Verb {
	return []punctual.Verb{punctual.SettleAck, punctual.SettleSnooze, punctual.SettleDiscard}
}

// thenState returns the state of a message after settleVerb has settled it by v, which is one of
// thenVerbs.
func thenState(v punctual.Verb) punctual.State {
	switch v {
	case punctual.SettleSnooze:
		return punctual.StateScheduled
	case punctual.SettleDiscard:
		return punctual.StateDead
	}
	return punctual.StateNone
}

// Follow-ups of orders/x have its stem, so that every store that has follow-ups can store them.
const (
	bill = x + "~bill"
	note = x + "~note"
)

// billed is a follow-up of orders/x for its companion.
func billed(delay time.Duration) punctual.NewMessage {
	return punctual.NewMessage{Topic: bills, ID: bill, Body: []byte("bill"), Delay: delay}
}

func noted(delay time.Duration) punctual.NewMessage {
	return punctual.NewMessage{Topic: notes, ID: note, Body: []byte("note"), Delay: delay}
}

// followed returns the settlement of d by v with follow-ups. Its delay is the one that settleVerb
// gives the verb.
func followed(d punctual.Delivery, v punctual.Verb, then ...punctual.NewMessage) punctual.Settlement {
	x := punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: v, Then: then}
	if v == punctual.SettleSnooze || v == punctual.SettleRetry || v == punctual.SettleExtend {
		x.Delay = time.Minute
	}
	return x
}

// follow settles with follow-ups and must succeed.
func (s *harness) follow(d punctual.Delivery, v punctual.Verb, then ...punctual.NewMessage) {
	s.Helper()
	if err := s.settleAs(followed(d, v, then...)); err != nil {
		s.fail("%s of %s/%s with %d follow-ups: unexpected error: %v", v, d.Topic, d.ID, len(then), err)
	}
}

// unfollowed makes a settlement with follow-ups, which must fail with want and change nothing: not
// the message, not its lease, not the counts of the topics. refused is the number, from 1, of the
// follow-up that the error must name; 0 if it is to name none.
func (s *harness) unfollowed(x punctual.Settlement, want error, refused int, what string) {
	s.Helper()
	before, topics := s.snapshot(x.Topic, x.ID)
	err := s.settleAs(x)
	s.wantErr(err, want, "%s of %s/%s with follow-ups, %s", x.Verb, x.Topic, x.ID, what)
	if !punctual.Definite(err) {
		s.fail("%s with follow-ups, %s: the error %q is not definite", x.Verb, what, err)
	}
	if name := fmt.Sprintf("follow-up %d: ", refused); refused > 0 && !strings.HasPrefix(err.Error(), name) {
		s.fail("%s with follow-ups, %s: the error is %q; want it to begin with %q", x.Verb, what, err, name)
	}
	after, topicsAfter := s.snapshot(x.Topic, x.ID)
	if d := compare.Info(before, after); d != "" {
		s.fail("%s of %s/%s with follow-ups, %s, was refused and changed the message: %s", x.Verb, x.Topic, x.ID, what, d)
	}
	if topics != topicsAfter {
		s.fail("%s with follow-ups, %s, was refused and changed the topics from %s to %s", x.Verb, what, topics, topicsAfter)
	}
}

// snapshot returns a message and, as a text, the counts of all topics, where the store has an
// Inspector.
func (s *harness) snapshot(topic, id string) (punctual.Info, string) {
	s.Helper()
	i, err := punctual.As[punctual.Inspector](s.store)
	if err != nil {
		return punctual.Info{}, ""
	}
	all, err := i.Topics(s.ctx)
	if err != nil {
		s.fail("Topics: unexpected error: %v", err)
	}
	var text strings.Builder
	for _, t := range all {
		fmt.Fprintf(&text, "[%s: %d %d %d %d %v] ", t.Topic, t.Scheduled, t.Ready, t.Leased, t.Dead, t.NextDue)
	}
	info, err := i.Get(s.ctx, topic, id)
	if err != nil && !errors.Is(err, punctual.ErrNotFound) {
		s.fail("Get of %s/%s: unexpected error: %v", topic, id, err)
	}
	return info, text.String()
}

// eachThenVerb runs f for each verb that may have follow-ups, on stores of their own where orders/x
// is leased.
func (s *harness) eachThenVerb(f func(s *harness, v punctual.Verb, d punctual.Delivery)) {
	s.Helper()
	s.follows(storekit.ReachFamily)
	for i, v := range thenVerbs() {
		t := s
		if i > 0 {
			t = newHarness(s.T, s.promise, s.opener)
		}
		f(t, v, bringLeased(t))
		if !t.Failed() && i > 0 {
			t.checkSound()
		}
	}
}

func thenEachVerb(s *harness) {
	s.eachThenVerb(func(s *harness, v punctual.Verb, d punctual.Delivery) {
		s.follow(d, v, billed(time.Hour), noted(0))
		s.wantState(orders, x, thenState(v))
		s.wantState(bills, bill, punctual.StateScheduled)
		s.wantState(notes, note, punctual.StateReady)
		if n := s.one(notes); n.ID != note || string(n.Body) != "note" || n.Attempt != 1 || !n.Due.Equal(noon) {
			s.fail("behind %s the follow-up came as %s with body %q, attempt %d, due %v", v, n.ID, n.Body, n.Attempt, n.Due)
		}
		s.wantErr(s.settleVerb(d, v), punctual.ErrLeaseLost, "%s again", v)
		s.wantErr(s.settleAs(followed(d, v, noted(0))), punctual.ErrLeaseLost, "%s with a follow-up again", v)
		s.advance(time.Hour)
		s.ack(s.one(bills))
		if v == punctual.SettleSnooze {
			if again := s.one(orders); again.Attempt != 1 || !again.Due.Equal(noon.Add(time.Minute)) {
				s.fail("snoozed with follow-ups for a minute, a message came as attempt %d, due %v", again.Attempt, again.Due)
			}
		} else {
			s.none(orders, "an hour after "+v.String()+" with follow-ups")
		}
	})
}

// thenEverywhere: a follow-up does with its ID what a push would do, in every situation of the
// message that has the ID. The settled message is another one, in a companion.
func thenEverywhere(s *harness) {
	s.follows(storekit.ReachFamily)
	hows := []punctual.IfExists{punctual.IfExistsKeep, punctual.IfExistsFail, punctual.IfExistsReplaceDead, punctual.IfExistsReplace}
	for _, v := range thenVerbs() {
		for _, at := range situations() {
			var t *harness // nil: the last follow-up has changed orders/x
			var last punctual.Delivery
			for i, how := range hows {
				if t == nil {
					t = newHarness(s.T, s.promise, s.opener)
					last = at.bring(t)
				}
				id := fmt.Sprintf("%s~%d", x, i)
				t.push(punctual.NewMessage{Topic: bills, ID: id})
				d := t.one(bills)
				if t.thenMeets(d, v, how, at, last) {
					t.checkSound()
					t = nil
				}
			}
		}
	}
}

// thenMeets settles d with a follow-up whose ID is that of orders/x, and reports whether the
// follow-up is stored.
func (s *harness) thenMeets(d punctual.Delivery, v punctual.Verb, how punctual.IfExists, at situation, last punctual.Delivery) bool {
	s.Helper()
	what := fmt.Sprintf("whose ID is that of a message that is %s (IfExists %d)", at.name, how)
	live, dead := at.state != punctual.StateNone && at.state != punctual.StateDead, at.state == punctual.StateDead
	replaces := how == punctual.IfExistsReplace || dead && how == punctual.IfExistsReplaceDead
	switch {
	case live && how == punctual.IfExistsFail, dead && !replaces:
		s.wantAsBefore(at, func() { s.unfollowed(followed(d, v, second(how)), punctual.ErrDuplicate, 1, what) })
		s.follow(d, v) // the lease still holds
		return false
	case live && !replaces:
		s.wantAsBefore(at, func() { s.follow(d, v, second(how)) })
		s.wantState(bills, d.ID, thenState(v))
		return false
	}
	s.follow(d, v, second(how))
	s.wantState(bills, d.ID, thenState(v))
	s.wantState(orders, x, punctual.StateScheduled)
	if last.Token != 0 {
		s.wantErr(s.settle(last, punctual.SettleAck, 0), punctual.ErrLeaseLost, "ack by the last holder of a message in whose place a follow-up came, %s", what)
	}
	s.none(orders, "right after a follow-up that is due in two hours,")
	s.advance(2 * time.Hour)
	s.wantBody("second")
	return true
}

// again returns a follow-up of orders/x with the same topic and ID.
func again(how punctual.IfExists) punctual.NewMessage {
	return punctual.NewMessage{Topic: orders, ID: x, Body: []byte("again"), Delay: time.Hour, IfExists: how}
}

// thenItself: for a follow-up with the topic and the ID of the settled message the ID is free after
// an ack, has a dead message after a discard, and a scheduled one after a snooze.
func thenItself(s *harness) {
	s.follows(storekit.ReachFamily)
	for _, v := range thenVerbs() {
		for _, how := range []punctual.IfExists{punctual.IfExistsKeep, punctual.IfExistsReplace, punctual.IfExistsFail, punctual.IfExistsReplaceDead} {
			t := newHarness(s.T, s.promise, s.opener)
			d := bringLeased(t)
			t.advance(time.Second)
			stored := v == punctual.SettleAck || how == punctual.IfExistsReplace || v == punctual.SettleDiscard && how == punctual.IfExistsReplaceDead
			refused := !stored && (v == punctual.SettleDiscard || how == punctual.IfExistsFail)
			t.thenItself(d, v, again(how), stored, refused, fmt.Sprintf("itself (IfExists %d)", how))
		}
	}
}

// thenItself settles orders/x with the follow-up m, which has the same topic and ID. stored tells
// whether m must be stored, and refused whether the settlement must fail.
func (s *harness) thenItself(d punctual.Delivery, v punctual.Verb, m punctual.NewMessage, stored, refused bool, what string) {
	s.Helper()
	switch {
	case refused:
		s.unfollowed(followed(d, v, m), punctual.ErrDuplicate, 1, what)
		s.ack(d)
		return
	case !stored:
		s.follow(d, v, m)
		s.wantState(orders, x, thenState(v))
		s.advance(time.Hour)
		if v == punctual.SettleSnooze {
			s.wantBody("body of x")
		} else {
			s.none(orders, "behind "+v.String()+" with a follow-up that was not stored")
		}
		return
	}
	s.follow(d, v, m)
	s.wantState(orders, x, punctual.StateScheduled)
	s.wantErr(s.settle(d, punctual.SettleAck, 0), punctual.ErrLeaseLost, "ack with the token before %s with a follow-up, %s", v, what)
	s.advance(time.Hour - time.Millisecond)
	s.none(orders, "1 ms before the follow-up is due")
	s.advance(time.Millisecond)
	e := s.one(orders)
	if string(e.Body) != "again" || e.Attempt != 1 || len(e.Failures) != 0 || e.Token <= d.Token || !e.FirstDue.Equal(s.now()) {
		s.fail("%s, %s: the follow-up came with body %q, attempt %d, %d failures, token %d, first due %v; want \"again\", 1, none, above %d, now",
			v, what, e.Body, e.Attempt, len(e.Failures), e.Token, e.FirstDue, d.Token)
	}
}

// thenItselfRemembered: after an ack of a message whose ID is remembered, the ID is in use for a
// follow-up with the same ID.
func thenItselfRemembered(s *harness) {
	s.follows(storekit.ReachFamily)
	for _, topics := range []bool{false, true} {
		for _, how := range []punctual.IfExists{punctual.IfExistsKeep, punctual.IfExistsReplace, punctual.IfExistsFail, punctual.IfExistsReplaceDead} {
			t := newHarness(s.T, s.promise, s.opener)
			if topics {
				t.configure(orders, punctual.SettingsPatch{DedupeWindow: ptr(24 * time.Hour)})
			} else {
				t.remember = 24 * time.Hour
			}
			stored := how == punctual.IfExistsReplace
			d := bringLeased(t)
			t.thenItself(d, punctual.SettleAck, again(how), stored, how == punctual.IfExistsFail, fmt.Sprintf("itself, remembered (IfExists %d)", how))
			if !stored {
				t.wantPush(t.try(order(x, 0)), punctual.PushDuplicate, "acked and remembered")
			}
		}
	}
}

func thenItselfIfDue(s *harness) {
	s.follows(storekit.ReachFamily)
	for _, v := range thenVerbs() {
		t := newHarness(s.T, s.promise, s.opener)
		d := bringLeased(t)
		behind := map[punctual.Verb]time.Time{punctual.SettleSnooze: noon.Add(time.Minute), punctual.SettleDiscard: noon}[v]
		m := again(punctual.IfExistsReplace)
		for _, m.IfDue = range []time.Time{noon.Add(-time.Minute), noon, noon.Add(time.Minute)} {
			if !m.IfDue.Equal(behind) {
				t.unfollowed(followed(d, v, m), punctual.ErrChanged, 1, fmt.Sprintf("itself if it is due %v", m.IfDue))
			}
		}
		if behind.IsZero() {
			t.ack(d)
			continue
		}
		m.IfDue = behind
		t.thenItself(d, v, m, true, false, "itself if it is due as the settlement leaves it")
	}
}

// badFollowUp is a follow-up that is refused.
type badFollowUp struct {
	what string
	want error
	m    punctual.NewMessage
}

// badFollowUps returns follow-ups of orders/x that are refused. They need the message
// orders/x~taken, which is due in an hour.
func badFollowUps() []badFollowUp {
	taken := punctual.NewMessage{Topic: orders, ID: x + "~taken"}
	fails, changed := taken, taken
	fails.IfExists = punctual.IfExistsFail
	changed.IfExists, changed.IfDue = punctual.IfExistsReplace, noon
	gone := billed(0)
	gone.IfExists, gone.IfDue = punctual.IfExistsReplace, noon
	conditional := billed(0)
	conditional.IfDue = noon
	negative := billed(-1)
	beyond := billed(0)
	beyond.Due = limits.MaxDue.Add(time.Millisecond)
	both := billed(time.Second)
	both.Due = noon
	early := billed(0)
	early.Due = time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)
	large := billed(0)
	large.Body = make([]byte, limits.DefaultMaxBody+1)
	headers := billed(0)
	headers.Headers = map[string]string{"k": strings.Repeat("v", limits.MaxHeaderBytes)}
	return []badFollowUp{
		{"its ID is in use", punctual.ErrDuplicate, fails},
		{"due at another instant", punctual.ErrChanged, changed},
		{"with a condition and not stored", punctual.ErrChanged, gone},
		{"with a condition and no replacement", punctual.ErrInvalid, conditional},
		{"without a topic", punctual.ErrInvalid, punctual.NewMessage{ID: bill}},
		{"with a bad topic", punctual.ErrInvalid, punctual.NewMessage{Topic: "a b"}},
		{"with a bad ID", punctual.ErrInvalid, punctual.NewMessage{Topic: bills, ID: strings.Repeat("i", limits.MaxIDBytes+1)}},
		{"with a negative delay", punctual.ErrInvalid, negative},
		{"due beyond the end of time", punctual.ErrInvalid, beyond},
		{"due before the year 1", punctual.ErrInvalid, early},
		{"with a due time and a delay", punctual.ErrInvalid, both},
		{"with a large body", punctual.ErrTooLarge, large},
		{"with large headers", punctual.ErrTooLarge, headers},
		{"with negative attempts", punctual.ErrInvalid, punctual.NewMessage{Topic: bills, ID: bill, MaxAttempts: -1}},
		{"with an unknown IfExists", punctual.ErrInvalid, punctual.NewMessage{Topic: bills, ID: bill, IfExists: 99}},
	}
}

// thenRefused: each refusal leaves all as it is, and the holder goes on under its lease.
func thenRefused(s *harness) {
	s.eachThenVerb(func(s *harness, v punctual.Verb, d punctual.Delivery) {
		s.push(order(x+"~taken", time.Hour))
		for _, bad := range badFollowUps() {
			s.unfollowed(followed(d, v, bad.m), bad.want, 1, bad.what)
		}
		s.done(d, punctual.SettleExtend, time.Minute)
		s.wantState(bills, bill, punctual.StateNone)
		s.follow(d, v, billed(0))
		s.one(bills)
	})
}

// thenRefusedAmong: when one follow-up is refused, those before and after it are not stored either.
func thenRefusedAmong(s *harness) {
	s.eachThenVerb(func(s *harness, v punctual.Verb, d punctual.Delivery) {
		s.push(order(x+"~taken", time.Hour))
		good := []punctual.NewMessage{noted(0), order(x+"~1", 0), {Topic: notes}}
		for _, bad := range badFollowUps() {
			for place := range len(good) + 1 {
				then := append(append(append([]punctual.NewMessage{}, good[:place]...), bad.m), good[place:]...)
				s.unfollowed(followed(d, v, then...), bad.want, place+1, bad.what)
			}
		}
		for _, topic := range []string{notes, bills} {
			s.none(topic, "behind follow-ups that were refused")
		}
		s.follow(d, v, good...)
		if ds := s.take(notes, 10); len(ds) != 2 {
			s.fail("two follow-ups for one companion, stored at last, came as %v", ids(ds))
		}
	})
}

// thenPaused: a topic whose pushes are paused refuses follow-ups, too, before it is asked whether
// their ID is in use. Its companions still take follow-ups.
func thenPaused(s *harness) {
	s.follows(storekit.ReachFamily)
	s.inspector()
	s.push(punctual.NewMessage{Topic: bills, ID: bill})
	s.push(order(x, time.Hour))
	d := s.one(bills)
	s.configure(orders, punctual.SettingsPatch{PushPaused: ptr(true)})
	for _, v := range thenVerbs() {
		for _, how := range []punctual.IfExists{punctual.IfExistsKeep, punctual.IfExistsReplace, punctual.IfExistsFail} {
			s.unfollowed(followed(d, v, second(how)), punctual.ErrPaused, 1, "for a topic whose pushes are paused, with an ID that is in use")
		}
		s.unfollowed(followed(d, v, noted(0), order(x+"~new", 0)), punctual.ErrPaused, 2, "the second for a topic whose pushes are paused")
	}
	s.follow(d, punctual.SettleAck, noted(0))
	s.one(notes)
	s.configure(orders, punctual.SettingsPatch{PushPaused: ptr(false)})
	s.push(punctual.NewMessage{Topic: bills, ID: bill})
	s.follow(s.one(bills), punctual.SettleAck, order(x+"~new", 0))
	s.one(orders)
}

// thenStale: a settlement whose token is not the current one stores no follow-ups.
func thenStale(s *harness) {
	s.follows(storekit.ReachFamily)
	for name, end := range map[string]func(s *harness, d punctual.Delivery){
		"acked":         func(s *harness, d punctual.Delivery) { s.ack(d) },
		"retried":       func(s *harness, d punctual.Delivery) { s.done(d, punctual.SettleRetry, 0) },
		"discarded":     func(s *harness, d punctual.Delivery) { s.done(d, punctual.SettleDiscard, 0) },
		"replaced":      func(s *harness, _ punctual.Delivery) { s.try(second(punctual.IfExistsReplace)) },
		"deleted":       func(s *harness, _ punctual.Delivery) { s.outcome(remove(orders, x), nil, isLeased) },
		"claimed again": func(s *harness, d punctual.Delivery) { s.clock.Set(d.LeaseUntil); s.one(orders) },
	} {
		t := newHarness(s.T, s.promise, s.opener)
		d := bringLeased(t)
		end(t, d)
		for _, v := range thenVerbs() {
			t.unfollowed(followed(d, v, billed(0), noted(0)), punctual.ErrLeaseLost, 0, "of a message that was "+name)
			t.unfollowed(followed(d, v, again(punctual.IfExistsReplace)), punctual.ErrLeaseLost, 0, "itself, of a message that was "+name)
			wrong := followed(d, v, billed(0))
			wrong.Token += 1000
			t.unfollowed(wrong, punctual.ErrLeaseLost, 0, "with a token that there never was")
			wrong.ID = x + "~unknown"
			t.unfollowed(wrong, punctual.ErrLeaseLost, 0, "of a message that there is not")
		}
		t.advance(24 * time.Hour)
		t.none(bills, "a day later")
		t.none(notes, "a day later")
		t.checkSound()
	}
}

// thenLate: when the lease has run out, the token is still the current one, so that a settlement
// with follow-ups succeeds.
func thenLate(s *harness) {
	s.eachThenVerb(func(s *harness, v punctual.Verb, d punctual.Delivery) {
		s.clock.Set(d.LeaseUntil.Add(time.Second))
		s.follow(d, v, billed(0))
		s.one(bills)
		s.wantState(orders, x, thenState(v))
	})
}

// thenCancelled: after a cancel under the lease an ack and a discard store their follow-ups as
// without the cancel. A snooze ends the message and stores none.
func thenCancelled(s *harness) {
	s.eachThenVerb(func(s *harness, v punctual.Verb, d punctual.Delivery) {
		s.outcome(cancel(orders, x), punctual.ErrLeased, isLeased)
		err := s.settleAs(followed(d, v, billed(0), again(punctual.IfExistsReplace)))
		if v == punctual.SettleSnooze {
			s.wantErr(err, punctual.ErrCancelled, "snooze with follow-ups of a message that was cancelled")
			s.wantState(orders, x, punctual.StateNone)
			s.none(bills, "behind a snooze of a message that was cancelled")
			return
		}
		s.wantErr(err, nil, "%s with follow-ups of a message that was cancelled", v)
		s.one(bills)
		s.advance(time.Hour)
		s.wantBody("again")
	})
}

func thenBeyond(s *harness) {
	s.follows(storekit.ReachFamily)
	s.clock.Set(limits.MaxDue.Add(-time.Hour))
	s.push(punctual.NewMessage{Topic: orders, ID: x})
	d := s.one(orders)
	snooze := followed(d, punctual.SettleSnooze, billed(0))
	snooze.Delay = time.Hour + time.Millisecond
	s.unfollowed(snooze, punctual.ErrInvalid, 0, "to beyond the last due time")
	s.unfollowed(followed(d, punctual.SettleAck, noted(0), billed(time.Hour+time.Millisecond)), punctual.ErrInvalid, 2, "the second delayed beyond the last due time")
	s.follow(d, punctual.SettleAck, billed(time.Hour))
	s.wantState(bills, bill, punctual.StateScheduled)
}

func thenOtherVerbs(s *harness) {
	d := bringLeased(s)
	for _, v := range []punctual.Verb{punctual.SettleRetry, punctual.SettleRelease, punctual.SettleExtend} {
		s.unfollowed(followed(d, v, billed(0)), punctual.ErrInvalid, 0, "which it may not have")
	}
	retry := followed(d, punctual.SettleRetry, billed(0))
	retry.Delay = punctual.UseBackoff
	s.unfollowed(retry, punctual.ErrInvalid, 0, "which it may not have")
	s.ack(d)
}

func thenBounds(s *harness) {
	s.eachThenVerb(func(s *harness, v punctual.Verb, d punctual.Delivery) {
		var many []punctual.NewMessage
		for i := range limits.MaxThen + 1 {
			m := billed(0)
			m.ID = fmt.Sprintf("%s~%d", x, i)
			many = append(many, m)
		}
		s.unfollowed(followed(d, v, many...), punctual.ErrInvalid, 0, "one more than allowed")
		s.follow(d, v, many[:limits.MaxThen]...)
		got := make(map[string]bool)
		for range limits.MaxThen {
			for _, b := range s.take(bills, limits.MaxThen) {
				got[b.ID] = true
			}
		}
		if len(got) != limits.MaxThen {
			s.Fatalf("%s: of %d follow-ups %d were delivered", p1, limits.MaxThen, len(got))
		}
	})
}

func thenLarge(s *harness) {
	s.follows(storekit.ReachFamily)
	d := bringLeased(s)
	const n = limits.MaxThenBytes / limits.DefaultMaxBody
	var large []punctual.NewMessage
	for i := range n + 1 {
		m := billed(0)
		m.ID = fmt.Sprintf("%s~%d", x, i)
		m.Body = bytes.Repeat([]byte{byte(i)}, limits.DefaultMaxBody-100)
		large = append(large, m)
	}
	s.unfollowed(followed(d, punctual.SettleAck, large...), punctual.ErrTooLarge, 0, "of more bytes than allowed")
	s.follow(d, punctual.SettleAck, large[:n]...)
	got := make(map[string]bool)
	for range n {
		for _, b := range s.take(bills, n) {
			got[b.ID] = true
			if i := len(got) - 1; len(b.Body) != limits.DefaultMaxBody-100 || i >= n {
				s.fail("%s came with %d bytes; want %d", b.ID, len(b.Body), limits.DefaultMaxBody-100)
			}
		}
	}
	if len(got) != n {
		s.Fatalf("%s: of %d large follow-ups %d were delivered", p1, n, len(got))
	}
}

func thenSameID(s *harness) {
	s.follows(storekit.ReachFamily)
	d := bringLeased(s)
	s.unfollowed(followed(d, punctual.SettleAck, billed(0), noted(0), billed(time.Hour)), punctual.ErrInvalid, 3, "two with the same ID")
	same := billed(0)
	same.Topic = notes // in another topic the ID names another message
	s.follow(d, punctual.SettleAck, billed(0), same)
	s.one(bills)
	s.one(notes)
}

func thenWhole(s *harness) {
	s.follows(storekit.ReachFamily)
	bringReady(s)
	s.advance(time.Second)
	m := punctual.NewMessage{
		Topic: bills, ID: bill, Body: []byte{0, 1, 255}, Headers: map[string]string{"k": "v", "": "ü"}, Due: noon.Add(time.Hour + time.Nanosecond),
		MaxAttempts: 3, ExpireAfter: 90 * time.Minute, DropExpired: true, Remember: time.Hour,
	}
	s.follow(s.one(orders), punctual.SettleAck, m, punctual.NewMessage{Topic: notes, ID: note, Due: noon.Add(-time.Hour)})
	n := s.one(notes)
	s.wantMessage(n.Message, punctual.NewMessage{Topic: notes, ID: note}, noon.Add(time.Second), noon.Add(-time.Hour))
	s.advance(2 * time.Hour)
	d := s.one(bills)
	s.wantMessage(d.Message, m, noon.Add(time.Second), noon.Add(time.Hour+time.Millisecond))
	s.ack(d)
	if r := s.try(m); r.Status != punctual.PushDuplicate {
		s.fail("a push of the ID of a follow-up that was acked, and asks to be remembered: %q, %v; want a duplicate", r.Status, r.Err)
	}
}

func thenDelays(s *harness) {
	s.follows(storekit.ReachFamily)
	d := bringLeased(s)
	s.advance(10 * time.Second)
	s.follow(d, punctual.SettleAck, billed(time.Minute+time.Nanosecond))
	s.advance(time.Minute)
	s.none(bills, "1 ms before a follow-up is due whose delay was rounded up")
	s.advance(time.Millisecond)
	s.one(bills)
}

// thenNamed: each follow-up without an ID gets an ID that no other one has, and that is within
// reach of the settlement.
func thenNamed(s *harness) {
	s.eachThenVerb(func(s *harness, v punctual.Verb, d punctual.Delivery) {
		anonymous := punctual.NewMessage{Topic: bills}
		own := punctual.NewMessage{Topic: orders}
		s.follow(d, v, anonymous, anonymous, own)
		ds := s.take(bills, 10)
		for len(ds) < 2 {
			ds = append(ds, s.one(bills))
		}
		if len(ds) != 2 || ds[0].ID == ds[1].ID {
			s.fail("two follow-ups without IDs came as %v", ids(ds))
		}
		if e := s.one(orders); e.ID == "" || e.ID == x {
			s.fail("a follow-up without an ID for the topic of its message came as %q", e.ID)
		}
	})
}

// thenNamedMany: in a call with a key, too, each follow-up without an ID gets one that no other
// has, and a copy of the call makes none.
func thenNamedMany(s *harness) {
	const n = 8
	var items []punctual.Settlement
	for i := range n {
		s.push(order(fmt.Sprintf("%s~%d", x, i), 0))
		then := punctual.NewMessage{Topic: bills, Body: fmt.Append(nil, i)}
		items = append(items, followed(s.one(orders), punctual.SettleAck, then, then))
	}
	s.again("settle", func() {
		errs, err := s.store.Settle(s.ctx, items)
		if err = errors.Join(append(errs, err)...); err != nil || len(errs) != n {
			s.fail("settle: %v, %v", errs, err)
		}
	})
	got := make(map[string]int)
	for ds := s.take(bills, 100); len(ds) > 0; ds = s.take(bills, 100) {
		for _, d := range ds {
			got[string(d.Body)]++
		}
	}
	for i := range n {
		if k := got[fmt.Sprint(i)]; k != 2 {
			s.fail("%d follow-ups of ack %d came; want 2", k, i)
		}
	}
}

// thenBehindRefused: an item that is refused because of its follow-up leaves its message as it is,
// and the follow-ups of later items of the call find it so.
func thenBehindRefused(s *harness) {
	s.follows(storekit.ReachFamily)
	for _, v := range thenVerbs() {
		first, second := v.String()+"~1", v.String()+"~2"
		s.push(order(first, 0))
		a := s.one(orders)
		s.push(order(second, 0))
		b := s.one(orders)
		// Both follow-ups of the first item are for its family: the one that is refused stands
		// behind one that is not.
		taken := punctual.NewMessage{Topic: orders, ID: b.ID, IfExists: punctual.IfExistsFail}
		fresh := punctual.NewMessage{Topic: orders, ID: a.ID + "~new"}
		behind := punctual.NewMessage{Topic: orders, ID: a.ID, IfExists: punctual.IfExistsFail}
		errs, err := s.store.Settle(s.ctx, []punctual.Settlement{followed(a, v, fresh, taken), followed(b, v, behind)})
		if err != nil || len(errs) != 2 {
			s.fail("settle: %v, %v", errs, err)
		}
		s.wantErr(errs[0], punctual.ErrDuplicate, "%s with a follow-up whose ID is in use", v)
		s.wantErr(errs[1], punctual.ErrDuplicate, "%s with a follow-up that has the ID of the message before it in the call, which is still leased", v)
		s.wantState(orders, a.ID, punctual.StateLeased)
		s.wantState(orders, b.ID, punctual.StateLeased)
		s.wantState(orders, fresh.ID, punctual.StateNone)
		s.ack(a)
		s.ack(b)
	}
}

// thenInOrder: the follow-up of each settlement in a call finds what the settlements before it have
// stored.
func thenInOrder(s *harness) {
	s.follows(storekit.ReachFamily)
	var items []punctual.Settlement
	for i, how := range []punctual.IfExists{punctual.IfExistsFail, punctual.IfExistsKeep, punctual.IfExistsFail, punctual.IfExistsReplace, punctual.IfExistsKeep} {
		s.push(order(fmt.Sprintf("%s~%d", x, i), 0))
		m := punctual.NewMessage{Topic: bills, ID: bill, IfExists: how, Body: fmt.Append(nil, i)}
		items = append(items, followed(s.one(orders), punctual.SettleAck, m))
	}
	errs, err := s.store.Settle(s.ctx, items)
	if err != nil || len(errs) != len(items) {
		s.fail("settle: %v, %v", errs, err)
	}
	for i, want := range []error{nil, nil, punctual.ErrDuplicate, nil, nil} {
		s.wantErr(errs[i], want, "ack %d of five whose follow-ups have one ID and fail, keep, fail, replace, keep", i)
	}
	if b := s.one(bills); string(b.Body) != "3" {
		s.fail("the follow-up is that of ack %s; want that of ack 3, which replaces", b.Body)
	}
	s.wantState(orders, x+"~2", punctual.StateLeased)
	s.wantState(orders, x+"~3", punctual.StateNone)
}

// thenBatch: settlements with and without follow-ups have one result each, in their order.
func thenBatch(s *harness) {
	s.follows(storekit.ReachFamily)
	var items []punctual.Settlement
	for i := range 8 {
		s.push(order(fmt.Sprintf("%s~%d", x, i), 0))
		d := s.one(orders)
		m := punctual.NewMessage{Topic: bills, ID: fmt.Sprintf("%s~%d", x, i)}
		switch i % 4 {
		case 0:
			items = append(items, followed(d, punctual.SettleAck, m))
		case 1:
			items = append(items, followed(d, punctual.SettleAck))
		case 2:
			d.Token++
			items = append(items, followed(d, punctual.SettleAck, m))
		case 3:
			m.Delay = -1
			items = append(items, followed(d, punctual.SettleDiscard, punctual.NewMessage{Topic: notes}, m))
		}
	}
	errs, err := s.store.Settle(s.ctx, items)
	if err != nil || len(errs) != len(items) {
		s.fail("settle: %v, %v", errs, err)
	}
	for i, e := range errs {
		id := fmt.Sprintf("%s~%d", x, i)
		s.wantErr(e, []error{nil, nil, punctual.ErrLeaseLost, punctual.ErrInvalid}[i%4], "item %d of a mixed batch", i)
		s.wantState(orders, id, []punctual.State{punctual.StateNone, punctual.StateNone, punctual.StateLeased, punctual.StateLeased}[i%4])
		s.wantState(bills, id, []punctual.State{punctual.StateReady, punctual.StateNone, punctual.StateNone, punctual.StateNone}[i%4])
	}
	s.none(notes, "behind discards that were refused")
	got := make(map[string]bool)
	for len(got) < 2 {
		got[s.take(bills, 1)[0].ID] = true
	}
	s.none(bills, "behind the two that were stored")
}

// thenTakesLease: a follow-up that replaces a leased message ends its lease, also for an ack in the
// same call.
func thenTakesLease(s *harness) {
	s.follows(storekit.ReachFamily)
	d := bringLeased(s)
	s.push(punctual.NewMessage{Topic: bills, ID: bill})
	b := s.one(bills)
	errs, err := s.store.Settle(s.ctx, []punctual.Settlement{followed(b, punctual.SettleAck, again(punctual.IfExistsReplace)), followed(d, punctual.SettleAck, noted(0))})
	if err != nil || len(errs) != 2 {
		s.fail("settle: %v, %v", errs, err)
	}
	s.wantErr(errs[0], nil, "ack with a follow-up that replaces a leased message")
	s.wantErr(errs[1], punctual.ErrLeaseLost, "ack of the message that was replaced")
	s.none(notes, "behind an ack that came too late")
	s.advance(time.Hour)
	s.wantBody("again")
}

func thenCreates(s *harness) {
	s.eachThenVerb(func(s *harness, v punctual.Verb, d punctual.Delivery) {
		s.inspector()
		s.unfollowed(followed(d, v, billed(0), noted(-1)), punctual.ErrInvalid, 2, "the first of which would create a topic")
		s.wantTopics(orders)
		s.follow(d, v, billed(0))
		s.wantTopics(orders, bills)
		s.wantSettings(bills, s.settings(orders))
	})
}

func thenFromCompanion(s *harness) {
	s.follows(storekit.ReachFamily)
	s.push(punctual.NewMessage{Topic: bills, ID: bill})
	s.follow(s.one(bills), punctual.SettleAck, noted(0), order(x, 0), punctual.NewMessage{Topic: bills, ID: x + "~again"})
	s.one(notes)
	s.one(orders)
	s.one(bills)
}

// thenWakes: a claim that waits for the topic of a follow-up gets it at once.
func thenWakes(s *harness) {
	s.eachThenVerb(func(s *harness, v punctual.Verb, d punctual.Delivery) {
		for i := range rounds {
			w := s.wait(s.ctx, punctual.Claim{Topics: []string{notes, bills}, Max: 1, Wait: time.Hour})
			if i%2 == 0 {
				asleep()
			}
			s.follow(d, v, billed(0))
			s.ack(w.wakes(bill, v.String()+" with a follow-up that is due"))
			s.try(punctual.NewMessage{Topic: orders, ID: x, IfExists: punctual.IfExistsReplace})
			d = s.one(orders)
		}
	})
}

func thenWakesDue(s *harness) {
	s.eachThenVerb(func(s *harness, v punctual.Verb, d punctual.Delivery) {
		w := s.wait(s.ctx, punctual.Claim{Topics: []string{notes, bills}, Max: 1, Wait: time.Hour})
		asleep()
		s.follow(d, v, billed(20*time.Second))
		s.advance(20 * time.Second)
		s.ack(w.wakes(bill, "the due time of a follow-up of "+v.String()))
	})
}

// thenBeforeLater: a settlement takes effect before a later one of the same message in its call,
// also when the topic of its follow-up has to be made first.
func thenBeforeLater(s *harness) {
	s.follows(storekit.ReachFamily)
	for _, v := range []punctual.Verb{punctual.SettleAck, punctual.SettleSnooze, punctual.SettleDiscard} {
		for _, later := range []punctual.Verb{punctual.SettleAck, punctual.SettleRelease} {
			t := newHarness(s.T, s.promise, s.opener)
			d := bringLeased(t)
			t.settleTogether([]punctual.Settlement{followed(d, v, billed(0)), {Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: later}}, nil, punctual.ErrLeaseLost)
			if got := t.one(bills); got.ID != billed(0).ID {
				t.fail("%s with a follow-up brought %s", v, got.ID)
			}
		}
	}
}

// thenInOrderAcross: the order of a call holds between the topics of a family, too. A follow-up
// with IfExistsReplaceDead replaces a message that an item before it in the call has discarded. If
// the discard comes after it, the message is leased and is kept. A store that sends the topics side
// by side goes wrong in one of the two orders, so both are tried, several times.
func thenInOrderAcross(s *harness) {
	s.follows(storekit.ReachFamily)
	for try := range 12 {
		t := newHarness(s.T, s.promise, s.opener)
		m := billed(0)
		t.push(m)
		held := t.one(bills)
		discard := punctual.Settlement{Topic: held.Topic, ID: held.ID, Token: held.Token, Verb: punctual.SettleDiscard}
		m.IfExists = punctual.IfExistsReplaceDead
		ack := followed(bringLeased(t), punctual.SettleAck, m)
		if try%2 == 0 {
			t.settleTogether([]punctual.Settlement{discard, ack}, nil, nil)
			t.wantState(bills, bill, punctual.StateReady)
			continue
		}
		t.settleTogether([]punctual.Settlement{ack, discard}, nil, nil)
		t.wantState(bills, bill, punctual.StateDead)
	}
}

// thenBeside: the finished record and the history of the settled message are as without follow-ups.
func thenBeside(s *harness) {
	s.follows(storekit.ReachFamily)
	if _, err := s.keeper(); err == nil {
		s.keep(orders, time.Hour)
		d := bringLeased(s)
		want := s.recordOfX(punctual.OutcomeAcked)
		want.Attempt, want.Delivered = 1, noon
		s.follow(d, punctual.SettleAck, again(punctual.IfExistsKeep))
		s.wantRecord(want, "acked with itself as a follow-up")
		s.wantState(orders, x, punctual.StateScheduled)
	}
	t := newHarness(s.T, s.promise, s.opener)
	d := bringLeased(t)
	discard := followed(d, punctual.SettleDiscard, billed(0))
	discard.Error = "broken"
	t.wantErr(t.settleAs(discard), nil, "discard with a follow-up")
	t.wantDead(orders, x, punctual.ReasonDiscarded)
	if t.hasInspector() {
		if info := t.get(orders, x); len(info.Failures) != 1 || info.Failures[0].Error != "broken" || info.Failures[0].Attempt != 1 {
			t.fail("discarded with a follow-up, a message has history %v; want the error of the discard", info.Failures)
		}
	}
}

// thenAnywhere: a store that reaches everywhere stores any message, in any topic and with any ID.
func thenAnywhere(s *harness) {
	s.follows(storekit.ReachAny)
	s.eachThenVerb(func(s *harness, v punctual.Verb, d punctual.Delivery) {
		const n = 12
		var then []punctual.NewMessage
		for i := range n {
			then = append(then, punctual.NewMessage{Topic: mails, ID: fmt.Sprint(i)}, punctual.NewMessage{Topic: fmt.Sprintf("%d@bills", i), ID: "b"})
		}
		s.unfollowed(followed(d, v, append(then, punctual.NewMessage{Topic: mailBills, Delay: -1})...), punctual.ErrInvalid, 2*n+1, "the last is malformed")
		s.follow(d, v, append(then, punctual.NewMessage{Topic: mailBills}, order("other", 0))...)
		if ds := s.take(mails, 2*n); len(ds) != n {
			s.Fatalf("%s: of %d follow-ups for another topic %v were delivered", p1, n, ids(ds))
		}
		for i := range n {
			s.one(fmt.Sprintf("%d@bills", i))
		}
		s.one(mailBills)
		if e := s.one(orders); e.ID != "other" {
			s.fail("behind %s came %s; want the follow-up with an ID of its own", v, e.ID)
		}
	})
}

// thenOutOfReach: a settlement with a follow-up that the store cannot store in one step with it
// fails with ErrUnsupported and changes nothing.
func thenOutOfReach(s *harness) {
	reach := s.reach()
	if reach == storekit.ReachAny {
		s.Skipf("skipped: the store reaches every topic")
	}
	d := bringLeased(s)
	for _, v := range thenVerbs() {
		foreign := punctual.NewMessage{Topic: mails, ID: x}
		s.unfollowed(followed(d, v, foreign), punctual.ErrUnsupported, 1, "in a topic out of reach")
		foreign.Topic = mailBills
		s.unfollowed(followed(d, v, foreign), punctual.ErrUnsupported, 1, "in a companion of another topic")
		if reach == storekit.ReachFamily {
			s.unfollowed(followed(d, v, billed(0), foreign), punctual.ErrUnsupported, 2, "the second out of reach")
		} else {
			s.unfollowed(followed(d, v, billed(0)), punctual.ErrUnsupported, 1, "in a store that has no follow-ups")
		}
	}
	s.ack(d)
	s.none(bills, "behind follow-ups that were refused")
	s.none(mails, "behind follow-ups that were refused")
}

func thenReopened(s *harness) {
	s.eachThenVerb(func(s *harness, v punctual.Verb, d punctual.Delivery) {
		s.follow(d, v, billed(0), noted(time.Hour), again(punctual.IfExistsReplace))
		s.reopen()
		s.wantState(bills, bill, punctual.StateReady)
		s.wantState(notes, note, punctual.StateScheduled)
		s.wantErr(s.settleVerb(d, v), punctual.ErrLeaseLost, "%s again, opened anew", v)
		s.one(bills)
		s.advance(time.Hour)
		s.one(notes)
		s.wantBody("again")
	})
}

// thenRepeated: a copy of a call with follow-ups is answered as the first call was, and stores
// nothing.
func thenRepeated(s *harness) {
	s.repeater()
	s.eachThenVerb(func(s *harness, v punctual.Verb, d punctual.Delivery) {
		s.again("settle", func() { s.follow(d, v, billed(0), punctual.NewMessage{Topic: notes}) })
		s.ack(s.one(bills))
		s.one(notes)
		s.again("settle", func() { s.follow(d, v, billed(0), punctual.NewMessage{Topic: notes}) })
		s.none(bills, "after a copy of a settlement whose follow-up is acked")
		s.none(notes, "after a copy of a settlement whose follow-up is leased")
	})
}

// thenChain: a message is followed by one in another topic, that by a third, and that by the first
// anew.
func thenChain(s *harness) {
	s.follows(storekit.ReachFamily)
	s.push(order(x, 0))
	for round := range 5 {
		s.follow(s.one(orders), punctual.SettleAck, billed(time.Second))
		s.advance(time.Second)
		s.follow(s.one(bills), punctual.SettleAck, noted(0))
		s.none(orders, fmt.Sprintf("in round %d, while the second follow-up is ready", round))
		s.follow(s.one(notes), punctual.SettleAck, order(x, 0))
		s.none(bills, fmt.Sprintf("in round %d", round))
	}
	s.one(orders)
}
