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

// The shop asks support: did the unpaid order get closed, when, and how late?
func ExampleQueue_Finished() {
	ctx := context.Background()
	clock := storekit.NewManualClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	store := memstore.New(&memstore.Options{Clock: clock})
	defer store.Close()
	q := punctual.NewQueue(store, nil)
	_, err := q.Configure(ctx, "order.close", func(s *punctual.Settings) { s.FinishedRetention = 30 * 24 * time.Hour })
	_, pushed := q.Push(ctx, "order.close", nil, punctual.ID("order-42"), punctual.In(30*time.Minute))
	fmt.Println(err, pushed)

	clock.Advance(30*time.Minute + 2*time.Second) // the worker was busy
	w := worker.New(store, nil)
	w.Handle("order.close", punctual.HandlerFunc(func(context.Context, *punctual.Delivery) error { return nil }))
	fmt.Println(w.Drain(ctx))

	_, err = q.Get(ctx, "order.close", "order-42")
	fmt.Println("stored:", !errors.Is(err, punctual.ErrNotFound))
	f, err := q.Finished(ctx, "order.close", "order-42")
	fmt.Println(f.Outcome, f.At.Format(time.TimeOnly), "late:", f.ReadyFor(), "attempts:", f.Attempt, err)

	// Output:
	// <nil> <nil>
	// 1 <nil>
	// stored: false
	// acked 12:30:02 late: 2s attempts: 1 <nil>
}

// Which orders were cancelled since noon? The newest come first.
func ExampleQueue_ListFinished() {
	ctx := context.Background()
	clock := storekit.NewManualClock(time.Date(2026, 11, 20, 11, 0, 0, 0, time.UTC))
	store := memstore.New(&memstore.Options{Clock: clock})
	defer store.Close()
	q := punctual.NewQueue(store, nil)
	_, err := q.Configure(ctx, "order.close", func(s *punctual.Settings) { s.FinishedRetention = 30 * 24 * time.Hour })
	fmt.Println(err)
	for n := range 4 { // one each hour, paid 5 minutes later
		id := fmt.Sprint("order-", n)
		_, pushed := q.Push(ctx, "order.close", nil, punctual.ID(id), punctual.In(30*time.Minute))
		clock.Advance(5 * time.Minute)
		fmt.Println(pushed, q.Cancel(ctx, "order.close", id))
		clock.Advance(55 * time.Minute)
	}

	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for f, err := range q.ListFinished(ctx, punctual.FinishedQuery{Topic: "order.close", From: noon, Outcome: punctual.OutcomeCancelled, Descending: true}) {
		if err != nil {
			fmt.Println(err)
			break
		}
		fmt.Println(f.ID, f.At.Format(time.TimeOnly))
	}

	// Output:
	// <nil>
	// <nil> <nil>
	// <nil> <nil>
	// <nil> <nil>
	// <nil> <nil>
	// order-3 14:05:00
	// order-2 13:05:00
	// order-1 12:05:00
}
