package schedule_test

import (
	"context"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/worker"
)

// A report is made at nine o'clock of each working day in Berlin. In a program the worker is
// started, and time passes by itself.
func ExamplePut() {
	ctx := context.Background()
	clock := storekit.NewManualClock(time.Date(2027, 3, 26, 12, 0, 0, 0, time.UTC)) // Friday; clocks go forward on Sunday
	store := memstore.New(&memstore.Options{Clock: clock})
	defer store.Close()
	q := punctual.NewQueue(store, nil)

	w := worker.New(store, &worker.Config{Schedules: true}) // stores the messages when their time comes; 'punctual serve' does so, too
	w.Handle("reports", punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
		fmt.Println(d.Delivered.Format("Mon 15:04 UTC"), d.ID, string(d.Body))
		return nil
	}))

	daily := schedule.Schedule{Topic: "reports", Name: "daily", Spec: "0 9 * * MON-FRI", Zone: "Europe/Berlin", Body: []byte("make the report")}
	for range 2 { // declared at every start
		status, err := schedule.Put(ctx, q, daily)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(status)
	}
	info, err := schedule.Get(ctx, q, "reports", "daily")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(info.Words)
	for _, next := range info.Next[:2] {
		clock.Set(next.Due)
		for range 2 { // the first Drain stores the occurrence and handles it, and the second finds nothing due
			if _, err := w.Drain(ctx); err != nil {
				fmt.Println(err)
				return
			}
		}
	}

	// Output:
	// stored
	// duplicate
	// at 09:00 on Monday to Friday (Europe/Berlin)
	// Mon 07:00 UTC daily~20270329T070000Z make the report
	// Tue 07:00 UTC daily~20270330T070000Z make the report
}
