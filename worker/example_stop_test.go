package worker_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/worker"
)

// Stop claims nothing more and lets running handlers finish. When its context ends first, Stop ends
// the contexts of the handlers; a handler that gives up then gives its message back without using
// an attempt.
func ExampleWorker_Stop() {
	ctx := context.Background()
	store := memstore.New(nil)
	defer store.Close()
	q := punctual.NewQueue(store, nil)

	running := make(chan string)
	w := worker.New(store, &worker.Config{Logger: slog.New(slog.DiscardHandler)})
	w.Handle("report", punctual.HandlerFunc(func(ctx context.Context, d *punctual.Delivery) error {
		running <- d.ID
		<-ctx.Done() // work that takes for ever, and heeds its context
		return ctx.Err()
	}))
	if err := w.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}

	if _, err := q.Push(ctx, "report", nil, punctual.ID("endless")); err != nil {
		fmt.Println("not stored:", err)
		return
	}
	fmt.Println("working on", <-running)

	soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	fmt.Println("finished in time:", w.Stop(soon) == nil)
	fmt.Println("at rest:", w.Stop(ctx) == nil) // waits for the handler to give up

	i, err := store.Get(ctx, "report", "endless")
	fmt.Println(i.ID, "is", i.State, "with", i.Attempt, "attempts used", err)

	// Output:
	// working on endless
	// finished in time: false
	// at rest: true
	// endless is ready with 0 attempts used <nil>
}
