package memstore

import (
	"context"
	"time"

	"github.com/punctualmq/punctual"
)

// Amend implements punctual.Store.
func (s *Store) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := s.enterBatch(ctx, len(as))
	if err != nil {
		return nil, err
	}
	out := make([]punctual.Outcome, len(as))
	for i := range as {
		out[i] = s.amend(&as[i], now)
	}
	s.wakeClaims()
	return out, nil
}

func (s *Store) amend(a *punctual.Amendment, now instant) punctual.Outcome {
	if err := a.Check(); err != nil {
		return punctual.Outcome{Err: err}
	}
	due, err := punctual.DueAt(now.fine, a.Due, a.Delay)
	if err != nil && a.Change != punctual.ChangeCancel {
		return punctual.Outcome{Err: err}
	}
	t, m := s.find(a.Topic, a.ID, now)
	if m == nil {
		return punctual.Outcome{Status: punctual.NotFound}
	}
	state := m.state(now)
	switch {
	case a.Change == punctual.ChangeRequeue:
		return t.requeue(m, state, due)
	case state == punctual.StateDead:
		return punctual.Outcome{Status: punctual.NotFound}
	case a.Change == punctual.ChangeCancel:
		return t.cancel(m, state, now)
	}
	return t.reschedule(m, state, due, now)
}

func (t *topic) cancel(m *message, state punctual.State, now instant) punctual.Outcome {
	if state == punctual.StateLeased {
		m.cancelRequested = true
		return punctual.Outcome{Status: punctual.TooLate}
	}
	t.finish(m, now)
	return punctual.Outcome{Status: punctual.Cancelled}
}

// reschedule moves a message that nobody works on. One that was cancelled under a lease
// that has run out must not come back by this (P5): it ends here instead.
func (t *topic) reschedule(m *message, state punctual.State, due time.Time, now instant) punctual.Outcome {
	if state == punctual.StateLeased {
		return punctual.Outcome{Status: punctual.TooLate}
	}
	if m.cancelRequested {
		t.finish(m, now)
		return punctual.Outcome{Status: punctual.NotFound}
	}
	m.moveTo(due)
	t.wait(m)
	return punctual.Outcome{Status: punctual.Rescheduled, Due: due}
}

func (t *topic) requeue(m *message, state punctual.State, due time.Time) punctual.Outcome {
	if state != punctual.StateDead {
		return punctual.Outcome{Status: punctual.NotDead}
	}
	m.moveTo(due)
	m.Attempt = 0
	t.revive(m)
	return punctual.Outcome{Status: punctual.Requeued, Due: due}
}
