package memstore

import (
	"github.com/punctualmq/punctual/event"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// tell stores the message that tells of an event of m, and wakes the claims that wait for it.
func (s *Store) tell(m *message, e event.Event, now instant) {
	e.Topic, e.ID, e.Created = m.topic, m.id, storekit.FromMillis(m.created)
	s.existing(storekit.EventTopic(m.topic), now) // drops old events
	s.token++                                     // the number of the event, so that the IDs of events are in the order of the events
	s.seq++
	n := storekit.EventMessage(&e, storekit.EventID("0", s.token), s.topics[m.topic].settings.EmitKeep)
	s.put(&message{Message: lifecycle.New(&n, now.ms, now.ms), id: n.ID, topic: n.Topic, body: n.Body, created: now.ms, seq: s.seq}, now)
	s.wakeClaims()
}

// sweptAtOnce is how many messages one call of sweepEvents checks beside the first ones.
const sweptAtOnce = 64

// sweepEvents drops the topic's events that have expired, as a claim would: the first ones, and
// some of those behind messages that do not expire. To find the latter, each call checks a part of
// the queue, and goes on where the last call has stopped.
func (s *Store) sweepEvents(t *topic, now instant) {
	for len(t.live) > 0 && t.live[0].At() <= now.ms && s.end(t, t.live[0], now) {
	}
	var next []*message
	for range min(len(t.live), sweptAtOnce) {
		t.swept = (t.swept + 1) % len(t.live)
		next = append(next, t.live[t.swept])
	}
	for _, m := range next {
		if m.At() <= now.ms && m.DropExpired {
			s.end(t, m, now)
		}
	}
}
