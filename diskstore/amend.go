package diskstore

import (
	"context"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/diskstore/internal/writer"
	"github.com/punctualmq/punctual/storekit"
)

// Amend cancels, reschedules, requeues or deletes messages by ID; see punctual.Store. Amendments that move more
// than 8 MiB in all are made in several steps. If a later step cannot be made, its items alone have that
// error.
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
	var err error
	for next < len(as) && err == nil { // in as many transactions as they need
		next, err = s.writer.Some(ctx, next, len(as), func(tx *writer.Tx, i int) (err error) {
			answers[i].Due, answers[i].Err, err = s.amend(tx, &as[i])
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

// amend adds one amendment to the transaction. result is what the caller is told; err is one of reading the database.
func (s *Store) amend(tx *writer.Tx, a *punctual.Amendment) (due time.Time, result, err error) {
	if result := storekit.CheckAmendment(a); result != nil {
		return due, result, nil
	}
	if storekit.Moves(a.Change) {
		if due, result = storekit.DueAt(tx.Now, a.Due, a.Delay); result != nil {
			return time.Time{}, result, nil
		}
	}
	var f writer.Found
	if t := s.topics.Get(a.Topic); t != nil {
		if f, err = tx.Find(t, a.ID); err != nil {
			return time.Time{}, nil, err
		}
	}
	dead := f.State == punctual.StateDead
	switch {
	case f.Exists() && a.Change == punctual.ChangeDelete:
		if !remove(tx, f) { // acked since it was found
			result = punctual.ErrNotFound
		}
	case !f.Exists():
		result = punctual.ErrNotFound
	case dead && a.Change != punctual.ChangeRequeue:
		return time.Time{}, storekit.AmendDeadError(a), nil
	case !dead && a.Change == punctual.ChangeRequeue:
		result = punctual.ErrNotDead
	case dead:
		err = requeue(tx, f, due)
	case a.Change == punctual.ChangeCancel:
		result, err = cancel(tx, f)
	default:
		result, err = reschedule(tx, f, due)
	}
	if result != nil {
		return time.Time{}, storekit.AmendError(a, result), err
	}
	return due, nil, err
}

// cancel removes a message, or marks it when it is leased (P5).
func cancel(tx *writer.Tx, f writer.Found) (result, err error) {
	var r *record.Record
	if writer.KeepsRecord(f) { // nobody else reads it
		if r, err = tx.Read(f); err != nil {
			return nil, err
		}
	}
	d, leased, ok, err := tx.Cancel(f)
	switch {
	case leased:
		return punctual.ErrLeased, err
	case !ok:
		return punctual.ErrNotFound, nil
	}
	if r != nil {
		d.Lease.AddTo(r)
	}
	tx.Finish(d, f.ID, punctual.OutcomeCancelled, r)
	return nil, nil
}

// reschedule moves a message that is not leased, with all that its leases added.
func reschedule(tx *writer.Tx, f writer.Found, due time.Time) (result, err error) {
	r, err := tx.Read(f)
	if err != nil {
		return nil, err
	}
	d, leased, ok := tx.DetachUnleased(f)
	switch {
	case leased:
		return punctual.ErrLeased, nil
	case !ok:
		return punctual.ErrNotFound, nil
	case r.Cancel: // it was to get no attempt after its last lease, which ran out
		d.Lease.AddTo(r)
		tx.Finish(d, f.ID, punctual.OutcomeCancelled, r)
		return punctual.ErrNotFound, nil
	}
	d.Lease.AddTo(r)
	r.SetDue(storekit.Millis(due))
	tx.Move(d, r)
	return nil, nil
}

// requeue moves a dead message back to the living, its attempts starting anew.
func requeue(tx *writer.Tx, f writer.Found, due time.Time) error {
	r, err := tx.Read(f)
	if err != nil {
		return err
	}
	r.Cancel, r.Attempts = false, 0
	r.SetDue(storekit.Millis(due))
	tx.Requeue(f, r)
	return nil
}
