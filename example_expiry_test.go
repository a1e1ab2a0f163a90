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

// A taxi offer is worth nothing a minute after its time; no worker was there to make it.
func ExampleExpire() {
	ctx := context.Background()
	clock := storekit.NewManualClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	store := memstore.New(&memstore.Options{Clock: clock})
	defer store.Close()
	q := punctual.NewQueue(store, nil)

	_, kept := q.Push(ctx, "taxi.offer", nil, punctual.ID("kept"), punctual.In(5*time.Minute), punctual.Expire(time.Minute))
	_, dropped := q.Push(ctx, "taxi.offer", nil, punctual.ID("dropped"), punctual.In(5*time.Minute), punctual.Expire(time.Minute), punctual.DropExpired())
	fmt.Println("pushed:", kept, dropped)

	clock.Advance(time.Hour)
	w := worker.New(store, nil)
	w.Handle("taxi.offer", punctual.HandlerFunc(func(context.Context, *punctual.Delivery) error {
		fmt.Println("this is not printed")
		return nil
	}))
	n, err := w.Drain(ctx)
	fmt.Println(n, "handled", err)

	dead, err := store.List(ctx, punctual.ListQuery{Topic: "taxi.offer", State: punctual.StateDead})
	for _, m := range dead.Messages {
		fmt.Println(m.ID, m.State, m.Reason)
	}
	fmt.Println(err)

	// Output:
	// pushed: <nil> <nil>
	// 0 handled <nil>
	// kept dead expired
	// <nil>
}
