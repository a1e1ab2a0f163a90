package punctual_test

import (
	"context"
	"errors"
	"fmt"
	"time"
	_ "time/tzdata" // so that the zones are known wherever the program runs

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/worker"
)

// An order that is not paid within half an hour is closed; this one is paid.
func ExampleQueue_Push() {
	ctx := context.Background()
	clock := storekit.NewManualClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	store := memstore.New(&memstore.Options{Clock: clock})
	defer store.Close()
	q := punctual.NewQueue(store, nil)

	r, err := q.Push(ctx, "order.close", []byte("order 17"), punctual.ID("order-17"), punctual.In(30*time.Minute))
	if err != nil {
		fmt.Println("not stored:", err)
		return
	}
	fmt.Println(r.ID, r.Status, "for", r.Due.Format(time.TimeOnly))

	clock.Advance(10 * time.Minute) // the payment arrives
	err = q.Cancel(ctx, "order.close", "order-17")
	fmt.Println("cancel:", err)
	err = q.Cancel(ctx, "order.close", "order-17")
	fmt.Println("once more:", errors.Is(err, punctual.ErrNotFound))

	// Output:
	// order-17 stored for 12:30:00
	// cancel: <nil>
	// once more: true
}

// Each message has a result of its own; one that is refused does not stop the others.
func ExampleQueue_PushMany() {
	ctx := context.Background()
	store := memstore.New(nil)
	defer store.Close()
	q := punctual.NewQueue(store, nil)

	rs, err := q.PushMany(ctx, []punctual.NewMessage{
		{Topic: "mail", ID: "a", Delay: time.Minute},
		{Topic: "mail", ID: "b", Delay: -time.Minute},
		{Topic: "mail", ID: "a", Delay: time.Hour},
	})
	for _, r := range rs {
		fmt.Printf("%s %q %v\n", r.ID, r.Status, r.Err)
	}
	if failed := (*punctual.BatchError)(nil); errors.As(err, &failed) {
		fmt.Println(failed.Failed, "of", failed.Total, "failed")
	}

	// Output:
	// a "stored" <nil>
	// b "" delay -1m0s is negative: use 0 for now, or a due time, which may lie in the past: invalid
	// a "duplicate" <nil>
	// 1 of 3 failed
}

// A typed topic carries values in place of bytes.
func ExampleTopic() {
	type Order struct {
		Number int
		Total  string
	}
	ctx := context.Background()
	clock := storekit.NewManualClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	store := memstore.New(&memstore.Options{Clock: clock})
	defer store.Close()
	orders := punctual.NewTopic[Order](punctual.NewQueue(store, nil), "order.close")

	if _, err := orders.Push(ctx, Order{Number: 17, Total: "9.50"}, punctual.In(30*time.Minute)); err != nil {
		fmt.Println("not stored:", err)
		return
	}

	w := worker.New(store, nil)
	w.Handle(orders.Name(), orders.Handler(func(_ context.Context, o Order, d *punctual.Delivery) error {
		fmt.Printf("close order %d over %s, attempt %d\n", o.Number, o.Total, d.Attempt)
		return nil
	}))
	clock.Advance(30 * time.Minute)
	n, err := w.Drain(ctx)
	fmt.Println(n, "handled", err)

	// Output:
	// close order 17 over 9.50, attempt 1
	// 1 handled <nil>
}

// Each edit of a document postpones its indexing, so that it is indexed once, five
// seconds after the last edit.
func ExampleReplace_debounce() {
	ctx := context.Background()
	clock := storekit.NewManualClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	store := memstore.New(&memstore.Options{Clock: clock})
	defer store.Close()
	q := punctual.NewQueue(store, nil)

	for _, text := range []string{"draft", "better", "final"} {
		r, err := q.Push(ctx, "doc.index", []byte(text), punctual.ID("doc-7"), punctual.In(5*time.Second), punctual.Replace())
		if err != nil {
			fmt.Println("not stored:", err)
			return
		}
		fmt.Println(r.Status, "for", r.Due.Format(time.TimeOnly))
		clock.Advance(3 * time.Second)
	}

	w := worker.New(store, nil)
	w.Handle("doc.index", punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
		fmt.Printf("indexed %q at %s\n", d.Body, d.Delivered.Format(time.TimeOnly))
		return nil
	}))
	clock.Advance(2 * time.Second) // 5 s after the last edit
	n, err := w.Drain(ctx)
	fmt.Println(n, "handled", err)

	// Output:
	// stored for 12:00:05
	// replaced for 12:00:08
	// replaced for 12:00:11
	// indexed "final" at 12:00:11
	// 1 handled <nil>
}

