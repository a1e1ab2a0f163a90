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

// A handler that finds the account locked puts its message off without using an attempt.
func ExampleSnooze() {
	ctx := context.Background()
	clock := storekit.NewManualClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	store := memstore.New(&memstore.Options{Clock: clock})
	defer store.Close()
	q := punctual.NewQueue(store, nil)

	locked := true
	w := worker.New(store, nil)
	w.Handle("account.bill", punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
		if locked {
			fmt.Println(d.Delivered.Format(time.TimeOnly), "account is locked")
			return punctual.Snooze(30 * time.Second)
		}
		fmt.Println(d.Delivered.Format(time.TimeOnly), "billed in attempt", d.Attempt)
		return nil
	}))

	if _, err := q.Push(ctx, "account.bill", nil); err != nil {
		fmt.Println("not stored:", err)
		return
	}
	for i := range 3 {
		locked = i < 2
		if _, err := w.Drain(ctx); err != nil {
			fmt.Println(err)
			return
		}
		clock.Advance(30 * time.Second)
	}

	// Output:
	// 12:00:00 account is locked
	// 12:00:30 account is locked
	// 12:01:00 billed in attempt 1
}
