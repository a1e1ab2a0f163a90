package worker_test

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

var errNoSuchUser = errors.New("no such user")

// Middleware wraps every handler. Here it discards a message whose error no repetition mends.
func ExampleMiddleware() {
	ctx := context.Background()
	clock := storekit.NewManualClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	store := memstore.New(&memstore.Options{Clock: clock})
	defer store.Close()
	q := punctual.NewQueue(store, nil)

	discardUnknownUsers := func(next punctual.Handler) punctual.Handler {
		return punctual.HandlerFunc(func(ctx context.Context, d *punctual.Delivery) error {
			err := next.Handle(ctx, d)
			if errors.Is(err, errNoSuchUser) {
				return punctual.Discard(err)
			}
			return err
		})
	}
	printResult := &punctual.Observer{OnFinish: func(_ context.Context, d *punctual.Delivery, v punctual.Verb, _ time.Duration, err error) {
		fmt.Printf("%s: %s, error: %v\n", d.ID, v, err)
	}}

	w := worker.New(store, &worker.Config{
		Middleware: []worker.Middleware{discardUnknownUsers},
		Observer:   printResult,
		Logger:     slog.New(slog.DiscardHandler),
	})
	w.Handle("mail.remind", punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
		if string(d.Body) == "nobody" {
			return fmt.Errorf("remind %s: %w", d.Body, errNoSuchUser)
		}
		return nil
	}))

	for _, user := range []string{"ada", "nobody"} {
		if _, err := q.Push(ctx, "mail.remind", []byte(user), punctual.ID(user)); err != nil {
			fmt.Println("not stored:", err)
			return
		}
	}
	n, err := w.Drain(ctx)
	fmt.Println(n, "handled", err)

	// Unordered output:
	// ada: ack, error: <nil>
	// nobody: discard, error: remind nobody: no such user
	// 2 handled <nil>
}