// A push with an ID may be repeated, say after a network error: the first one counts.
func ExampleID_idempotentPush() {
	ctx := context.Background()
	store := memstore.New(nil)
	defer store.Close()
	q := punctual.NewQueue(store, nil)

	for range 2 {
		r, err := q.Push(ctx, "invoice.send", nil, punctual.ID("invoice-4"), punctual.In(time.Hour))
		fmt.Println(r.ID, r.Status, r.Existing, err)
	}
	_, err := q.Push(ctx, "invoice.send", nil, punctual.ID("invoice-4"), punctual.FailIfExists())
	fmt.Println("taken:", errors.Is(err, punctual.ErrDuplicate))

	// Output:
	// invoice-4 stored  <nil>
	// invoice-4 duplicate scheduled <nil>
	// taken: true
}

// A program that has read a message replaces it only if nobody else has changed it since.
func ExampleReplaceIfDue() {
	ctx := context.Background()
	store := memstore.New(nil)
	defer store.Close()
	q := punctual.NewQueue(store, nil)

	nine := time.Date(2030, 11, 20, 9, 0, 0, 0, time.UTC)
	if _, err := q.Push(ctx, "reminder", []byte("at nine"), punctual.ID("visit-7"), punctual.At(nine)); err != nil {
		fmt.Println("not stored:", err)
		return
	}
	for _, text := range []string{"at ten", "at eleven"} { // both programs have read that it is due at nine
		_, err := q.Push(ctx, "reminder", []byte(text), punctual.ID("visit-7"), punctual.At(nine.Add(time.Hour)), punctual.ReplaceIfDue(nine))
		fmt.Println(text, "has come too late:", errors.Is(err, punctual.ErrChanged))
	}

	// Output:
	// at ten has come too late: false
	// at eleven has come too late: true
}

// A reminder comes at nine in the morning where the customer lives, in summer as in winter.
func ExampleAtLocal() {
	ctx := context.Background()
	store := memstore.New(nil)
	defer store.Close()
	q := punctual.NewQueue(store, nil)

	for _, at := range []string{
		"2030-07-01 09:00",
		"2030-12-02 09:00",
		"2030-03-31 02:30", // clocks go from 2:00 to 3:00 on that day
	} {
		r, err := q.Push(ctx, "reminder", []byte("your appointment"), punctual.AtLocal(at, "Europe/Berlin"))
		if err != nil {
			fmt.Println("not stored:", err)
			return
		}
		fmt.Println(at, "in Berlin is", r.Due.Format(time.RFC3339))
	}

	// Output:
	// 2030-07-01 09:00 in Berlin is 2030-07-01T07:00:00Z
	// 2030-12-02 09:00 in Berlin is 2030-12-02T08:00:00Z
	// 2030-03-31 02:30 in Berlin is 2030-03-31T01:00:00Z
}

// A payment provider calls a webhook again hours later, when its first call was handled long ago.
// Remember holds the ID of the finished message for a day, so that the payment is booked once.
func ExampleRemember() {
	ctx := context.Background()
	clock := storekit.NewManualClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	store := memstore.New(&memstore.Options{Clock: clock})
	defer store.Close()
	q := punctual.NewQueue(store, nil)
	w := worker.New(store, nil)
	w.Handle("payment.book", punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
		fmt.Println("booked", d.ID)
		return nil
	}))

	for _, pause := range []time.Duration{0, 6 * time.Hour, 24 * time.Hour} {
		clock.Advance(pause)
		r, err := q.Push(ctx, "payment.book", nil, punctual.ID("payment-17"), punctual.Remember(24*time.Hour))
		fmt.Println(r.Status, err)
		if _, err := w.Drain(ctx); err != nil {
			fmt.Println(err)
		}
	}

	// Output:
	// stored <nil>
	// booked payment-17
	// duplicate <nil>
	// stored <nil>
	// booked payment-17
}

