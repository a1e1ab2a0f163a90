package lifecycle

import (
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Holder is what has an ID that is to be pushed. The zero Holder is a free ID.
type Holder struct {
	// State is that of the message with the ID, or StateNone when there is none, it has finished, or it is dead and past
	// its retention.
	State punctual.State
	// Due is the due time of a live message, and Died when a dead one died. Each is read in that state alone.
	Due, Died int64
	// Remembered tells that the ID is that of a finished message and not forgotten yet. It counts for StateNone alone.
	Remembered bool
}

// Holder returns what a push of the message's ID meets at now.
func (m *Message) Holder(now int64) Holder {
	return Holder{State: m.State(now), Due: m.Due, Died: m.Died}
}

// Push decides what a push does whose ID may be in use (P7), and reports whether the new message is to be stored. Whatever
// has the ID then goes without a trace: the message, or the remembered ID.
//
// It answers in r, of which the caller has set ID and Topic. All other fields are set anew, whatever an earlier try has
// left in them. If the message is to be stored, the caller sets r.Due to the new due time, and should the holder turn out
// to have finished meanwhile, r.Status to PushStored.
func Push(on punctual.IfExists, h Holder, r *punctual.PushResult) (store bool) {
	*r = punctual.PushResult{ID: r.ID, Topic: r.Topic}
	dead := h.State == punctual.StateDead
	inUse := h.State != punctual.StateNone
	switch {
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
