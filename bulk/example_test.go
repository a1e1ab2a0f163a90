package bulk_test

import (
	"context"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/bulk"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
)

// The mails of one campaign go out an hour later than planned. A dry run first says how many there
// are.
func ExampleRun() {
	ctx := context.Background()
	clock := storekit.NewManualClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	store := memstore.New(&memstore.Options{Clock: clock})
	defer store.Close()
	q := punctual.NewQueue(store, nil)
	for i := range 6 {
		campaign := []string{"autumn", "winter"}[i%2]
		_, err := q.Push(ctx, "mails", nil, punctual.ID(fmt.Sprint("m-", i)), punctual.In(time.Hour), punctual.Header("campaign", campaign))
		if err != nil {
			fmt.Println("not stored:", err)
			return
		}
	}

	shift := bulk.Job{
		Do: bulk.Shift, By: time.Hour, DryRun: true,
		Select: bulk.Selection{Topic: "mails", State: punctual.StateScheduled, Headers: map[string]string{"campaign": "autumn"}},
	}
	report, err := bulk.Run(ctx, q, shift)
	fmt.Println("would move", report.Matched, "of", report.Looked, err)
	shift.DryRun = false
	report, err = bulk.Run(ctx, q, shift)
	fmt.Println("moved", report.Done, err)
	for _, id := range []string{"m-0", "m-1"} {
		m, err := q.Get(ctx, "mails", id)
		fmt.Println(id, m.Headers["campaign"], m.Due.Format(time.TimeOnly), err)
	}

	// Output:
	// would move 3 of 6 <nil>
	// moved 3 <nil>
	// m-0 autumn 14:00:00 <nil>
	// m-1 winter 13:00:00 <nil>
}
