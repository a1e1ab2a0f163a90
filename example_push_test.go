package punctual_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
