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
	facts := m.Message // a copy, because a follow-up may be refused
	d, err := lifecycle.Settle(&facts, x, &t.settings, now.fine)
	var follow []*message
	if err == nil {
		if follow, err = s.followUps(x, facts.Behind(d, &t.settings, now.ms), now); err != nil {
			return err
		}
	}
	m.Message = facts
	s.apply(t, m, d, now)
	for _, f := range follow { // a topic that they make has keys if any of them has one
		if f.attributes.Key != "" {
			s.ensure(f.topic, true)
		}
	}
	for _, f := range follow {
		s.add(f, now)
	}
	return err
}

// followUps returns the messages that are to be stored after the settlement x, or the error of a
// follow-up that is refused. own is what has the ID of the settled message then.
func (s *Store) followUps(x *punctual.Settlement, own lifecycle.Holder, now instant) (stored []*message, err error) {
	for i := range x.Then {
		n := &x.Then[i]
		m, err := s.newMessage(n, now)
		if err != nil {
			return nil, storekit.FollowUpError(i, err)
		}
		t := s.existing(n.Topic, now)
		h := t.holder(m.id, now)
		if lifecycle.IsItself(x, n) {
			h = own
		}
		var set *punctual.Settings
		if t != nil {
			set = &t.settings
		}
		r := punctual.PushResult{ID: m.id, Topic: m.topic}
		store, err := lifecycle.FollowUp(x, i, h, set, &r)
		if err != nil {
			return nil, err
		}
		if store {
			stored = append(stored, m)
		}
	}
	return stored, nil
}
