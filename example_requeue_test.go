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
