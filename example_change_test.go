package punctual_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/worker"
)

// The customer asks for more time: same message, another time, in one step.
func ExampleQueue_Reschedule() {
	ctx := context.Background()
	clock := storekit.NewManualClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	store := memstore.New(&memstore.Options{Clock: clock})
	defer store.Close()
	q := punctual.NewQueue(store, nil)

	if _, err := q.Push(ctx, "order.close", nil, punctual.ID("order-17"), punctual.In(30*time.Minute)); err != nil {
		fmt.Println("not stored:", err)
		return
	}
	due, err := q.Reschedule(ctx, "order.close", "order-17", punctual.In(2*time.Hour))
	fmt.Println("due", due.Format(time.TimeOnly), err)

	_, err = q.Reschedule(ctx, "order.close", "order-18", punctual.In(2*time.Hour))
	fmt.Println(err)

	// Output:
	// due 14:00:00 <nil>
	// reschedule: order-18 in order.close: not found
}

// A message was given up on; once the cause is mended it is tried again. Its history stays.
func ExampleQueue_Requeue() {
	ctx := context.Background()
	clock := storekit.NewManualClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	store := memstore.New(&memstore.Options{Clock: clock})
	defer store.Close()
	q := punctual.NewQueue(store, nil)
	if _, err := q.Push(ctx, "mail", nil, punctual.ID("mail-3"), punctual.MaxAttempts(1)); err != nil {
		fmt.Println("not stored:", err)
		return
	}

	down := true
	send := punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
		if down {
			return errors.New("mail server is down")
		}
		fmt.Printf("sent in attempt %d, failed before with %q\n", d.Attempt, d.Failures[0].Error)
		return nil
	})
	drain := func() {
		w := worker.New(store, &worker.Config{Logger: slog.New(slog.DiscardHandler)})
		w.Handle("mail", send)
		n, err := w.Drain(ctx)
		fmt.Println(n, "handled", err)
	}

	drain()
	info, err := store.Get(ctx, "mail", "mail-3")
	fmt.Println(info.State, "because:", info.Reason, err)

	down = false
	_, err = q.Requeue(ctx, "mail", "mail-3", punctual.When{})
	fmt.Println("requeue:", err)
	drain()

	// Output:
	// 1 handled <nil>
	// dead because: attempts used up <nil>
	// requeue: <nil>
	// sent in attempt 1, failed before with "mail server is down"
	// 1 handled <nil>
}

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

// A store may have optional interfaces beside Store. As finds them, also below a wrapper that shows
// the store which it wraps.
func ExampleAs() {
	ctx := context.Background()
	store := memstore.New(nil)
	defer store.Close()

	checker, err := punctual.As[storekit.Checker](store)
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := checker.Check(ctx, nil)
	fmt.Println(len(report.Problems), "problems", err)

	_, err = punctual.As[storekit.ConsumerReporter](store)
	fmt.Println(err)
	// Output:
	// 0 problems <nil>
	// this store does not know who claims: not supported
}
