package lifecycle

import (
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Settle decides what becomes of a message by what the holder of a lease says, and what the holder is answered. m is nil
// when there is no message with the ID. The caller has checked x (storekit.CheckSettlement).
//
// A token that is not current is ErrLeaseLost (P4). A token is current also when its lease has run out. After a cancel
// under the lease an ack and a discard succeed as ever; a retry, snooze and release finish the message and an extension
// changes nothing, all four with ErrCancelled. A retry or snooze to behind MaxDue is ErrInvalid and changes nothing.
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
		return GiveBack(m), nil
	case punctual.SettleExtend:
		m.LeaseUntil = LeaseEnd(x.Delay, set, ms)
		return Decision{To: Leased}, nil
	}
	due, err := storekit.DueAt(now, time.Time{}, retryAfter(m, x, set))
	if err != nil {
		return Decision{}, storekit.SettleError(x, err)
	}
	if x.Verb == punctual.SettleSnooze {
		m.Due = storekit.Millis(due)
		return GiveBack(m), nil
	}
	attempt := m.Attempts
	if m.attemptsUsedUp(set) {
		return m.die(punctual.ReasonAttemptsUsedUp, ms).failed(attempt, ms, x.Error), nil
	}
	m.Due = storekit.Millis(due)
	return m.wait().failed(attempt, ms, x.Error), nil
}

// retryAfter is how long a message waits that is given back by a retry or snooze.
func retryAfter(m *Message, x *punctual.Settlement, set *punctual.Settings) time.Duration {
	if x.Delay == punctual.UseBackoff {
		return storekit.RetryDelay(set.Backoff, m.Attempts)
	}
	return x.Delay
}
