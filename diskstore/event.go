package diskstore

import (
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/topics"
	"github.com/punctualmq/punctual/diskstore/internal/writer"
	"github.com/punctualmq/punctual/event"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// For each event of a topic that tells of events (punctual.Settings.Emit) a message is stored in a
// companion (storekit.EventTopic), in the transaction of the change. So there is exactly one for
// each change that a crash leaves. The transaction that stores an event also ends some of the
// messages that the companion has kept for too long.

// tell adds the message that tells of e, an event of the topic t, to the transaction. The number of
// the message is in its ID, so that the IDs of a topic's events are in the order of the events.
func (s *Store) tell(tx *writer.Tx, t *topics.Topic, e *event.Event) error {
	events, err := tx.EventTopic(t)
	if err != nil {
		return err
	}
	if err := sweepEvents(tx, events); err != nil {
		return err
	}
	m := storekit.EventMessage(e, storekit.EventID("0", int64(s.db.NextNumber())), t.Settings().EmitKeep)
	// Somebody may have pushed a message with this ID.
	if _, err := makeFree(tx, events, &m, nil, &punctual.PushResult{ID: m.ID, Topic: m.Topic}); err != nil {
		return err
	}
	insert(tx, events, &m, m.ID, tx.Ms)
	return nil
}

// sweepEvents ends the first messages of a companion of events, as a claim would, until it
// encounters one that a claim would deliver, or has tried storekit.MaxSweptEvents.
func sweepEvents(tx *writer.Tx, events *topics.Topic) error {
	for range storekit.MaxSweptEvents {
		f, r, err := tx.First(events)
		if err != nil || r == nil {
			return err
		}
		to := lifecycle.Meet(&r.Message, events.Settings(), tx.Ms)
		if to.To == lifecycle.Stay {
			return nil
		}
		if d, ok := tx.DetachFirst(events, f); ok { // else a claim or a settlement has acted on the message meanwhile
			tx.Apply(d, r, to)
		}
	}
	return nil
}
