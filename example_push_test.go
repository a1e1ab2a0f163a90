package punctual_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
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
