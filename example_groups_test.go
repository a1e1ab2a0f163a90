package punctual_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/worker"
)

// An order that is closed matters to three services. Until it is due it is one message, which is cancelled once for all of them.
// Then each service has a copy of its own, and the failure of one is no concern of the others.
func ExampleGroupTopic() {
	ctx := context.Background()
	clock := storekit.NewManualClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	store := memstore.New(&memstore.Options{Clock: clock})
	defer store.Close()
	q := punctual.NewQueue(store, nil)

	_, err := q.Configure(ctx, "order.close", func(s *punctual.Settings) { s.Groups = []string{"billing", "mail", "stock"} })
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, id := range []string{"A-17", "A-18"} {
		if _, err := q.Push(ctx, "order.close", nil, punctual.ID(id), punctual.In(30*time.Minute)); err != nil {
			fmt.Println("not stored:", err)
			return
		}
	}
	fmt.Println("A-18 is paid:", q.Cancel(ctx, "order.close", "A-18"))

	w := worker.New(store, nil) // in three programs as well as in one
	for _, group := range []string{"billing", "mail", "stock"} {
		w.HandleGroup("order.close", group, punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
			if group == "stock" {
				return punctual.Discard(errors.New("no such shelf"))
			}
			fmt.Println(d.Delivered.Format(time.TimeOnly), group, "closes", d.ID)
			return nil
		}))
	}
	clock.Advance(30 * time.Minute)
	if _, err := w.Drain(ctx); err != nil {
		fmt.Println(err)
		return
	}
	stats, err := q.Stats(ctx, punctual.GroupTopic("order.close", "stock"))
	fmt.Println(stats.Topic, "has", stats.Dead, "dead letter", err)

	// Output:
	// A-18 is paid: <nil>
	// 12:30:00 billing closes A-17
	// 12:30:00 mail closes A-17
	// order.close@g.stock has 1 dead letter <nil>
}
