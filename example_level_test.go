package punctual_test

import (
	"context"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
)

// The delay levels of RocketMQ have the same numbers here.
func ExampleLevel() {
	ctx := context.Background()
	clock := storekit.NewManualClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	store := memstore.New(&memstore.Options{Clock: clock})
	defer store.Close()
	q := punctual.NewQueue(store, nil)

	for _, level := range []int{1, 16, 18} {
		r, err := q.Push(ctx, "t", nil, punctual.Level(level))
		fmt.Println(level, r.Due.Sub(clock.Now()), err)
	}
	_, err := q.Push(ctx, "t", nil, punctual.Level(19))
	fmt.Println(err)

	// Output:
	// 1 1s <nil>
	// 16 30m0s <nil>
	// 18 2h0m0s <nil>
	// push: delay level 19: use 1 to 18: invalid
}
