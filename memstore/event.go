package memstore

import (
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// tell stores the message that tells of an event of m, and wakes the claims that wait for it.
func (s *Store) tell(m *message, e punctual.Event, now instant) {
	e.Topic, e.ID, e.Created = m.topic, m.id, storekit.FromMillis(m.created)
	name := storekit.EventTopic(m.topic)
	if t := s.existing(name, now); t != nil {
		s.sweepEvents(t, now)
	}
	s.token++ // the number of the event, so that the IDs of events are in the order of the events
	s.seq++
	n := storekit.EventMessage(&e, storekit.EventID("0", s.token), s.topics[m.topic].settings.EmitKeep)
	s.put(&message{Message: lifecycle.New(&n, now.ms, now.ms), id: n.ID, topic: n.Topic, body: n.Body, created: now.ms, seq: s.seq})
	s.wakeClaims()
}

// sweepEvents drops the first events of the topic that have expired, as a claim would.
func (s *Store) sweepEvents(t *topic, now instant) {
	for range storekit.MaxSweptEvents {
		if len(t.live) == 0 || t.live[0].At() > now.ms || !s.end(t, t.live[0], now) {
			return
		}
	}
}
