package punctual_test

import (
	"context"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/worker"
)

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
