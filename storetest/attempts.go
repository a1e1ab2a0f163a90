package storetest

import (
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// attemptCases: does a message that cannot be handled come to an end?
func attemptCases() []testCase {
	return []testCase{
		{"counted before the handler sees it", p6, attemptsCounted},
		{"used up by retries", p6, attemptsRetried},
		{"used up by leases that ran out", p6, attemptsRunOut},
		{"used up by both", p6, attemptsMixed},
		{"message overrides topic", p6, attemptsOverride},
		{"default is ten", p6, attemptsDefault},
		{"topic's limit at the moment it matters", p6, attemptsLimitChanged},
		{"dead ones make room in the claim", p1, attemptsDeadInBetween},
		{"last attempt may still be acked", p6, attemptsLastAck},
		{"history is bounded", p6, attemptsHistory},
		{"reason of the end when several hold", p6, attemptsReason},
	}
}

// poison pushes orders/x with a limit of attempts.
func (s *harness) poison(limit int) {
	s.Helper()
	s.push(punctual.NewMessage{Topic: orders, ID: x, MaxAttempts: limit})
}

func attemptsCounted(s *harness) {
	s.poison(5)
	for i := range 5 {
		if d := s.one(orders); d.Attempt != i+1 {
			s.fail("delivery %d, after holders that never answered, is attempt %d", i+1, d.Attempt)
		}
		s.advance(30 * time.Second)
	}
	s.none(orders, "after 5 of 5 attempts")
}

func attemptsRetried(s *harness) {
	for limit := 1; limit <= 3; limit++ {
		t := newHarness(s.T, s.promise, s.opener)
		t.poison(limit)
		for i := range limit {
			t.wantState(orders, x, punctual.StateReady)
			d := t.one(orders)
			if err := t.settleAs(punctual.Settlement{Topic: orders, ID: x, Token: d.Token, Verb: punctual.SettleRetry, Error: fmt.Sprint(i)}); err != nil {
				t.fail("retry %d of %d: unexpected error: %v", i+1, limit, err)
			}
		}
		t.wantDead(orders, x, punctual.ReasonAttemptsUsedUp)
		t.advance(24 * time.Hour)
		t.none(orders, fmt.Sprintf("after %d of %d attempts", limit, limit))
		if t.hasInspector() {
			t.wantHistory(t.get(orders, x), limit, func(i int) string { return fmt.Sprint(i) })
		}
	}
}

// wantHistory checks that a message has had n attempts, and one failure for each, the oldest first.
// text returns the error of attempt i, counted from 0.
func (s *harness) wantHistory(info punctual.Info, n int, text func(i int) string) {
	s.Helper()
	if info.Attempt != n || len(info.Failures) != n {
		s.fail("%s shows attempt %d with history %v; want %d attempts, each with its failure", info.ID, info.Attempt, info.Failures, n)
	}
	for i, f := range info.Failures {
		if f.Attempt != i+1 || f.Error != text(i) {
			s.fail("failure %d of %s is %+v; want attempt %d: %s", i+1, info.ID, f, i+1, text(i))
		}
	}
}

func attemptsRunOut(s *harness) {
	s.poison(3)
	for range 3 {
		s.one(orders)
		s.advance(30 * time.Second)
	}
	s.none(orders, "after 3 of 3 leases ran out")
	s.wantDead(orders, x, punctual.ReasonAttemptsUsedUp)
	if s.hasInspector() {
		s.wantHistory(s.get(orders, x), 3, func(int) string { return storekit.LeaseRanOut })
	}
}

func attemptsMixed(s *harness) {
	s.poison(4)
	for i := range 4 {
		d := s.one(orders)
		if d.Attempt != i+1 || len(d.Failures) != i {
			s.fail("delivery %d is attempt %d with history %v", i+1, d.Attempt, d.Failures)
		}
		if i%2 == 0 {
			s.advance(30 * time.Second)
			continue
		}
		s.settleAs(punctual.Settlement{Topic: orders, ID: x, Token: d.Token, Verb: punctual.SettleRetry, Error: "failed"})
	}
	s.none(orders, "after 4 of 4 attempts")
	s.wantDead(orders, x, punctual.ReasonAttemptsUsedUp)
	if s.hasInspector() {
		s.wantHistory(s.get(orders, x), 4, func(i int) string { return []string{storekit.LeaseRanOut, "failed"}[i%2] })
	}
}

func attemptsOverride(s *harness) {
	s.configure(orders, punctual.SettingsPatch{MaxAttempts: ptr(2)})
	s.poison(4)
	s.push(order("topic's", 0))
	got := s.deliveries(10)
	if got[x] != 4 || got["topic's"] != 2 {
		s.fail("with 4 attempts for the message and 2 for the topic, deliveries were %v; want x 4 times, topic's 2 times", got)
	}
}

// deliveries claims from orders n times, retries at once what it gets, and returns how often each
// ID was delivered.
func (s *harness) deliveries(n int) map[string]int {
	s.Helper()
	got := make(map[string]int)
	for range n {
		for _, d := range s.take(orders, 10) {
			got[d.ID]++
			s.done(d, punctual.SettleRetry, 0)
		}
	}
	return got
}

func attemptsDefault(s *harness) {
	bringReady(s)
	if got := s.deliveries(20); got[x] != 10 {
		s.fail("without any setting a message was delivered %d times; want 10", got[x])
	}
}

func attemptsLimitChanged(s *harness) {
	s.configure(orders, punctual.SettingsPatch{MaxAttempts: ptr(2)})
	bringReady(s)
	s.done(s.one(orders), punctual.SettleRetry, 0)
	s.configure(orders, punctual.SettingsPatch{MaxAttempts: ptr(5)})
	if got := s.deliveries(20); got[x] != 4 {
		s.fail("raised from 2 to 5 after the first attempt, the limit let %d more deliveries pass; want 4", got[x])
	}
	s.push(order("y", 0))
	for range 3 {
		s.done(s.one(orders), punctual.SettleRetry, 0)
	}
	s.configure(orders, punctual.SettingsPatch{MaxAttempts: ptr(3)})
	s.none(orders, "after the limit was lowered to the attempts already made")
	s.wantDead(orders, "y", punctual.ReasonAttemptsUsedUp)
}

// attemptsDeadInBetween: messages that a claim ends instead of delivering them do not count towards
// Claim.Max.
func attemptsDeadInBetween(s *harness) {
	for i := range 20 {
		s.push(punctual.NewMessage{Topic: orders, ID: fmt.Sprint("poison", i), MaxAttempts: 1})
	}
	if ds := s.take(orders, 20); len(ds) != 20 {
		s.fail("claimed %d of 20", len(ds))
	}
	s.advance(30 * time.Second)
	s.push(order(x, 0))
	ds := s.take(orders, 1)
	if len(ds) != 1 || ds[0].ID != x {
		s.fail("behind 20 messages without attempts left a claim of one returned %v; want %s", ids(ds), x)
	}
}

func attemptsLastAck(s *harness) {
	s.poison(1)
	d := s.one(orders)
	s.advance(time.Minute)
	s.ack(d)
	s.none(orders, "after the ack")
	s.wantState(orders, x, punctual.StateNone)
}

func attemptsHistory(s *harness) {
	s.poison(100)
	const n = 40
	for i := range n {
		d := s.one(orders)
		want := min(i, storekit.MaxFailures)
		if len(d.Failures) != want {
			s.fail("before attempt %d the history has %d failures; want %d", i+1, len(d.Failures), want)
		}
		for j, f := range d.Failures {
			if f.Attempt != i-want+j+1 || f.Error != fmt.Sprint(f.Attempt) {
				s.fail("before attempt %d place %d of the history is %+v; want the newest, oldest first", i+1, j, f)
			}
		}
		s.settleAs(punctual.Settlement{Topic: orders, ID: x, Token: d.Token, Verb: punctual.SettleRetry, Error: fmt.Sprint(d.Attempt)})
	}
}

// attemptsReason: a claim ends a message that it may not deliver for the first reason that holds.
// The reasons are, in this order, a cancel under its last lease, attempts used up, and the expiry.
func attemptsReason(s *harness) {
	for _, drop := range []bool{false, true} {
		t := newHarness(s.T, s.promise, s.opener)
		ends := punctual.NewMessage{Topic: orders, MaxAttempts: 1, ExpireAfter: time.Second, DropExpired: drop}
		for _, id := range []string{"cancelled", x} {
			ends.ID = id
			t.push(ends)
		}
		if ds := t.take(orders, 2); len(ds) != 2 {
			t.fail("claimed %v; want both", ids(ds))
		}
		t.amend(cancel(orders, "cancelled"))
		t.advance(30 * time.Second)
		t.none(orders, "when the leases of expired messages without attempts left ran out")
		t.wantState(orders, "cancelled", punctual.StateNone)
		t.wantDead(orders, x, punctual.ReasonAttemptsUsedUp)
	}
}
