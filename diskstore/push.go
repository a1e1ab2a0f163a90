package diskstore

import (
	"context"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/diskstore/internal/topics"
	"github.com/punctualmq/punctual/diskstore/internal/writer"
	"github.com/punctualmq/punctual/storekit"
)

// Push stores messages; see punctual.Store. It returns after the fsync, which it shares
// with everyone who waits at that moment. Messages of more than 8 MiB in all are stored in several steps.
// If a later step cannot be made, its messages alone have that error.
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
	var err error
	for next < len(ms) && err == nil { // in as many transactions as they need
		if err = s.owned.CheckSpace(); err == nil {
			next, err = s.writer.Some(ctx, next, len(ms), func(tx *writer.Tx, i int) (err error) {
				results[i], err = pushOne(tx, &ms[i], s.opt.MaxBody)
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

// pushOne adds one message to the transaction. The error is one of reading the
// database; a refused message has its reason in the result.
func pushOne(tx *writer.Tx, m *punctual.NewMessage, maxBody int) (punctual.PushResult, error) {
	res := punctual.PushResult{ID: m.ID, Topic: m.Topic}
	if res.Err = storekit.CheckPush(m, maxBody); res.Err != nil {
		return res, nil
	}
	if res.Due, res.Err = storekit.DueAt(tx.Now, m.Due, m.Delay); res.Err != nil {
		return punctual.PushResult{ID: m.ID, Topic: m.Topic, Err: res.Err}, nil
	}
	if m.ID == "" {
		res.ID = storekit.NewID(tx.Now)
	}
	t, err := tx.Topic(m.Topic)
	if err == nil && t.Settings().PushPaused {
		err = fmt.Errorf("topic %s takes no messages: %w", t.Name, punctual.ErrPaused)
	}
	if err != nil {
		return punctual.PushResult{ID: res.ID, Topic: m.Topic, Err: err}, nil
	}
	res.Status = punctual.PushStored
	if m.ID != "" {
		if free, err := makeFree(tx, t, m, &res); err != nil || !free {
			return res, err
		}
	}
	r := &record.Record{
		ID: res.ID, MaxAttempts: m.MaxAttempts, Created: tx.Ms,
		ExpireAfter: storekit.CeilDuration(m.ExpireAfter), DropExpired: m.DropExpired,
		Remember: storekit.CeilDuration(m.Remember),
		Headers:  m.Headers, Body: m.Body,
	}
	r.SetDue(storekit.Millis(res.Due))
	tx.Insert(t, r)
	return res, nil
}

// makeFree sees to it that no message holds the ID that a pusher chose (P7). Otherwise it is false, and the result says why.
func makeFree(tx *writer.Tx, t *topics.Topic, m *punctual.NewMessage, res *punctual.PushResult) (bool, error) {
	old, err := tx.Find(t, m.ID)
	if err != nil {
		return false, err
	}
	remembered := false
	if !old.Exists() {
		if remembered, err = tx.Maintenance().Remembered(t.Disk, m.ID); err != nil {
			return false, err
		}
	}
	dead := old.State == punctual.StateDead
	switch {
	case !old.Exists() && !remembered:
	case !old.Exists() && m.IfExists == punctual.IfExistsReplace:
		tx.Maintenance().Forget(t.Disk, m.ID) // the ID is in use again
	case dead && (m.IfExists == punctual.IfExistsKeep || m.IfExists == punctual.IfExistsFail):
		died := storekit.FromMillis(old.Place.At.Ms)
		*res = punctual.PushResult{ID: m.ID, Topic: m.Topic, Existing: punctual.StateDead, Err: storekit.DuplicateError(t.Name, m.ID, died)}
		return false, nil
	case m.IfExists == punctual.IfExistsFail:
		*res = punctual.PushResult{ID: m.ID, Topic: m.Topic, Err: storekit.DuplicateError(t.Name, m.ID, time.Time{})}
		return false, nil
	case !dead && m.IfExists != punctual.IfExistsReplace:
		res.Status, res.Existing = punctual.PushDuplicate, old.State
		if res.Due = (time.Time{}); old.Exists() {
			res.Due = storekit.FromMillis(old.Place.At.Ms)
		}
		return false, nil
	case remove(tx, old):
		res.Status = punctual.PushReplaced
	}
	return true, nil
}

// remove takes a message away, dead or alive. It is false when the message was acked since it was found.
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
