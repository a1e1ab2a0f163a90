package lifecycle

import (
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Holder is what has an ID that is to be pushed. The zero Holder is a free ID.
type Holder struct {
	// State is that of the message with the ID, or StateNone when there is none, it has finished,
	// or it is dead and past its retention.
	State punctual.State
	// Due is the due time of the message, of a dead one as well because NewMessage.IfDue may ask
	// for it. A store that has to read a dead message for it may leave it out unless the push has
	// an IfDue. Died is when a dead message died.
	Due, Died int64
	// Remembered tells that the ID is that of a finished message and not forgotten yet. It counts
	// for StateNone alone.
	Remembered bool
}

// Holder returns what a push of the message's ID meets at now.
func (m *Message) Holder(now int64) Holder {
	return Holder{State: m.State(now), Due: m.Due, Died: m.Died}
}

// Push decides what a push does whose ID may be in use (P7), and reports whether the new message is
// to be stored. Whatever has the ID then goes without a trace: the message, or the remembered ID.
// Of n it reads IfExists and IfDue.
//
// It answers in r, of which the caller has set ID and Topic. All other fields are set anew,
// whatever an earlier try has left in them. If the message is to be stored, the caller sets r.Due
// to the new due time, and should the holder turn out to have finished meanwhile, r.Status to
// PushStored.
func Push(n *punctual.NewMessage, h Holder, r *punctual.PushResult) (store bool) {
	*r = punctual.PushResult{ID: r.ID, Topic: r.Topic}
	on := n.IfExists
	dead := h.State == punctual.StateDead
	inUse := h.State != punctual.StateNone
	switch {
	case !n.IfDue.IsZero() && !inUse:
		r.Err = storekit.ChangedError(r.Topic, r.ID, time.Time{})
		return false
	case isAtAnother(h.Due, n.IfDue):
		r.Err = storekit.ChangedError(r.Topic, r.ID, storekit.FromMillis(h.Due))
		return false
	case !inUse && (!h.Remembered || on == punctual.IfExistsReplace):
		r.Status = punctual.PushStored
		return true
	case dead && (on == punctual.IfExistsKeep || on == punctual.IfExistsFail):
		r.Existing, r.Err = h.State, storekit.DuplicateError(r.Topic, r.ID, storekit.FromMillis(h.Died))
		return false
	case on == punctual.IfExistsFail:
		r.Err = storekit.DuplicateError(r.Topic, r.ID, time.Time{})
		return false
	case !dead && on != punctual.IfExistsReplace:
		r.Status, r.Existing = punctual.PushDuplicate, h.State
		if inUse {
			r.Due = storekit.FromMillis(h.Due)
		}
		return false
	}
	r.Status = punctual.PushReplaced
	return true
}

// isAtAnother tells whether a message that is due at due fails the condition ifDue of a push or an
// amendment. The zero Time is no condition.
func isAtAnother(due int64, ifDue time.Time) bool {
	return !ifDue.IsZero() && due != storekit.CeilMillis(ifDue)
}
