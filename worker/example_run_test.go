package worker_test

import (
	"context"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/worker"
)

// A worker closes unpaid orders when their time has come. Run ends gracefully when its
// context does, here after the last order is closed; in a service the context would come from
// signal.NotifyContext.
func ExampleWorker_Run() {
	ctx, stop := context.WithCancel(context.Background())
	store := memstore.New(nil)
	defer store.Close()
	q := punctual.NewQueue(store, nil)

	w := worker.New(store, &worker.Config{Concurrency: 1})
	w.Handle("order.close", punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
		fmt.Printf("%s closed, early: %v\n", d.ID, d.Delivered.Before(d.Due))
		if d.ID == "order-2" {
			stop()
		}
		return nil // ack
	}))

	for i, id := range []string{"order-1", "order-2"} {
		delay := time.Duration(i+1) * 20 * time.Millisecond
		if _, err := q.Push(ctx, "order.close", nil, punctual.ID(id), punctual.In(delay)); err != nil {
			fmt.Println("not stored:", err)
			return
		}
	}
	fmt.Println("run:", w.Run(ctx))

	// Output:
	// order-1 closed, early: false
	// order-2 closed, early: false
	// run: <nil>
}

// Topics share the slots of a running worker by weight, so that a flood in one does not starve the
// other. Drain, which this example uses, handles what is due and returns, as a cron job would;
// weights have no effect there.
func ExampleWeight() {
	ctx := context.Background()
	clock := storekit.NewManualClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	store := memstore.New(&memstore.Options{Clock: clock})
	defer store.Close()
	q := punctual.NewQueue(store, nil)

	w := worker.New(store, nil)
	handle := punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
		fmt.Println(d.Topic)
		return nil
	})
	w.Handle("invoice", handle, worker.Weight(8))
	w.Handle("newsletter", handle, worker.Weight(1), worker.Timeout(10*time.Second))

	for _, topic := range []string{"newsletter", "invoice"} {
		if _, err := q.Push(ctx, topic, nil); err != nil {
			fmt.Println("not stored:", err)
			return
		}
	}
	n, err := w.Drain(ctx) // one at a time, in the order of Handle
	fmt.Println(n, "handled", err)

	// Output:
	// invoice
	// newsletter
	// 2 handled <nil>
}
