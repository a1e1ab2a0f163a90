package punctual_test

import (
	"context"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
)

// The customer asks for more time: same message, another time, in one step.
func ExampleQueue_Reschedule() {
	ctx := context.Background()
	clock := punctual.NewManualClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	store := memstore.New(&memstore.Options{Clock: clock})
	defer store.Close()
	q := punctual.NewQueue(store, nil)

	if _, err := q.Push(ctx, "order.close", nil, punctual.ID("order-17"), punctual.In(30*time.Minute)); err != nil {
		fmt.Println("not stored:", err)
		return
	}
	o, err := q.Reschedule(ctx, "order.close", "order-17", punctual.In(2*time.Hour))
	fmt.Println(o.Status, "to", o.Due.Format(time.TimeOnly), err)

	o, err = q.Reschedule(ctx, "order.close", "order-18", punctual.In(2*time.Hour))
	fmt.Println(o.Status, err)

	// Output:
	// rescheduled to 14:00:00 <nil>
	// not_found <nil>
}
