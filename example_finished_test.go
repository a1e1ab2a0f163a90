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
