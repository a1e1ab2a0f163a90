package diskstore

import (
	"cmp"
	"context"
	"fmt"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/database"
	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/diskstore/internal/topics"
	"github.com/punctualmq/punctual/diskstore/internal/writer"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// Push stores messages; see punctual.Store. It returns after the fsync, which all calls share that
// wait at that moment. Messages of more than 8 MiB in all are stored in several steps. If a later
// step certainly did not happen, its messages and those after it alone have that error.
func (s *Store) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	if err := s.admit(ctx, storekit.CheckBatch(len(ms))); err != nil {
		return nil, fmt.Errorf("push: %w", err)
	}
	if err := s.state.Enter(); err != nil {
		return nil, fmt.Errorf("push: %w", err)
	}
	defer s.state.Leave()
	results := make([]punctual.PushResult, len(ms))
	next := 0
	looks, err := s.lookUpPushed(ms)
	if err != nil {
		return nil, fmt.Errorf("push: %w", err)
	}
	defer looks.Close()
	bytes := uint64(0)
	for i := range ms {
		bytes += uint64(len(ms[i].Body))
	}
	for next < len(ms) && err == nil { // in as many transactions as they need
		if err = s.owned.CheckSpace(bytes, s.db.Unwritten); err == nil {
			bytes = 0 // counted
			next, err = s.writer.Some(ctx, next, len(ms), func(tx *writer.Tx, i int) (err error) {
				results[i], err = decidePush(tx, &ms[i], s.opt.MaxBody, looks.At(i))
				return err
			})
		}
	}
	if err != nil && !restAlone(next, err) {
		return nil, fmt.Errorf("push: %w", err)
	}
	for i := next; i < len(ms); i++ {
		results[i] = punctual.PushResult{ID: ms[i].ID, Topic: ms[i].Topic, Err: fmt.Errorf("push: %w", err)}
	}
	return results, nil
}

// lookUpPushed looks up the IDs that the pusher chose, before the push waits for the write lock. It
// returns nil if there are none to look up.
func (s *Store) lookUpPushed(ms []punctual.NewMessage) (*database.Looks, error) {
	var asks []database.Ask
	for i := range ms {
		a := s.askNew(&ms[i])
		if a.Topic == nil {
			continue
		}
		if asks == nil {
			asks = make([]database.Ask, len(ms))
		}
		asks[i] = a
	}
	return s.lookUp(asks)
}

// askNew returns what to look up for a message to be pushed: its ID, or nothing if the store is to
// make the ID or the topic.
func (s *Store) askNew(m *punctual.NewMessage) (a database.Ask) {
	if m.ID == "" {
		return a
	}
	if t := s.topics.Get(m.Topic); t != nil {
		a = database.Ask{Topic: t.Disk, ID: m.ID, New: true}
	}
	return a
}

// lookUp looks IDs up without the write lock. It returns nil if asks is nil.
func (s *Store) lookUp(asks []database.Ask) (*database.Looks, error) {
	if asks == nil {
		return nil, nil
	}
	looks, err := s.db.LookUp(asks)
	if s.opt.looked != nil {
		s.opt.looked()
	}
	return looks, err
}

// decidePush adds one message to the transaction. A refused message has its reason in the result;
// the error is one of reading the database.
func decidePush(tx *writer.Tx, m *punctual.NewMessage, maxBody int, look *database.Look) (punctual.PushResult, error) {
	res := punctual.PushResult{ID: m.ID, Topic: m.Topic}
	if res.Err = cmp.Or(storekit.CheckPush(m, maxBody), storekit.CheckNoKey(m)); res.Err != nil {
		return res, nil
	}
	due, err := storekit.DueAt(tx.Now, m.Due, m.Delay)
	if err != nil {
		res.Err = err
		return res, nil
	}
	if m.ID == "" {
		res.ID = storekit.NewID(tx.Now)
	}
	t := tx.Existing(m.Topic)
	if t != nil && t.Settings().PushPaused {
		res.Err = storekit.PausedError(t.Name)
		return res, nil
	}
	if m.ID == "" {
		res.Status = punctual.PushStored
	} else if free, err := makeFree(tx, t, m, look, &res); err != nil || !free {
		return res, err
	}
	if t, err = tx.Topic(m.Topic); err != nil { // the topic is new and cannot be made, so no ID in it has been freed
		res.Status, res.Err = punctual.PushNone, err
		return res, nil
	}
	res.Due = due
	insert(tx, t, m, res.ID, storekit.Millis(due))
	return res, nil
}

// insert stores a new message, whose ID is free.
func insert(tx *writer.Tx, t *topics.Topic, m *punctual.NewMessage, id string, due int64) {
	tx.Insert(t, &record.Record{
		Message: lifecycle.New(m, due, tx.Ms), ID: id, Created: tx.Ms, Headers: m.Headers, Body: m.Body, Attributes: storekit.NewAttributes(m).Block(),
	})
}

// holder is what has the ID of a message to be pushed: a message, the memory of a finished one, or
// nothing.
type holder struct {
	lifecycle.Holder
	found writer.Found // the message that has the ID, if there is one
}

// isLive tells whether a live message has the ID.
func (h *holder) isLive() bool { return h.found.Exists() && h.State != punctual.StateDead }

// holderOf looks for what has the ID of a message to be pushed. t is its topic, or nil if there is
// none yet.
func holderOf(tx *writer.Tx, t *topics.Topic, m *punctual.NewMessage, look *database.Look) (h holder, err error) {
	if t == nil {
		return h, nil
	}
	if h.found, err = tx.Find(t, m.ID, look); err != nil {
		return h, err
	}
	h.State, h.Due, h.Died = h.found.State, h.found.Due, h.found.Place.At.Ms // the last counts if the message is dead
	switch {
	case !h.found.Exists():
		h.Remembered, err = tx.Maintenance().Remembered(t.Disk, m.ID, look)
	case h.State == punctual.StateDead && !m.IfDue.IsZero():
		h.Due, err = dueOfDead(tx, h.found)
	}
	return h, err
}

// dueOfDead returns when a dead message was due, which only its record says.
func dueOfDead(tx *writer.Tx, f writer.Found) (int64, error) {
	r, err := tx.Read(f, nil)
	if err != nil {
		return 0, err
	}
	return r.Due, nil
}

// makeFree frees the ID of a message to be pushed if it is in use and the push may replace its
// holder (P7). It returns false when the push is not to be stored; the result says why.
func makeFree(tx *writer.Tx, t *topics.Topic, m *punctual.NewMessage, look *database.Look, res *punctual.PushResult) (bool, error) {
	h, err := holderOf(tx, t, m, look)
	if err != nil || !lifecycle.Push(m, h.Holder, res) {
		return false, err
	}
	switch {
	case h.Remembered:
		tx.Maintenance().Forget(t.Disk, m.ID)
	case h.found.Exists() && !remove(tx, h.found): // the message was acked since it was found, so the ID is free
		return lifecycle.Push(m, lifecycle.Holder{}, res), nil
	}
	return true, nil
}

// remove deletes a message, dead or live, without a trace. It returns false when the message was
// acked since it was found.
func remove(tx *writer.Tx, f writer.Found) bool {
	if f.State == punctual.StateDead {
		tx.RemoveDead(f)
		return true
	}
	d, ok := tx.Detach(f)
	if ok {
		tx.Remove(d, f.ID)
	}
	return ok
}
