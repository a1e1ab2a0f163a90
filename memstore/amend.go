package memstore

import (
	"context"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Amend implements punctual.Store.
func (s *Store) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := s.enterBatch(ctx, len(as))
	if err != nil {
		return nil, err
	}
	out := make([]punctual.Amended, len(as))
	for i := range as {
		out[i].Due, out[i].Err = s.amend(&as[i], now)
	}
	s.wakeClaims()
	return out, nil
}

func (s *Store) amend(a *punctual.Amendment, now instant) (time.Time, error) {
	if err := storekit.CheckAmendment(a); err != nil {
		return time.Time{}, err
	}
	due, err := storekit.DueAt(now.fine, a.Due, a.Delay)
	if err != nil && storekit.Moves(a.Change) {
		return time.Time{}, err
	}
	t, m := s.find(a.Topic, a.ID, now)
	switch {
	case m == nil:
		err = punctual.ErrNotFound
	case a.Change == punctual.ChangeDelete:
		due = time.Time{}
		t.remove(m)
	case a.Change == punctual.ChangeRequeue:
		err = t.requeue(m, now, due)
	case m.state(now) == punctual.StateDead:
		return time.Time{}, storekit.AmendDeadError(a)
	case a.Change == punctual.ChangeCancel:
		due, err = time.Time{}, t.cancel(m, now)
	default:
		err = t.reschedule(m, now, due)
	}
	if err != nil {
		return time.Time{}, storekit.AmendError(a, err)
	}
	return due, nil
}

func (t *topic) cancel(m *message, now instant) error {
	if m.state(now) == punctual.StateLeased {
		m.cancelRequested = true
		return punctual.ErrLeased
	}
	t.finish(m, punctual.OutcomeCancelled, now)
	return nil
}

// reschedule moves a message that nobody works on. One that was cancelled under a lease
// that has run out must not come back by this (P5): it ends here instead.
func (t *topic) reschedule(m *message, now instant, due time.Time) error {
	if m.state(now) == punctual.StateLeased {
		return punctual.ErrLeased
	}
	if m.cancelRequested {
		t.finish(m, punctual.OutcomeCancelled, now)
		return punctual.ErrNotFound
	}
	m.moveTo(due)
	t.wait(m)
	return nil
}

func (t *topic) requeue(m *message, now instant, due time.Time) error {
	if m.state(now) != punctual.StateDead {
		return punctual.ErrNotDead
	}
	m.moveTo(due)
	m.Attempt = 0
	t.revive(m)
	return nil
}
