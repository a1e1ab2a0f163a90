package diskstore

import (
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/database"
	"github.com/punctualmq/punctual/diskstore/internal/memory"
	"github.com/punctualmq/punctual/diskstore/internal/writer"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// A settlement with follow-ups takes three steps, all with the write lock held (invariants 1 and 2
// in doc.go):
//
//  1. It decides on the settlement and on each follow-up, and then makes the topics of the
//     follow-ups. No message has changed then, so a refusal leaves everything as it was.
//  2. In one step of memory it takes out the settled message and those that follow-ups replace,
//     unless the lease has ended, or one of the messages on which it has decided was acked in
//     between, because acks need no write lock. Then it decides anew.
//  3. It writes all of it into the transaction. The batch of the database is atomic, so a kill or a
//     power cut leaves the whole settlement or nothing of it. The follow-ups become claimable when
//     the batch is durable, which wakes the claims that wait for them.
//
// After step 2 the settlement reads nothing from disk, because a message that has left memory and
// is not changed on disk ends the store. The exception is what telling of an event reads
// (Store.tell): if that fails, the store ends.

// followUp is a follow-up of a settlement, with what was decided about it.
type followUp struct {
	m      *punctual.NewMessage
	id     string // the ID of m, or the one that the store has made
	due    int64
	stored bool // false if the ID is in use and the stored message is kept
	// itself says that the follow-up has the topic and the ID of the settled message.
	itself bool
	// has is the holder of the ID. If itself is set, has is the one after the settlement, without
	// has.found.
	has holder
}

// followUps are the follow-ups of one settlement, in order.
type followUps []followUp

// followUpLooks is what a call with follow-ups finds out before it waits for the write lock. It is
// nil for other calls.
type followUpLooks struct {
	noSpace error           // why follow-ups are refused as pushes are, or nil
	bytes   uint64          // of the bodies of all follow-ups, until CheckSpace has counted them
	looks   *database.Looks // of all follow-ups of the call
	first   []int           // the place of the first follow-up of each settlement in looks
}

// lookUpFollowUps looks up the IDs of all follow-ups of a call.
func (s *Store) lookUpFollowUps(ss []punctual.Settlement) (l *followUpLooks, err error) {
	n := 0
	for i := range ss {
		n += len(ss[i].Then)
	}
	if n == 0 {
		return nil, nil
	}
	l = &followUpLooks{first: make([]int, len(ss))}
	asks := make([]database.Ask, 0, n)
	for i := range ss {
		l.first[i] = len(asks)
		for j := range ss[i].Then {
			asks = append(asks, s.askNew(&ss[i].Then[j]))
			l.bytes += uint64(len(ss[i].Then[j].Body))
		}
	}
	l.looks, err = s.lookUp(asks)
	return l, err
}

// of returns what was found of the ID of the j-th follow-up of the i-th settlement.
func (l *followUpLooks) of(i, j int) *database.Look { return l.looks.At(l.first[i] + j) }

func (l *followUpLooks) close() {
	if l != nil {
		l.looks.Close()
	}
}

// decideFollowUps decides on the follow-ups of the settlement st, which is the n-th of its call,
// and makes their topics. own is what will have the ID of the settled message after the settlement.
// result is why a follow-up is refused; then nothing was changed. err is one of reading the
// database.
func decideFollowUps(
	tx *writer.Tx, st *punctual.Settlement, n int, own lifecycle.Holder, looks *followUpLooks,
) (follow followUps, result, err error) {
	if looks.noSpace != nil {
		return nil, storekit.FollowUpError(0, looks.noSpace), nil
	}
	follow = make(followUps, len(st.Then))
	for i := range follow {
		if result, err := follow[i].decide(tx, st, i, own, looks.of(n, i)); result != nil || err != nil {
			return nil, result, err
		}
	}
	return follow, follow.makeTopics(tx), nil
}

// decide decides on the i-th follow-up of a settlement. look is what was found of its ID without
// the write lock. result is why the follow-up is refused; err is one of reading the database.
func (f *followUp) decide(tx *writer.Tx, st *punctual.Settlement, i int, own lifecycle.Holder, look *database.Look) (result, err error) {
	f.m, f.id, f.itself = &st.Then[i], st.Then[i].ID, lifecycle.IsItself(st, &st.Then[i])
	due, err := storekit.DueAt(tx.Now, f.m.Due, f.m.Delay)
	if err != nil {
		return storekit.FollowUpError(i, err), nil
	}
	f.due = storekit.Millis(due)
	t := tx.Existing(f.m.Topic)
	switch {
	case f.itself:
		f.has.Holder = own
	case f.id == "":
		f.id = storekit.NewID(tx.Now)
	default:
		if f.has, err = holderOf(tx, t, f.m, look); err != nil {
			return nil, err
		}
	}
	var set *punctual.Settings
	if t != nil {
		set = t.Settings()
	}
	r := punctual.PushResult{ID: f.id, Topic: f.m.Topic}
	f.stored, result = lifecycle.FollowUp(st, i, f.has.Holder, set, &r)
	return result, nil
}

// makeTopics makes the topics of the follow-ups that there are not yet. It does so before anything
// leaves memory, because the store may have no numbers left for topics; then it makes none and
// returns why the settlement is refused.
func (follow followUps) makeTopics(tx *writer.Tx) error {
	var names []string
	first := 0
	for i := range follow {
		if f := &follow[i]; tx.Existing(f.m.Topic) == nil {
			if names == nil {
				first = i
			}
			names = append(names, f.m.Topic)
		}
	}
	if names == nil {
		return nil
	}
	if err := tx.MakeTopics(names...); err != nil {
		return storekit.FollowUpError(first, err)
	}
	return nil
}

// detach takes the settled message and those that follow-ups replace out of memory. ok is false,
// and nothing has left memory, when the decisions do not hold any more.
func (follow followUps) detach(tx *writer.Tx, h memory.Held) (d memory.Detached, replaced []memory.Detached, ok bool) {
	if follow == nil {
		d, ok = tx.DetachHeld(h)
		return d, nil, ok
	}
	var beside []writer.Beside
	for i := range follow {
		if f := &follow[i]; f.has.isLive() {
			beside = append(beside, writer.Beside{Found: f.has.found, Goes: f.stored})
		}
	}
	return tx.DetachTogether(h, beside)
}

// store writes the follow-ups into the transaction, after the settlement. replaced are the messages
// that detach has taken out of memory because follow-ups replace them.
func (follow followUps) store(tx *writer.Tx, replaced []memory.Detached) error {
	for i := range follow {
		f := &follow[i]
		if !f.stored {
			continue
		}
		t := tx.Existing(f.m.Topic)
		switch {
		case f.itself && f.has.State != punctual.StateNone: // this transaction has stored the settled message anew, with a later due time or as dead
			found, err := tx.Find(t, f.id, nil)
			if err != nil {
				return err
			}
			remove(tx, found)
		case f.has.isLive():
			tx.Remove(replaced[0], f.id)
			replaced = replaced[1:]
		case f.has.found.Exists():
			tx.RemoveDead(f.has.found)
		case f.has.Remembered:
			tx.Maintenance().Forget(t.Disk, f.id)
		}
		insert(tx, t, f.m, f.id, f.due)
	}
	return nil
}
