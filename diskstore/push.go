package diskstore

import (
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

// Push stores messages; see punctual.Store. It returns after the fsync, which all calls share that wait at that moment.
// Messages of more than 8 MiB in all are stored in several steps. If a later step fails, its messages alone have that error.
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
	for next < len(ms) && err == nil { // in as many transactions as they need
		if err = s.owned.CheckSpace(); err == nil {
			next, err = s.writer.Some(ctx, next, len(ms), func(tx *writer.Tx, i int) (err error) {
				results[i], err = pushOne(tx, &ms[i], s.opt.MaxBody, looks.At(i))
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

// lookUpPushed looks up the IDs that pushers chose, before the push waits for the write lock. It is nil if they chose none.
func (s *Store) lookUpPushed(ms []punctual.NewMessage) (*database.Looks, error) {
	var asks []database.Ask
	for i := range ms {
		if ms[i].ID == "" {
			continue
		}
		if t := s.topics.Get(ms[i].Topic); t != nil {
			if asks == nil {
				asks = make([]database.Ask, len(ms))
			}
			asks[i] = database.Ask{Topic: t.Disk, ID: ms[i].ID, New: true}
		}
	}
	return s.lookUp(asks)
}

// lookUp looks IDs up without the write lock; nil if none is asked for.
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

// pushOne adds one message to the transaction. A refused message has its reason in the result; the error is one of reading
// the database.
func pushOne(tx *writer.Tx, m *punctual.NewMessage, maxBody int, look *database.Look) (punctual.PushResult, error) {
	res := punctual.PushResult{ID: m.ID, Topic: m.Topic}
	if res.Err = storekit.CheckPush(m, maxBody); res.Err != nil {
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
	t, err := tx.Topic(m.Topic)
	if err == nil && t.Settings().PushPaused {
		err = fmt.Errorf("topic %s takes no messages: %w", t.Name, punctual.ErrPaused)
	}
	if err != nil {
		res.Err = err
		return res, nil
	}
	if m.ID == "" {
		res.Status = punctual.PushStored
	} else if free, err := makeFree(tx, t, m, look, &res); err != nil || !free {
		return res, err
	}
	res.Due = due
	tx.Insert(t, &record.Record{
		Message: lifecycle.New(m, storekit.Millis(due)), ID: res.ID, Created: tx.Ms, Headers: m.Headers, Body: m.Body,
		Attributes: storekit.NewAttributes(m).Block(),
	})
	return res, nil
}

// makeFree frees the ID that a pusher chose if it is in use and the push may replace its holder (P7). It returns false when
// the push is not to be stored; the result says why.
func makeFree(tx *writer.Tx, t *topics.Topic, m *punctual.NewMessage, look *database.Look, res *punctual.PushResult) (bool, error) {
	old, err := tx.Find(t, m.ID, look)
	if err != nil {
		return false, err
	}
	h := lifecycle.Holder{State: old.State, Due: old.Place.At.Ms, Died: old.Place.At.Ms} // one of both is read, by its state
	if !old.Exists() {
		if h.Remembered, err = tx.Maintenance().Remembered(t.Disk, m.ID, look); err != nil {
			return false, err
		}
	}
	if !lifecycle.Push(m, h, res) {
		return false, nil
	}
	switch {
	case h.Remembered:
		tx.Maintenance().Forget(t.Disk, m.ID)
	case old.Exists() && !remove(tx, old): // acked since it was found
		res.Status = punctual.PushStored
	}
	return true, nil
}

// remove deletes a message, dead or live, without a trace. It returns false when the message was acked since it was found.
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
