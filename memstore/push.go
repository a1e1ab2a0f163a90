package memstore

import (
	"bytes"
	"context"
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
	if t != nil && t.settings.PushPaused {
		r.Err = storekit.PausedError(n.Topic)
		return r
	}
	if lifecycle.Push(n, t.holder(m.id, now), &r) {
		s.add(m, now)
		r.Due = storekit.FromMillis(m.Due)
	}
	return r
}

// holder returns what has an ID of the topic. A topic that does not exist is nil, and its IDs are
// free.
func (t *topic) holder(id string, now instant) lifecycle.Holder {
	if t == nil {
		return lifecycle.Holder{}
	}
	if m := t.messages[id]; m != nil {
		return m.Holder(now.ms)
	}
	return lifecycle.Holder{Remembered: t.remembered.byID[id] != nil}
}

// add stores a message that was pushed, and adds the event if its topic tells of it.
func (s *Store) add(m *message, now instant) {
	s.put(m, now)
	if e, tell := m.PushEvent(&s.topics[m.topic].settings, now.ms); tell {
		s.tell(m, e, now)
	}
}

// put stores a message, in the place of the one that has its ID. It makes the topic if there is
// none.
func (s *Store) put(m *message, now instant) {
	t := s.ensure(m.topic, m.attributes.Key != "")
	if old := t.messages[m.id]; old != nil {
		t.remove(old, now)
	}
	t.add(m, now)
}

// keySettings returns the settings that say whether messages of the topic may have keys: its own,
// or while there is no such topic those of the one that it is a companion of. They are nil if there
// is neither.
func (s *Store) keySettings(name string) *punctual.Settings {
	of, _ := storekit.Companion(name)
	for _, name := range [...]string{name, of} {
		if t := s.topics[name]; t != nil {
			return &t.settings
		}
	}
	return nil
}

// ensure returns a topic and makes it if there is none, with keys if keyed is true. With a
// companion it makes the topic that the companion belongs to, and the companion has keys if that
// topic has.
func (s *Store) ensure(name string, keyed bool) *topic {
	if t := s.topics[name]; t != nil {
		return t
	}
	t := newTopic()
	if parent, companion := storekit.Companion(name); companion != "" {
		keyed = s.ensure(parent, keyed).settings.Keyed
		s.arrivals.Tell()
	}
	t.settings.Keyed = keyed
	s.made++
	t.number = s.made
	s.topics[name] = t
	return t
}

// newMessage returns the message to store for n, or the error of a malformed n. It copies the body
// and the headers.
func (s *Store) newMessage(n *punctual.NewMessage, now instant) (*message, error) {
	if err := storekit.CheckPush(n, s.maxBody); err != nil {
		return nil, err
	}
	due, err := storekit.DueAt(now.fine, n.Due, n.Delay)
	if err == nil && n.Key != "" {
		err = storekit.CheckKeyed(n, s.keySettings(n.Topic))
	}
	if err != nil {
		return nil, err
	}
	s.seq++
	m := &message{Message: lifecycle.New(n, storekit.Millis(due), now.ms), id: n.ID, topic: n.Topic, created: now.ms, seq: s.seq, attributes: storekit.NewAttributes(n).Whole()}
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
