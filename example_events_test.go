package punctual_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/event"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/worker"
)

// The people on duty want to read in their chat which payment notices were given up on. The topic tells of each dead letter in
// the same step in which the message becomes dead, so none is missed, and a chat that is away for an hour gets them late.
func Example_events() {
	ctx := context.Background()
	clock := storekit.NewManualClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	store := memstore.New(&memstore.Options{Clock: clock})
	defer store.Close()
	q := punctual.NewQueue(store, nil)
	_, err := q.Configure(ctx, "notices", func(s *punctual.Settings) { s.Emit, s.MaxAttempts = punctual.EventDead, 1 })
	if err != nil {
		fmt.Println(err)
		return
	}

	w := worker.New(store, nil)
	w.Handle("notices", punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
		if d.ID == "A-18" {
			return errors.New("the shop answers 503")
		}
		return nil
	}))
	away := true
	w.HandleEvents("notices", func(_ context.Context, e event.Event) error {
		if away {
			away = false
			return punctual.RetryAfter(time.Hour, errors.New("the chat is away"))
		}
		fmt.Printf("%s to the chat: %s/%s is %s since %s, %s after %d attempt\n",
			clock.Now().Format(time.TimeOnly), e.Topic, e.ID, e.Event, e.At.Format(time.TimeOnly), e.Reason, e.Attempt)
		return nil
	})
	for _, id := range []string{"A-17", "A-18"} {
		if _, err := q.Push(ctx, "notices", nil, punctual.ID(id)); err != nil {
			fmt.Println("not stored:", err)
			return
		}
	}
	for range 2 {
		if _, err := w.Drain(ctx); err != nil {
			fmt.Println(err)
			return
		}
		clock.Advance(time.Hour)
	}

	// Output:
	// 13:00:00 to the chat: notices/A-18 is dead since 12:00:00, attempts used up after 1 attempt
}
