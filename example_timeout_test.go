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

// Most reports are written in seconds, and the handler may take a minute. The report of the year may take two hours, and a preview
// that takes longer than a moment is of no use.
func ExampleTimeout() {
	ctx := context.Background()
	clock := storekit.NewManualClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	store := memstore.New(&memstore.Options{Clock: clock})
	defer store.Close()
	q := punctual.NewQueue(store, nil)
	w := worker.New(store, &worker.Config{Timeout: time.Minute})
	w.Handle("report", punctual.HandlerFunc(func(ctx context.Context, d *punctual.Delivery) error {
		until, _ := ctx.Deadline()
		fmt.Println(d.ID, "has", time.Until(until).Round(time.Minute), "and ends early:", d.ID == "preview")
		if d.ID == "preview" {
			<-ctx.Done()
			fmt.Println("out of time:", errors.Is(ctx.Err(), context.DeadlineExceeded))
		}
		return nil
	}))

	for id, timeout := range map[string]time.Duration{"preview": 10 * time.Millisecond, "year": 2 * time.Hour} {
		if _, err := q.Push(ctx, "report", nil, punctual.ID(id), punctual.Timeout(timeout)); err != nil {
			fmt.Println(err)
		}
	}
	if _, err := w.Drain(ctx); err != nil {
		fmt.Println(err)
	}

	// Unordered output:
	// preview has 0s and ends early: true
	// out of time: true
	// year has 2h0m0s and ends early: false
}
