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

// One dead message that nobody wants any more is removed, and the others stay.
func ExampleQueue_Delete() {
	ctx := context.Background()
	clock := storekit.NewManualClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	store := memstore.New(&memstore.Options{Clock: clock})
	defer store.Close()
	q := punctual.NewQueue(store, nil)

	for _, id := range []string{"invoice-4", "invoice-5"} {
		_, err := q.Push(ctx, "invoice.send", nil, punctual.ID(id))
		fmt.Println("pushed:", err)
	}
	w := worker.New(store, nil)
	w.Handle("invoice.send", punctual.HandlerFunc(func(context.Context, *punctual.Delivery) error {
		return punctual.Discard(errors.New("no such customer"))
	}))
	_, err := w.Drain(ctx)
	fmt.Println("both are dead:", err)

	// A cancel is for messages that are still to be delivered.
	fmt.Println("cancel:", errors.Is(q.Cancel(ctx, "invoice.send", "invoice-4"), punctual.ErrNotFound))
	fmt.Println("delete:", q.Delete(ctx, "invoice.send", "invoice-4"))
	_, err = q.Requeue(ctx, "invoice.send", "invoice-4", punctual.In(time.Hour))
	fmt.Println("gone:", errors.Is(err, punctual.ErrNotFound))
	_, err = q.Requeue(ctx, "invoice.send", "invoice-5", punctual.In(time.Hour))
	fmt.Println("the other one is there:", err)

	// Output:
	// pushed: <nil>
	// pushed: <nil>
	// both are dead: <nil>
	// cancel: true
	// delete: <nil>
	// gone: true
	// the other one is there: <nil>
}
