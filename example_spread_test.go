package punctual_test

import (
	"context"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
)

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
