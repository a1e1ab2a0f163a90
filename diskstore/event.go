package diskstore

import (
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/topics"
	"github.com/punctualmq/punctual/diskstore/internal/writer"
	"github.com/punctualmq/punctual/event"
	"github.com/punctualmq/punctual/storekit"
)

// For each event of a topic that tells of events (punctual.Settings.Emit) a message is stored in a
// companion (storekit.EventTopic), in the transaction of the change. So there is exactly one for
// each change that a crash leaves. storekit.SweepEvents removes what the companion has kept for too
// long.

// tell adds the message that tells of e, an event of the topic t, to the transaction. The number of
// the message is in its ID, so that the IDs of a topic's events are in the order of the events.
func (s *Store) tell(tx *writer.Tx, t *topics.Topic, e *event.Event) error {
	events, err := tx.EventTopic(t)
	if err != nil {
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
