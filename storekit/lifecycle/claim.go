package lifecycle

import (
	"cmp"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// MustEnd reports whether a claim that meets the message, whose time has come, must end it instead
// of delivering it.
func MustEnd(m *Message, set *punctual.Settings, now int64) bool {
	return m.CancelRequested || m.attemptsUsedUp(set) || m.Expired(now)
}

// Meet decides what becomes of a message whose time has come and that a claim meets. Stay means
// that it is to be delivered: call Lease. Otherwise the message ends, for which a cancel counts
// before attempts that are used up, and those before expiry (MustEnd holds). The attempt of a lease
// that has run out has failed.
//
// The end is dated now. A store that ends messages some time after the claim met them calls Meet
// with the time of the transaction that ends them, and MustEnd when it meets them.
func Meet(m *Message, set *punctual.Settings, now int64) Decision {
	if !MustEnd(m, set, now) {
		return Decision{}
	}
	attempt, lapsed := m.Attempts, m.Token != 0
	var d Decision
	switch {
	case m.CancelRequested:
		d = finished(punctual.OutcomeCancelled)
	case m.attemptsUsedUp(set):
		d = m.die(punctual.ReasonAttemptsUsedUp, now)
	case m.DropExpired:
		d = finished(punctual.OutcomeExpired)
	default:
		d = m.die(punctual.ReasonExpired, now)
	}
	if lapsed {
		d = d.failed(attempt, now, storekit.LeaseRanOut)
	}
	return d
}

// Lease counts an attempt of a message for which Meet said Stay, and puts it under a lease with the
// token from now on; for the length see LeaseEnd. If an earlier lease has run out, its attempt has
// failed.
func Lease(m *Message, token int64, length time.Duration, set *punctual.Settings, now int64) Decision {
	d := Decision{To: Leased}
	if m.Token != 0 {
		d = d.failed(m.Attempts, now, storekit.LeaseRanOut)
	}
	m.Attempts++
	m.Token, m.LeaseUntil, m.Since = token, LeaseEnd(length, set, now), now
	return d
}

// LeaseEnd is when a lease ends that begins, or is extended, at now. A length of 0 is the topic's.
func LeaseEnd(length time.Duration, set *punctual.Settings, now int64) int64 {
	return now + storekit.CeilDuration(cmp.Or(length, set.Lease))
}

// GiveBack ends a lease without counting its attempt: for a release, and for a lease that no caller
// has heard of, because it ran out while its claim was under way (P3). A message that was cancelled
// meanwhile ends.
func GiveBack(m *Message, now int64) Decision { return m.giveBack(m.Due, now) }

// giveBack is GiveBack with a new due time and Since, as a snooze asks for.
func (m *Message) giveBack(due, since int64) Decision {
	if m.CancelRequested {
		return finished(punctual.OutcomeCancelled)
	}
	m.Due, m.Since = due, since
	m.Attempts--
	return m.wait()
}
