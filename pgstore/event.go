package pgstore

import (
	"context"
	"maps"
	"slices"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/event"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// The events of a topic that tells of what happens to its messages (Settings.Emit) are messages of
// its companion, such as orders@events. They are stored in the transaction that makes the change.
// Package storekit makes their bodies. So single statements that change messages, such as ack.sql,
// leave the messages of a topic that tells of the change, and a transaction of several steps
// follows. Topics that tell of nothing keep their single statements.

// toldEvent is an event that is to be stored.
type toldEvent struct {
	event event.Event
	keep  int64 // in ms: EmitKeep of the topic
}

// topic returns the topic of the message that tells of the event.
func (t toldEvent) topic() string { return storekit.EventTopic(t.event.Topic) }

// tell collects an event of a message.
func (c *changes) tell(n messageName, created int64, e event.Event, set *punctual.Settings) {
	e.Topic, e.ID, e.Created = n.topic, n.id, storekit.FromMillis(created)
	c.events = append(c.events, toldEvent{event: e, keep: storekit.CeilDuration(set.EmitKeep)})
}

// tellOfPush collects the event of a message that is stored, if its topic tells of pushes.
func (c *changes) tellOfPush(n messageName, m *punctual.NewMessage, due int64, set *punctual.Settings, now int64) {
	facts := lifecycle.New(m, due, now)
	if e, tell := facts.PushEvent(set, now); tell {
		c.tell(n, now, e, set)
	}
}

// topicsOf returns the topics of events, each once.
func topicsOf(events []toldEvent) []string {
	all := make(map[string]bool)
	for _, t := range events {
		all[t.topic()] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// all returns the step that writes the changes and the events in a transaction of the store's own.
func (c *changes) all() *step { return c.addEvents(c.step()) }

// addEvents adds the statements that store the events in a transaction of the store's own and make
// their topics if need be.
func (c *changes) addEvents(x *step) *step {
	if len(c.events) == 0 {
		return x
	}
	topics := topicsOf(c.events)
	c.db.addShare(x, topics, heldAlone)
	c.db.addCreate(x, withParents(topics), nil)
	return x.add("events", c.db.eventArgs(c.events), nil)
}

// eventArgs returns the arguments of events.sql.
func (db *database) eventArgs(events []toldEvent) []any {
	n := len(events)
	topics, bodies, at, keep := make([]string, n), make([][]byte, n), make([]int64, n), make([]int64, n)
	for i := range events {
		t := &events[i]
		topics[i], bodies[i], at[i], keep[i] = t.topic(), storekit.EventBody(&t.event), storekit.Millis(t.event.At), t.keep
	}
	return []any{topics, bodies, at, keep, db.epoch.Load().number}
}

// tell stores the events in the caller's transaction. A topic that does not exist is made on
// another connection if possible, as for a push.
func (w *callersTransaction) tell(ctx context.Context, _ stepper, c *changes) error {
	for left := c.events; len(left) > 0; {
		topics := topicsOf(left)
		var missing []string
		x := w.s.db.shareTopics(topics, 0).add("topics_keep", []any{topics}, nil)
		x.add("events", w.s.db.eventArgs(left), func(rows scanner) error {
			var topic string
			err := rows.Scan(&topic)
			missing = append(missing, topic)
			return err
		})
		if err := w.send(ctx, x); err != nil || len(missing) == 0 {
			return err
		}
		if err := w.s.topics.create(ctx, w, missing, nil, 0); err != nil {
			return err
		}
		left = slices.DeleteFunc(slices.Clone(left), func(t toldEvent) bool { return !slices.Contains(missing, t.topic()) })
	}
	return nil
}

// told notifies of events that were stored, and of topics where there may be room for a lease.
func (w *waits) told(events []toldEvent, room ...string) {
	come := w.coming()
	for _, t := range events {
		come.add(t.topic(), storekit.Millis(t.event.At))
	}
	for _, topic := range room {
		w.addRoom(&come, topic)
	}
	w.notify(come)
}
