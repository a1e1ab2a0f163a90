package punctual_test

import (
	"context"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/worker"
)

// A handler that finds the shop closed puts its message off until the shop opens, without using an attempt.
func ExampleSnoozeUntil() {
	ctx := context.Background()
	clock := storekit.NewManualClock(time.Date(2026, 11, 20, 7, 30, 0, 0, time.UTC))
	store := memstore.New(&memstore.Options{Clock: clock})
	defer store.Close()
	q := punctual.NewQueue(store, nil)

	opens := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	w := worker.New(store, nil)
	w.Handle("shop.call", punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
		if d.Delivered.Before(opens) {
			fmt.Println(d.Delivered.Format(time.TimeOnly), "the shop is closed")
			return punctual.SnoozeUntil(opens)
		}
		fmt.Println(d.Delivered.Format(time.TimeOnly), "called in attempt", d.Attempt)
		return nil
	}))

	if _, err := q.Push(ctx, "shop.call", nil); err != nil {
		fmt.Println("not stored:", err)
		return
	}
	for range 2 {
		if _, err := w.Drain(ctx); err != nil {
			fmt.Println(err)
			return
		}
		clock.Advance(90 * time.Minute)
	}

	// Output:
	// 07:30:00 the shop is closed
	// 09:00:00 called in attempt 1
}
