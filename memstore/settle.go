package memstore

import (
	"context"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// Settle implements punctual.Store.
func (s *Store) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := s.enterBatch(ctx, len(ss))
	if err != nil {
		return nil, err
	}
	out := make([]error, len(ss))
	for i := range ss {
		out[i] = s.settle(&ss[i], now)
	}
	s.wakeClaims()
	return out, nil
}

func (s *Store) settle(x *punctual.Settlement, now instant) error {
	if err := storekit.CheckSettlement(x, s.maxBody); err != nil {
		return err
	}
	t, m := s.find(x.Topic, x.ID, now)
	if m == nil {
		return storekit.SettleError(x, punctual.ErrLeaseLost)
	}
	d, err := lifecycle.Settle(&m.Message, x, &t.settings, now.fine)
	t.apply(m, d, now)
	return err
}
