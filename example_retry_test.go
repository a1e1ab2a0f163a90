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

// A payment notice is sent again after 2, 10, 10 minutes, 1, 2, 6 and 15 hours, until the
// shop answers or all attempts have failed.
func ExampleRetryDelays() {
	ctx := context.Background()
	clock := storekit.NewManualClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	store := memstore.New(&memstore.Options{Clock: clock})
	defer store.Close()
	q := punctual.NewQueue(store, nil)

	const m, h = time.Minute, time.Hour
	if _, err := q.Configure(ctx, "payment.notify", punctual.RetryDelays(2*m, 10*m, 10*m, 1*h, 2*h, 6*h, 15*h)); err != nil {
		fmt.Println("not configured:", err)
		return
	}

	w := worker.New(store, &worker.Config{Logger: slog.New(slog.DiscardHandler)})
	w.Handle("payment.notify", punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
		fmt.Printf("attempt %d at %s\n", d.Attempt, d.Delivered.Format(time.DateTime))
		return errors.New("the shop does not answer")
	}))

	if _, err := q.Push(ctx, "payment.notify", []byte(`{"order":7}`), punctual.ID("notice-7")); err != nil {
		fmt.Println("not stored:", err)
		return
	}
	for range 25 * 60 { // handle what is due once a minute, for 25 hours
		if _, err := w.Drain(ctx); err != nil {
			fmt.Println(err)
			return
		}
		clock.Advance(time.Minute)
	}
	i, err := store.Get(ctx, "payment.notify", "notice-7")
	fmt.Println(i.State, "-", i.Reason, "-", i.Failures[7].Error, err)

	// Output:
	// attempt 1 at 2026-11-20 12:00:00
	// attempt 2 at 2026-11-20 12:02:00
	// attempt 3 at 2026-11-20 12:12:00
	// attempt 4 at 2026-11-20 12:22:00
	// attempt 5 at 2026-11-20 13:22:00
	// attempt 6 at 2026-11-20 15:22:00
	// attempt 7 at 2026-11-20 21:22:00
	// attempt 8 at 2026-11-21 12:22:00
	// dead - attempts used up - the shop does not answer <nil>
}

// The handler knows better than the backoff: it honours a Retry-After header, and gives up where no
// repetition helps.
func ExampleRetryAfter() {
	ctx := context.Background()
	clock := storekit.NewManualClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	store := memstore.New(&memstore.Options{Clock: clock})
	defer store.Close()
	q := punctual.NewQueue(store, nil)

	status := []int{429, 410} // what the other side answers, one after the other
	w := worker.New(store, &worker.Config{Logger: slog.New(slog.DiscardHandler)})
	w.Handle("webhook", punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
		fmt.Printf("attempt %d at %s: %d\n", d.Attempt, d.Delivered.Format(time.TimeOnly), status[0])
		answer := status[0]
		status = status[1:]
		switch answer {
		case 429:
			return punctual.RetryAfter(90*time.Second, errors.New("too many requests"))
		case 410:
			return punctual.Discard(errors.New("the endpoint is gone"))
		}
		return nil
	}))

	if _, err := q.Push(ctx, "webhook", nil, punctual.ID("hook-1")); err != nil {
		fmt.Println("not stored:", err)
		return
	}
	for range 2 {
		if _, err := w.Drain(ctx); err != nil {
			fmt.Println(err)
			return
		}
		clock.Advance(90 * time.Second)
	}
	i, err := store.Get(ctx, "webhook", "hook-1")
	fmt.Println(i.State, "-", i.Reason, err)
	for _, f := range i.Failures {
		fmt.Printf("%d: %s\n", f.Attempt, f.Error)
	}

	// Output:
	// attempt 1 at 12:00:00: 429
	// attempt 2 at 12:01:30: 410
	// dead - discarded <nil>
	// 1: too many requests
	// 2: the endpoint is gone
}
