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

// A payment provider calls a webhook again hours later, when its first call was handled long ago. Remember holds the ID of
// the finished message for a day, so that the payment is booked once.
func ExampleRemember() {
	ctx := context.Background()
	clock := storekit.NewManualClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	store := memstore.New(&memstore.Options{Clock: clock})
	defer store.Close()
	q := punctual.NewQueue(store, nil)
	w := worker.New(store, nil)
	w.Handle("payment.book", punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
		fmt.Println("booked", d.ID)
		return nil
	}))

	for _, pause := range []time.Duration{0, 6 * time.Hour, 24 * time.Hour} {
		clock.Advance(pause)
		r, err := q.Push(ctx, "payment.book", nil, punctual.ID("payment-17"), punctual.Remember(24*time.Hour))
		fmt.Println(r.Status, err)
		if _, err := w.Drain(ctx); err != nil {
			fmt.Println(err)
		}
	}

	// Output:
	// stored <nil>
	// booked payment-17
	// duplicate <nil>
	// stored <nil>
	// booked payment-17
}
