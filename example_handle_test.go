package punctual_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/event"
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

// A handler that finds the account locked puts its message off without using an attempt.
func ExampleSnooze() {
	ctx := context.Background()
	clock := storekit.NewManualClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	store := memstore.New(&memstore.Options{Clock: clock})
	defer store.Close()
	q := punctual.NewQueue(store, nil)

	locked := true
	w := worker.New(store, nil)
	w.Handle("account.bill", punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
		if locked {
			fmt.Println(d.Delivered.Format(time.TimeOnly), "account is locked")
			return punctual.Snooze(30 * time.Second)
		}
		fmt.Println(d.Delivered.Format(time.TimeOnly), "billed in attempt", d.Attempt)
		return nil
	}))

	if _, err := q.Push(ctx, "account.bill", nil); err != nil {
		fmt.Println("not stored:", err)
		return
	}
	for i := range 3 {
		locked = i < 2
		if _, err := w.Drain(ctx); err != nil {
			fmt.Println(err)
			return
		}
		clock.Advance(30 * time.Second)
	}

	// Output:
	// 12:00:00 account is locked
	// 12:00:30 account is locked
	// 12:01:00 billed in attempt 1
}

// A handler that finds the shop closed puts its message off until the shop opens, without using an
// attempt.
func ExampleSnoozeUntil() {
	ctx := context.Background()
	clock := storekit.NewManualClock(time.Date(2026, 11, 20, 7, 30, 0, 0, time.UTC))
	store := memstore.New(&memstore.Options{Clock: clock})
	defer store.Close()
	q := punctual.NewQueue(store, nil)

	opens := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	w := worker.New(store, nil)
	w.Handle("shop.call", punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
		if d.Delivered.Before(opens) {
			fmt.Println(d.Delivered.Format(time.TimeOnly), "the shop is closed")
			return punctual.SnoozeUntil(opens)
		}
		fmt.Println(d.Delivered.Format(time.TimeOnly), "called in attempt", d.Attempt)
		return nil
	}))

	if _, err := q.Push(ctx, "shop.call", nil); err != nil {
		fmt.Println("not stored:", err)
		return
	}
	for range 2 {
		if _, err := w.Drain(ctx); err != nil {
			fmt.Println(err)
			return
		}
		clock.Advance(90 * time.Minute)
	}

	// Output:
	// 07:30:00 the shop is closed
	// 09:00:00 called in attempt 1
}

// A payment is followed by its invoice, and the invoice by a reminder two days later. Each is
// stored in one step with the ack of the one before, so that no crash leaves a payment without an
// invoice, or makes two of it.
func ExampleFollow() {
	ctx := context.Background()
	clock := storekit.NewManualClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	store := memstore.New(&memstore.Options{Clock: clock})
	defer store.Close()
	q := punctual.NewQueue(store, nil)

	w := worker.New(store, nil)
	w.Handle("payment", punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
		fmt.Println(d.Delivered.Format(time.DateTime), d.ID, "is paid")
		bill, err := punctual.Compose("invoice", d.Body, punctual.ID(d.ID+"~invoice"))
		return punctual.Follow(err, bill)
	}))
	w.Handle("invoice", punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
		fmt.Println(d.Delivered.Format(time.DateTime), d.ID, "is sent")
		reminder, err := punctual.Compose("reminder", d.Body, punctual.ID(d.ID+"~reminder"), punctual.In(48*time.Hour))
		return punctual.Follow(err, reminder)
	}))
	w.Handle("reminder", punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
		fmt.Println(d.Delivered.Format(time.DateTime), d.ID, "is sent, after", d.Headers[storekit.AfterHeader])
		return nil
	}))

	if _, err := q.Push(ctx, "payment", []byte("49.90"), punctual.ID("A-17")); err != nil {
		fmt.Println("not stored:", err)
		return
	}
	for range 2 {
		if _, err := w.Drain(ctx); err != nil {
			fmt.Println(err)
			return
		}
		clock.Advance(48 * time.Hour)
	}

	// Output:
	// 2026-11-20 12:00:00 A-17 is paid
	// 2026-11-20 12:00:00 A-17~invoice is sent
	// 2026-11-22 12:00:00 A-17~invoice~reminder is sent, after invoice/A-17~invoice
}

// The people on duty want to read in their chat which payment notices were given up on. The topic
// tells of each dead letter in the same step in which the message becomes dead, so none is missed,
// and a chat that is away for an hour gets them late.
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

// An order that is closed matters to three services. Until it is due it is one message, which is
// cancelled once for all of them. Then each service has a copy of its own, and the failure of one
// is no concern of the others.
func ExampleGroupTopic() {
	ctx := context.Background()
	clock := storekit.NewManualClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	store := memstore.New(&memstore.Options{Clock: clock})
	defer store.Close()
	q := punctual.NewQueue(store, nil)

	_, err := q.Configure(ctx, "order.close", func(s *punctual.Settings) { s.Groups = []string{"billing", "mail", "stock"} })
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, id := range []string{"A-17", "A-18"} {
		if _, err := q.Push(ctx, "order.close", nil, punctual.ID(id), punctual.In(30*time.Minute)); err != nil {
			fmt.Println("not stored:", err)
			return
		}
	}
	fmt.Println("A-18 is paid:", q.Cancel(ctx, "order.close", "A-18"))

	w := worker.New(store, nil) // in three programs as well as in one
	for _, group := range []string{"billing", "mail", "stock"} {
		w.HandleGroup("order.close", group, punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
			if group == "stock" {
				return punctual.Discard(errors.New("no such shelf"))
			}
			fmt.Println(d.Delivered.Format(time.TimeOnly), group, "closes", d.ID)
			return nil
		}))
	}
	clock.Advance(30 * time.Minute)
	if _, err := w.Drain(ctx); err != nil {
		fmt.Println(err)
		return
	}
	stats, err := q.Stats(ctx, punctual.GroupTopic("order.close", "stock"))
	fmt.Println(stats.Topic, "has", stats.Dead, "dead letter", err)

	// Output:
	// A-18 is paid: <nil>
	// 12:30:00 billing closes A-17
	// 12:30:00 mail closes A-17
	// order.close@g.stock has 1 dead letter <nil>
}
