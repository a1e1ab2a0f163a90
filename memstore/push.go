package memstore

import (
	"bytes"
	"context"
	"fmt"
	"maps"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
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
	r.ID = m.id
	t := s.existing(n.Topic, now)
	if t == nil {
		t = newTopic()
		s.topics[n.Topic] = t
	}
	if t.settings.PushPaused {
		r.Err = fmt.Errorf("push to %s: %w", n.Topic, punctual.ErrPaused)
		return r
	}
	var h lifecycle.Holder
	old := t.messages[m.id]
	if old != nil {
		h = old.Holder(now.ms)
	} else {
		h.Remembered = t.remembered.byID[m.id] != nil
	}
	if !lifecycle.Push(n.IfExists, h, &r) {
		return r
	}
	if old != nil {
		t.remove(old)
	}
	t.add(m)
	r.Due = storekit.FromMillis(m.Due)
	return r
}

// newMessage returns the message to store for n, or the error of a malformed n. It copies the body and the headers.
func (s *Store) newMessage(n *punctual.NewMessage, now instant) (*message, error) {
	if err := storekit.CheckPush(n, s.maxBody); err != nil {
		return nil, err
	}
	due, err := storekit.DueAt(now.fine, n.Due, n.Delay)
	if err != nil {
		return nil, err
	}
	s.seq++
	m := &message{Message: lifecycle.New(n, storekit.Millis(due)), id: n.ID, topic: n.Topic, created: now.ms, seq: s.seq}
	if m.id == "" {
		m.id = storekit.NewID(now.fine)
	}
	if len(n.Body) > 0 {
		m.body = bytes.Clone(n.Body)
	}
	if len(n.Headers) > 0 {
		m.headers = maps.Clone(n.Headers)
	}
	return m, nil
}
