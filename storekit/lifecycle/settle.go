package lifecycle

import (
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Settle decides what becomes of a message by what the holder of a lease says, and what the holder
// is answered. m is nil when there is no message with the ID. The caller has checked x
// (storekit.CheckSettlement).
//
// A token that is not current is ErrLeaseLost (P4). A token is current also when its lease has run
// out. After a cancel under the lease an ack and a discard succeed as ever; a retry, snooze and
// release finish the message and an extension changes nothing, all four with ErrCancelled. A retry
// or snooze to a time after limits.MaxDue or before the year 1 is ErrInvalid and changes nothing.
//
// If x has follow-ups (Settlement.Then) and there is no error, the caller decides on each of them
// with FollowUp before it carries the decision out. If one is refused, the caller drops the
// decision and everything that Settle has changed of m, so it lets Settle decide on a copy. With an
// error no follow-up is stored.
func Settle(m *Message, x *punctual.Settlement, set *punctual.Settings, now time.Time) (Decision, error) {
	if m == nil || m.Token == 0 || m.Token != x.Token {
		return Decision{}, storekit.SettleError(x, punctual.ErrLeaseLost)
	}
	ms := storekit.Millis(now)
	switch x.Verb {
	case punctual.SettleAck:
		return finished(punctual.OutcomeAcked), nil
	case punctual.SettleDiscard:
		attempt := m.Attempts
		return m.die(punctual.ReasonDiscarded, ms).failed(attempt, ms, x.Error), nil
	}
	if m.CancelRequested {
		var d Decision
		if x.Verb != punctual.SettleExtend {
			d = finished(punctual.OutcomeCancelled)
		}
		return d, storekit.SettleError(x, punctual.ErrCancelled)
	}
	switch x.Verb {
	case punctual.SettleRelease:
		return GiveBack(m, ms), nil
	case punctual.SettleExtend:
		m.LeaseUntil, m.Since = LeaseEnd(x.Delay, set, ms), ms
		return Decision{To: Leased}, nil
	}
	due, err := nextDue(m, x, set, now)
	if err != nil {
		return Decision{}, storekit.SettleError(x, err)
	}
	if x.Verb == punctual.SettleSnooze {
		return m.giveBack(storekit.Millis(due), since(x.Due, ms)), nil
	}
	attempt := m.Attempts
	if m.attemptsUsedUp(set) {
		return m.die(punctual.ReasonAttemptsUsedUp, ms).failed(attempt, ms, x.Error), nil
	}
	m.Due, m.Since = storekit.Millis(due), since(x.Due, ms)
	return m.wait().failed(attempt, ms, x.Error), nil
}

// nextDue is when a message is due again that is given back by a retry or snooze. A time in the
// past stays as it is.
func nextDue(m *Message, x *punctual.Settlement, set *punctual.Settings, now time.Time) (time.Time, error) {
	after := x.Delay
	if after == punctual.UseBackoff {
		after = storekit.RetryDelay(set.Backoff, m.Attempts)
	}
	return storekit.DueAt(now, x.Due, after)
}
