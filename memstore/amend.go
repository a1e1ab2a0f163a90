package memstore

import (
	"context"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
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
		out[i] = s.amend(&as[i], now)
	}
	s.wakeClaims()
	return out, nil
}

func (s *Store) amend(a *punctual.Amendment, now instant) punctual.Amended {
	if err := storekit.CheckAmendment(a); err != nil {
		return punctual.Amended{Err: err}
	}
	due, err := lifecycle.AmendDue(a, now.fine)
	if err != nil {
		return punctual.Amended{Err: err}
	}
	t, m := s.find(a.Topic, a.ID, now)
	if m == nil {
		return punctual.Amended{Err: storekit.AmendError(a, punctual.ErrNotFound)}
	}
	d, out := lifecycle.Amend(&m.Message, m.State(now.ms), a, due, now.ms)
	s.apply(t, m, d, now)
	return out
}
