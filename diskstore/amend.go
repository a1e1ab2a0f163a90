package diskstore

import (
	"context"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/database"
	"github.com/punctualmq/punctual/diskstore/internal/memory"
	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/diskstore/internal/writer"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// Amend cancels, reschedules, requeues or deletes messages by ID; see punctual.Store. Amendments
// that write more than 8 MiB in all are made in several steps. If a later step certainly did not
// happen, its items and those after it alone have that error.
func (s *Store) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	if err := s.admit(ctx, storekit.CheckBatch(len(as))); err != nil {
		return nil, fmt.Errorf("amend: %w", err)
	}
	if err := s.state.Enter(); err != nil {
		return nil, fmt.Errorf("amend: %w", err)
	}
	defer s.state.Leave()
	answers := make([]punctual.Amended, len(as))
	next := 0
	looks, err := s.lookUpAmended(as)
	if err != nil {
		return nil, fmt.Errorf("amend: %w", err)
	}
	defer looks.Close()
	for next < len(as) && err == nil { // in as many transactions as they need
		next, err = s.writer.Some(ctx, next, len(as), func(tx *writer.Tx, i int) (err error) {
			answers[i], err = s.amend(tx, &as[i], looks.At(i))
			return err
		})
	}
	if err != nil && !restAlone(next, err) {
		return nil, fmt.Errorf("amend: %w", err)
	}
	for i := next; i < len(as); i++ {
		answers[i] = punctual.Amended{Err: fmt.Errorf("amend: %w", err)}
	}
	return answers, nil
}

// lookUpAmended looks up the messages to amend, before the call waits for the write lock.
func (s *Store) lookUpAmended(as []punctual.Amendment) (*database.Looks, error) {
	asks := make([]database.Ask, len(as))
	for i := range as {
		if t := s.topics.Get(as[i].Topic); t != nil {
			cancel := as[i].Change == punctual.ChangeCancel
			asks[i] = database.Ask{
				Topic: t.Disk, ID: as[i].ID,
				Record:            storekit.Moves(as[i].Change) || cancel && writer.KeepsRecords(t.Settings(), punctual.EventCancelled),
				RecordIfRemembers: cancel,
			}
		}
	}
	return s.lookUp(asks)
}

// amend adds one amendment to the transaction, and returns what its caller is answered. err is one
// of reading the database.
func (s *Store) amend(tx *writer.Tx, a *punctual.Amendment, look *database.Look) (answer punctual.Amended, err error) {
	if err := storekit.CheckAmendment(a); err != nil {
		return punctual.Amended{Err: err}, nil
	}
	due, err := lifecycle.AmendDue(a, tx.Now)
	if err != nil {
		return punctual.Amended{Err: err}, nil
	}
	var f writer.Found
	if t := s.topics.Get(a.Topic); t != nil {
		if f, err = tx.Find(t, a.ID, look); err != nil {
			return answer, err
		}
	}
	return amendFound(tx, f, a, look, due)
}

// amendFound is amend once the message with the ID was looked for. A cancel reads the record of the
// message only if something of it is to be kept or told, or if a lease on the message is current. A
// cancel and a delete also read that of a dead message if the change depends on its due time. A
// live message leaves memory after its record was read, because a message that has left memory has
// to be changed on disk, and a read may fail.
func amendFound(tx *writer.Tx, f writer.Found, a *punctual.Amendment, look *database.Look, due time.Time) (answer punctual.Amended, err error) {
	r := &record.Record{ID: a.ID}
	r.Due = f.Due // of a live message
	dead := f.State == punctual.StateDead
	if f.Exists() && (storekit.Moves(a.Change) || a.Change == punctual.ChangeCancel && writer.KeepsRecord(f) || dead && !a.IfDue.IsZero()) {
		if r, err = tx.Read(f, look); err != nil {
			return answer, err
		}
		if !dead && r.Due != f.Due { // a step of the clock has moved it
			if r.FirstDue == r.Due {
				r.FirstDue = f.Due
			}
			r.Due = f.Due
		}
	}
	if !f.Exists() || dead {
		to, answer := lifecycle.Amend(&r.Message, f.State, a, due, tx.Ms)
		switch to.To {
		case lifecycle.Waiting:
			tx.Requeue(f, r)
		case lifecycle.Removed:
			tx.RemoveDead(f)
		}
		return answer, nil
	}
	if !a.IfDue.IsZero() {
		// The due time of a live message changes under the write lock alone. So a change that is
		// refused because of the due time is refused here, before the message leaves memory or is
		// marked as cancelled.
		facts := r.Message
		facts.CancelRequested = f.Cancelled
		if to, answer := lifecycle.Amend(&facts, f.State, a, due, tx.Ms); to.To == lifecycle.Stay {
			return answer, nil
		}
	}
	d, state, err := detach(tx, f, a.Change)
	if err != nil {
		return answer, err
	}
	d.Lease.AddTo(r)
	r.CancelRequested = r.CancelRequested || d.Cancelled
	to, answer := lifecycle.Amend(&r.Message, state, a, due, tx.Ms)
	if state == punctual.StateReady {
		tx.Apply(d, r, to)
	}
	return answer, nil
}

// detach takes a live message out of memory unless the change must leave it there, and returns its
// state at that very moment. A claim or an ack may have come since the message was found, because
// neither needs the write lock. The state is
//
//   - StateReady of a message that has left memory, whether it was due or not,
//   - StateLeased of one that stays because of its lease; a cancel is noted at the lease then,
//   - StateNone of one that was acked,
//   - StateScheduled of any message if the change is a requeue, which leaves a live message where
//     it is.
func detach(tx *writer.Tx, f writer.Found, change punctual.Change) (d memory.Detached, state punctual.State, err error) {
	leased, ok := false, false
	switch change {
	case punctual.ChangeRequeue: // only a dead message is requeued, so lifecycle.Amend refuses the change
		return d, punctual.StateScheduled, nil
	case punctual.ChangeDelete:
		d, ok = tx.Detach(f)
	case punctual.ChangeCancel:
		d, leased, ok, err = tx.Cancel(f)
	default:
		d, leased, ok = tx.DetachUnleased(f)
	}
	switch {
	case leased:
		return d, punctual.StateLeased, err
	case !ok:
		return d, punctual.StateNone, nil
	}
	return d, punctual.StateReady, nil
}
