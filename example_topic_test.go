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

// A typed topic carries values in place of bytes.
func ExampleTopic() {
	type Order struct {
		Number int
		Total  string
	}
	ctx := context.Background()
	clock := storekit.NewManualClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	store := memstore.New(&memstore.Options{Clock: clock})
	defer store.Close()
	orders := punctual.NewTopic[Order](punctual.NewQueue(store, nil), "order.close")

	if _, err := orders.Push(ctx, Order{Number: 17, Total: "9.50"}, punctual.In(30*time.Minute)); err != nil {
		fmt.Println("not stored:", err)
		return
	}

	w := worker.New(store, nil)
	w.Handle(orders.Name(), orders.Handler(func(_ context.Context, o Order, d *punctual.Delivery) error {
		fmt.Printf("close order %d over %s, attempt %d\n", o.Number, o.Total, d.Attempt)
		return nil
	}))
	clock.Advance(30 * time.Minute)
	n, err := w.Drain(ctx)
	fmt.Println(n, "handled", err)

	// Output:
	// close order 17 over 9.50, attempt 1
	// 1 handled <nil>
}