// A thousand reminders for nine o'clock go out over ten minutes instead of at once.
func ExampleSpread() {
	ctx := context.Background()
	clock := storekit.NewManualClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	store := memstore.New(&memstore.Options{Clock: clock})
	defer store.Close()
	q := punctual.NewQueue(store, nil)

	nine := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	early, late := 0, 0
	for range 1000 {
		r, err := q.Push(ctx, "reminder", nil, punctual.At(nine), punctual.Spread(10*time.Minute))
		if err != nil {
			fmt.Println("not stored:", err)
			return
		}
		if r.Due.Before(nine) {
			early++
		}
		if r.Due.After(nine.Add(10 * time.Minute)) {
			late++
		}
	}
	fmt.Println("before nine:", early, "after ten past:", late)

	// Output:
	// before nine: 0 after ten past: 0
}

// A taxi offer is worth nothing a minute after its time; no worker was there to make it.
func ExampleExpire() {
	ctx := context.Background()
	clock := storekit.NewManualClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	store := memstore.New(&memstore.Options{Clock: clock})
	defer store.Close()
	q := punctual.NewQueue(store, nil)

	_, kept := q.Push(ctx, "taxi.offer", nil, punctual.ID("kept"), punctual.In(5*time.Minute), punctual.Expire(time.Minute))
	_, dropped := q.Push(ctx, "taxi.offer", nil, punctual.ID("dropped"), punctual.In(5*time.Minute), punctual.Expire(time.Minute), punctual.DropExpired())
	fmt.Println("pushed:", kept, dropped)

	clock.Advance(time.Hour)
	w := worker.New(store, nil)
	w.Handle("taxi.offer", punctual.HandlerFunc(func(context.Context, *punctual.Delivery) error {
		fmt.Println("this is not printed")
		return nil
	}))
	n, err := w.Drain(ctx)
	fmt.Println(n, "handled", err)

	dead, err := store.List(ctx, punctual.ListQuery{Topic: "taxi.offer", State: punctual.StateDead})
	for _, m := range dead.Messages {
		fmt.Println(m.ID, m.State, m.Reason)
	}
	fmt.Println(err)

	// Output:
	// pushed: <nil> <nil>
	// 0 handled <nil>
	// kept dead expired
	// <nil>
}

// Of each customer one call at a time is made, whatever the number of workers. What waits for its
// customer delays no other one.
func ExampleKey() {
	ctx := context.Background()
	clock := storekit.NewManualClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	store := memstore.New(&memstore.Options{Clock: clock})
	defer store.Close()
	q := punctual.NewQueue(store, nil)
	set, err := q.Configure(ctx, "calls", func(s *punctual.Settings) { s.Keyed, s.MaxKeyLeases = true, 1 })
	fmt.Println(set.MaxKeyLeases, err)
	for _, id := range []string{"anna~1", "anna~2", "bert~1"} {
		_, err := q.Push(ctx, "calls", nil, punctual.ID(id), punctual.Key(storekit.Stem(id)))
		if err != nil {
			fmt.Println(err)
		}
	}

	calls, err := store.Claim(ctx, punctual.Claim{Topics: []string{"calls"}, Max: 10})
	for _, d := range calls {
		fmt.Println(d.ID, "for", d.Key)
	}
	waiting, err := q.Get(ctx, "calls", "anna~2")
	fmt.Println(waiting.State, waiting.Waiting, err)
	// Output:
	// 1 <nil>
	// anna~1 for anna
	// bert~1 for bert
	// ready true <nil>
}

// Most reports are written in seconds, and the handler may take a minute. The report of the year
// may take two hours, and a preview that takes longer than a moment is of no use.
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
