package worker

import (
	"context"
	"errors"
	"fmt"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/event"
	"github.com/punctualmq/punctual/storekit"
)

// HandleEvents registers f as the handler of what a topic tells of its messages (Settings.Emit): it
// is Handle of the companion events, such as orders@events for orders. The events of the topic's
// groups come there, too. What f returns decides about the message that carries the event, as for
// any handler, so an event may be delivered more than once. f recognises an event that it has had
// already by Event.Topic, Event.ID, Event.Event and Event.At together. The handlers of several
// processes share the events between them.
//
// A message that is no event, which somebody has pushed into the companion, is discarded. An event
// of a kind that this release does not know is retried, so that a newer worker can take it.
//
// The topic tells of nothing before its setting says so:
//
//	_, err := q.Configure(ctx, "orders", func(s *punctual.Settings) { s.Emit = punctual.EventDead | punctual.EventExpired })
func (w *Worker) HandleEvents(topic string, f func(ctx context.Context, e event.Event) error, opts ...HandleOption) {
	w.Handle(storekit.EventTopic(topic), punctual.HandlerFunc(func(ctx context.Context, d *punctual.Delivery) error {
		e, err := event.Parse(d.Body)
		if err != nil {
			err = fmt.Errorf("events of %s: %w", topic, err)
			if errors.Is(err, punctual.ErrInvalid) {
				return punctual.Discard(err)
			}
			return err
		}
		return f(ctx, e)
	}), opts...)
}
