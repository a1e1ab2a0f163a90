package memstore

import (
	"context"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Push implements punctual.Store.
func (s *Store) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := s.enterBatch(ctx, len(ms))
	if err != nil {
		return nil, err
	}
	out := make([]punctual.PushResult, len(ms))
	for i := range ms {
		out[i] = s.push(&ms[i], now)
	}
	s.wakeClaims()
	return out, nil
}

func (s *Store) push(n *punctual.NewMessage, now instant) punctual.PushResult {
	r := punctual.PushResult{ID: n.ID, Topic: n.Topic}
	var m *message
	if m, r.Err = s.newMessage(n, now); r.Err != nil {
		return r
	}
	r.ID = m.ID
	t := s.existing(n.Topic, now)
	if t == nil {
		t = newTopic()
		s.topics[n.Topic] = t
	}
	if t.settings.PushPaused {
		r.Err = fmt.Errorf("push to %s: %w", n.Topic, punctual.ErrPaused)
		return r
	}
	t.take(m, n.IfExists, &r, now)
	return r
}

// take stores m unless its ID is taken and the message that has it is to stay, and says in
// r what it did (P7).
func (t *topic) take(m *message, on punctual.IfExists, r *punctual.PushResult, now instant) {
	old, finished := t.messages[m.ID], t.finished[m.ID]
	taken := old != nil || finished != nil
	dead := old != nil && old.state(now) == punctual.StateDead
	switch {
	case dead && (on == punctual.IfExistsKeep || on == punctual.IfExistsFail):
		r.Existing, r.Err = punctual.StateDead, storekit.DuplicateError(m.Topic, m.ID, storekit.FromMillis(old.at))
		return
	case taken && on == punctual.IfExistsFail:
		r.Err = storekit.DuplicateError(m.Topic, m.ID, time.Time{})
		return
	case taken && !dead && on != punctual.IfExistsReplace:
		r.Status = punctual.PushDuplicate
		if old != nil {
			r.Due, r.Existing = old.Due, old.state(now)
		}
		return
	case old != nil:
		t.remove(old)
		r.Status = punctual.PushReplaced
	default:
		r.Status = punctual.PushStored
	}
	t.add(m)
	r.Due = m.Due
}

// newMessage checks n and makes the message to store.
func (s *Store) newMessage(n *punctual.NewMessage, now instant) (*message, error) {
	if err := storekit.CheckPush(n, s.maxBody); err != nil {
		return nil, err
	}
	due, err := storekit.DueAt(now.fine, n.Due, n.Delay)
	if err != nil {
		return nil, err
	}
	id := n.ID
	if id == "" {
		id = storekit.NewID(now.fine)
	}
	s.seq++
	return &message{
		Message: copyMessage(punctual.Message{
			ID:          id,
			Topic:       n.Topic,
			Body:        n.Body,
			Headers:     n.Headers,
			Due:         due,
			FirstDue:    due,
			MaxAttempts: n.MaxAttempts,
			Created:     now.time(),
			Expires:     storekit.ExpiresAt(due, n.ExpireAfter),
			DropExpired: n.DropExpired,
			Remember:    storekit.WholeMillis(n.Remember),
		}),
		seq:         s.seq,
		expireAfter: n.ExpireAfter,
	}, nil
}

// moveTo gives m a new first due time; its expiry moves along.
func (m *message) moveTo(due time.Time) {
	m.Due, m.FirstDue = due, due
	m.Expires = storekit.ExpiresAt(due, m.expireAfter)
}
