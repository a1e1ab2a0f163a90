package lifecycle

import (
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// AmendDue returns the due time that an amendment asks for, which is zero for a cancel and a
// delete. A time after limits.MaxDue is ErrInvalid, whether there is such a message or not, so a
// caller asks before it looks for the message.
func AmendDue(a *punctual.Amendment, now time.Time) (time.Time, error) {
	if !storekit.Moves(a.Change) {
		return time.Time{}, nil
	}
	return storekit.DueAt(now, a.Due, a.Delay)
}

// Amend decides what becomes of a message that somebody names without a lease, and what that caller
// is answered. state is the message's at the moment of the change; StateNone when there is none, or
// when it is dead and past its retention. Amend does not tell a scheduled message from a ready one,
// and of a delete and a requeue it does not ask whether a live message is leased, so a store may
// give any of these states then. due comes from AmendDue, with the same reading of the clock as
// now. m may be nil if state is StateNone. The caller has checked a (storekit.CheckAmendment).
//
// Of the facts a cancel, a delete and what is refused read CancelRequested alone, and Due if the
// change has an IfDue. So a store that keeps the record of a message elsewhere need not read it for
// these.
//
// The state is judged before IfDue. What fails without an effect in any case fails with the same
// error whatever IfDue is. What follows holds if IfDue is zero or the due time of the message;
// otherwise nothing is noted or finished.
//
// A cancel under a lease is noted, and answered with ErrLeased. A reschedule of a message that was
// cancelled under a lease that has run out must not bring it back (P5): it finishes the message,
// and is answered with ErrNotFound.
func Amend(m *Message, state punctual.State, a *punctual.Amendment, due time.Time, now int64) (Decision, punctual.Amended) {
	refused := func(d Decision, kind error) (Decision, punctual.Amended) {
		return d, punctual.Amended{Err: storekit.AmendError(a, kind)}
	}
	dead := state == punctual.StateDead
	switch {
	case state == punctual.StateNone:
		return refused(Decision{}, punctual.ErrNotFound)
	case a.Change == punctual.ChangeRequeue && !dead:
		return refused(Decision{}, punctual.ErrNotDead)
	case dead && (a.Change == punctual.ChangeCancel || a.Change == punctual.ChangeReschedule):
		return Decision{}, punctual.Amended{Err: storekit.AmendDeadError(a)}
	case state == punctual.StateLeased && (a.Change == punctual.ChangeReschedule || a.Change == punctual.ChangeCancel && m.CancelRequested):
		return refused(Decision{}, punctual.ErrLeased)
	case isAtAnother(m.Due, a.IfDue):
		return Decision{}, punctual.Amended{Err: storekit.ChangedError(a.Topic, a.ID, storekit.FromMillis(m.Due))}
	}
	switch {
	case a.Change == punctual.ChangeDelete:
		return Decision{To: Removed}, punctual.Amended{}
	case a.Change == punctual.ChangeRequeue:
		m.moveTo(storekit.Millis(due), since(a.Due, now))
		m.Attempts = 0
		return m.wait(), punctual.Amended{Due: due}
	case state == punctual.StateLeased:
		m.CancelRequested = true
		return refused(Decision{To: Leased}, punctual.ErrLeased)
	case a.Change == punctual.ChangeCancel:
		return finished(punctual.OutcomeCancelled), punctual.Amended{}
	case m.CancelRequested:
		return refused(finished(punctual.OutcomeCancelled), punctual.ErrNotFound)
	}
	m.moveTo(storekit.Millis(due), since(a.Due, now))
	return m.wait(), punctual.Amended{Due: due}
}
