package storetest

import (
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
)

// expiryCases: does a message that nobody wants any more stay away?
func expiryCases() []testCase {
	return []testCase{
		{"delivered until 1 ms before", p1, expiryBefore},
		{"dead from the expiry on", p2, expiryDead},
		{"dropped from the expiry on", p2, expiryDropped},
		{"counts from the due time", p1, expiryFromDue},
		{"moves with a reschedule", p1, expiryReschedule},
		{"does not move with a retry", p2, expiryRetry},
		{"moves with a reschedule after a retry", p1, expiryRetryReschedule},
		{"moves with a requeue", p1, expiryRequeue},
		{"holder may finish after it", p1, expiryHolder},
		{"lease that ran out behind it", p2, expiryRunOut},
		{"expired ones make room in the claim", p1, expiryInBetween},
		{"a backlog of expired ones before a good one", p1, expiryBacklog},
		{"rounded up", p1, expiryRounded},
		{"at the end of time", p9, expiryEndOfTime},
	}
}

// expiring pushes orders/x, due after delay and expiring after a further second.
func (s *harness) expiring(delay time.Duration, drop bool) {
	s.Helper()
	s.push(punctual.NewMessage{Topic: orders, ID: x, Delay: delay, ExpireAfter: time.Second, DropExpired: drop})
}

func expiryBefore(s *harness) {
	s.expiring(0, false)
	s.advance(time.Second - time.Millisecond)
	if d := s.one(orders); !d.Expires.Equal(noon.Add(time.Second)) {
		s.fail("a message that expires a second after its due time shows expiry %v; want %v", d.Expires, noon.Add(time.Second))
	}
}

func expiryDead(s *harness) {
	s.expiring(0, false)
	s.advance(time.Second)
	s.none(orders, "at the expiry of its message")
	s.wantDead(orders, x, punctual.ReasonExpired)
	if !s.hasInspector() {
		return
	}
	if info := s.get(orders, x); info.Attempt != 0 || len(info.Failures) != 0 || info.Died.IsZero() {
		s.fail("an expired message shows attempt %d, history %v, died %v; want 0, none, a time", info.Attempt, info.Failures, info.Died)
	}
}

func expiryDropped(s *harness) {
	s.expiring(0, true)
	s.advance(time.Second)
	s.none(orders, "at the expiry of its message")
	s.wantState(orders, x, punctual.StateNone)
	s.outcome(requeue(orders, x, 0), punctual.ErrNotFound, "dropped when it expired")
	s.wantPush(s.try(order(x, 0)), punctual.PushStored, "dropped when it expired")
}

func expiryFromDue(s *harness) {
	s.expiring(time.Hour, false)
	s.ack(s.dueAt(noon.Add(time.Hour), "the due time"))
}

func expiryReschedule(s *harness) {
	s.expiring(0, false)
	s.outcome(reschedule(orders, x, time.Hour), nil, isReady)
	s.clock.Set(noon.Add(time.Hour + time.Second - time.Millisecond))
	if d := s.one(orders); !d.Expires.Equal(noon.Add(time.Hour + time.Second)) {
		s.fail("after a reschedule by an hour the expiry is %v; want a second behind the new due time", d.Expires)
	}
}

func expiryRetry(s *harness) {
	s.expiring(0, false)
	s.done(s.one(orders), punctual.SettleRetry, time.Second-time.Millisecond)
	s.advance(time.Second - time.Millisecond)
	d := s.one(orders)
	if !d.Expires.Equal(noon.Add(time.Second)) {
		s.fail("after a retry the expiry is %v; want it where it was, %v", d.Expires, noon.Add(time.Second))
	}
	s.done(d, punctual.SettleRetry, time.Millisecond)
	s.advance(time.Millisecond)
	s.none(orders, "at the expiry, when the second retry is due,")
	s.wantDead(orders, x, punctual.ReasonExpired)
}

