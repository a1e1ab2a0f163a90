package punctual_test

import (
	"context"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
)

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
