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

// A payment is followed by its invoice, and the invoice by a reminder two days later. Each is stored in one step with the ack of
// the one before, so that no crash leaves a payment without an invoice, or makes two of it.
func ExampleFollow() {
	ctx := context.Background()
	clock := storekit.NewManualClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	store := memstore.New(&memstore.Options{Clock: clock})
	defer store.Close()
	q := punctual.NewQueue(store, nil)

	w := worker.New(store, nil)
	w.Handle("payment", punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
		fmt.Println(d.Delivered.Format(time.DateTime), d.ID, "is paid")
		bill, err := punctual.Compose("invoice", d.Body, punctual.ID(d.ID+"~invoice"))
		return punctual.Follow(err, bill)
	}))
	w.Handle("invoice", punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
		fmt.Println(d.Delivered.Format(time.DateTime), d.ID, "is sent")
		reminder, err := punctual.Compose("reminder", d.Body, punctual.ID(d.ID+"~reminder"), punctual.In(48*time.Hour))
		return punctual.Follow(err, reminder)
	}))
	w.Handle("reminder", punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
		fmt.Println(d.Delivered.Format(time.DateTime), d.ID, "is sent, after", d.Headers[storekit.AfterHeader])
		return nil
	}))

	if _, err := q.Push(ctx, "payment", []byte("49.90"), punctual.ID("A-17")); err != nil {
		fmt.Println("not stored:", err)
		return
	}
	for range 2 {
		if _, err := w.Drain(ctx); err != nil {
			fmt.Println(err)
			return
		}
		clock.Advance(48 * time.Hour)
	}

	// Output:
	// 2026-11-20 12:00:00 A-17 is paid
	// 2026-11-20 12:00:00 A-17~invoice is sent
	// 2026-11-22 12:00:00 A-17~invoice~reminder is sent, after invoice/A-17~invoice
}