func expiryRetryReschedule(s *harness) {
	s.expiring(0, false)
	s.done(s.one(orders), punctual.SettleRetry, 500*time.Millisecond)
	s.outcome(reschedule(orders, x, time.Hour), nil, isRetried)
	s.clock.Set(noon.Add(time.Hour + time.Second - time.Millisecond))
	s.done(s.one(orders), punctual.SettleRelease, 0)
	s.advance(time.Millisecond)
	s.none(orders, "a second after the new due time")
}

func expiryRequeue(s *harness) {
	s.expiring(0, false)
	s.advance(time.Minute)
	s.none(orders, "after the expiry")
	s.outcome(requeue(orders, x, time.Minute), nil, "dead of expiry")
	due := noon.Add(2 * time.Minute)
	d := s.dueAt(due, "the due time of a requeue")
	if !d.Expires.Equal(due.Add(time.Second)) {
		s.fail("after a requeue the expiry is %v; want a second behind the new due time %v", d.Expires, due)
	}
}

func expiryHolder(s *harness) {
	s.expiring(0, true)
	d := s.one(orders)
	s.advance(2 * time.Second)
	s.none(orders, "while the expired message is leased")
	s.wantState(orders, x, punctual.StateLeased)
	s.done(d, punctual.SettleExtend, time.Minute)
	s.ack(d)
}

func expiryRunOut(s *harness) {
	s.expiring(0, false)
	s.one(orders)
	s.advance(30 * time.Second)
	s.none(orders, "when the lease of an expired message ran out")
	s.wantDead(orders, x, punctual.ReasonExpired)
}

func expiryInBetween(s *harness) {
	for i := range 20 {
		s.push(punctual.NewMessage{Topic: orders, ID: fmt.Sprint("old", i), ExpireAfter: time.Second, DropExpired: i%2 == 0})
	}
	s.advance(time.Second)
	s.push(order(x, 0))
	if ds := s.take(orders, 1); len(ds) != 1 || ds[0].ID != x {
		s.fail("behind 20 expired messages a claim of one returned %v; want %s", ids(ds), x)
	}
}

// expiryBacklog: a claim of one message ends all that has expired before it. These are more
// messages than a claim on disk ends in one transaction.
func expiryBacklog(s *harness) {
	const expired = 1100
	for from := 0; from < expired; from += 100 {
		ms := make([]punctual.NewMessage, 100)
		for i := range ms {
			ms[i] = punctual.NewMessage{Topic: orders, ID: fmt.Sprint("old", from+i), ExpireAfter: time.Second, DropExpired: i%2 == 0}
		}
		s.pushAll(ms...)
	}
	s.advance(time.Second)
	s.push(order(x, 0))
	if ds := s.take(orders, 1); len(ds) != 1 || ds[0].ID != x {
		s.fail("behind %d expired messages a claim of one returned %v; want %s", expired, ids(ds), x)
	}
	s.wantDead(orders, "old1", punctual.ReasonExpired)
	s.wantDead(orders, fmt.Sprint("old", expired-1), punctual.ReasonExpired)
	s.wantState(orders, "old0", punctual.StateNone)
}

func expiryRounded(s *harness) {
	s.push(punctual.NewMessage{Topic: orders, ID: x, ExpireAfter: 100 * time.Microsecond})
	if d := s.one(orders); !d.Expires.Equal(noon.Add(time.Millisecond)) {
		s.fail("an expiry after 100 µs is %v; want it rounded up to %v", d.Expires, noon.Add(time.Millisecond))
	}
}

func expiryEndOfTime(s *harness) {
	s.push(punctual.NewMessage{Topic: orders, ID: "far", Due: limits.MaxDue, ExpireAfter: 1<<63 - 1})
	s.push(punctual.NewMessage{Topic: orders, ID: "now", ExpireAfter: 1<<63 - 1})
	if d := s.one(orders); d.ID != "now" {
		s.fail("%s was delivered; want now", d.ID)
	}
	s.clock.Set(limits.MaxDue)
	for _, d := range s.take(orders, 10) {
		if d.ID == "far" {
			return
		}
	}
	s.Fatalf("%s: a message due at %v, which never expires before that, was not delivered then", p1, limits.MaxDue)
}
