package lifecycle

import (
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// FollowUp decides on the i-th follow-up of a settlement, from 0, for which Settle has returned no
// error. It reports whether the message is to be stored; one whose ID is in use, and is kept, is
// not, and that is no error. The error refuses the whole settlement: then the caller changes
// nothing, and answers with the error.
//
// The caller decides on the follow-ups in order and on all of them before it changes anything.
// Because no two of them have the same topic and ID, none meets what another one has stored. So for
// h the caller can look up what has the ID before the settlement. The one exception is a follow-up
// with the topic and the ID of the settled message (IsItself), for which h is Message.Behind. set
// are the settings of the follow-up's topic, or nil when there is no such topic yet.
//
// r is answered as by Push. The due time of the follow-up is the caller's matter: it calls
// storekit.DueAt first, and refuses the settlement with the storekit.FollowUpError of its error.
func FollowUp(x *punctual.Settlement, i int, h Holder, set *punctual.Settings, r *punctual.PushResult) (store bool, err error) {
	if set != nil && set.PushPaused {
		return false, storekit.FollowUpError(i, storekit.PausedError(x.Then[i].Topic))
	}
	store = Push(&x.Then[i], h, r)
	if r.Err != nil {
		return false, storekit.FollowUpError(i, r.Err)
	}
	return store, nil
}

// IsItself tells whether n, a follow-up of x, has the topic and the ID of the message that x
// settles.
func IsItself(x *punctual.Settlement, n *punctual.NewMessage) bool {
	return n.ID == x.ID && n.Topic == x.Topic
}

// Behind returns what a push of the message's ID meets right after the decision d was carried out.
// The facts are those that the deciding function has left, and set are the settings of the
// message's topic. For example, the ID of an acked message is free unless it is remembered, and
// that of a discarded one is held by a dead message.
func (m *Message) Behind(d Decision, set *punctual.Settings, now int64) Holder {
	switch d.To {
	case Finished:
		return Holder{Remembered: m.Keep(set, now).ID > now}
	case Removed:
		return Holder{}
	}
	return m.Holder(now)
}
