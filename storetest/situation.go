package storetest

import (
	"time"

	"github.com/punctualmq/punctual"
)

// situation is a point in a message's life at which somebody may name it. The tables of
// the cases go through all of them.
type situation struct {
	name string
	// state is what the store shows; StateNone when the message is not stored.
	state punctual.State
	// bring brings message orders/x into the situation and returns the last lease that it had, or
	// the zero Delivery.
	bring func(s *harness) punctual.Delivery
}

// x is the ID of the message in a situation.
const x = "x"

// The situations by name, so that tables and switches cannot misspell them.
const (
	isUnknown         = "unknown"
	isScheduled       = "scheduled"
	isReady           = "ready"
	isLeased          = "leased"
	isLeasedCancelled = "leased and cancelled"
	isRunOut          = "ready because its lease ran out"
	isRetried         = "scheduled for a retry"
	isDead            = "dead"
	isAcked           = "acked"
	isCancelled       = "cancelled"
)

func situations() []situation {
	return []situation{
		{isUnknown, punctual.StateNone, func(*harness) punctual.Delivery { return punctual.Delivery{} }},
		{isScheduled, punctual.StateScheduled, bringScheduled},
		{isReady, punctual.StateReady, bringReady},
		{isLeased, punctual.StateLeased, bringLeased},
		{isLeasedCancelled, punctual.StateLeased, bringLeasedCancelled},
		{isRunOut, punctual.StateReady, bringRunOut},
		{isRetried, punctual.StateScheduled, bringRetried},
		{isDead, punctual.StateDead, bringDead},
		{isAcked, punctual.StateNone, bringAcked},
		{isCancelled, punctual.StateNone, bringCancelled},
	}
}

// eachSituation runs f once per situation, each time on a message of its own: all but
// the first are brought about on a fresh store.
func (s *harness) eachSituation(f func(s *harness, at situation, last punctual.Delivery)) {
	s.Helper()
	for i, at := range situations() {
		t := s
		if i > 0 {
			t = newHarness(s.T, s.promise, s.opener)
		}
		f(t, at, at.bring(t))
		if !t.Failed() && i > 0 {
			t.checkSound()
		}
	}
}

func bringScheduled(s *harness) punctual.Delivery {
	s.push(order(x, time.Hour))
	return punctual.Delivery{}
}

func bringReady(s *harness) punctual.Delivery {
	s.push(order(x, 0))
	return punctual.Delivery{}
}

func bringLeased(s *harness) punctual.Delivery {
	bringReady(s)
	return s.one(orders)
}

func bringLeasedCancelled(s *harness) punctual.Delivery {
	d := bringLeased(s)
	s.outcome(cancel(orders, x), punctual.ErrLeased, isLeased)
	return d
}

func bringRunOut(s *harness) punctual.Delivery {
	d := bringLeased(s)
	s.clock.Set(d.LeaseUntil)
	return d
}

func bringRetried(s *harness) punctual.Delivery {
	d := bringLeased(s)
	s.done(d, punctual.SettleRetry, time.Hour)
	return d
}

func bringDead(s *harness) punctual.Delivery {
	d := bringLeased(s)
	s.done(d, punctual.SettleDiscard, 0)
	return d
}

func bringAcked(s *harness) punctual.Delivery {
	d := bringLeased(s)
	s.ack(d)
	return d
}

func bringCancelled(s *harness) punctual.Delivery {
	bringReady(s)
	s.outcome(cancel(orders, x), nil, isReady)
	return punctual.Delivery{}
}
