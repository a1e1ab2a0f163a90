package punctualtest_test

import (
	"context"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/punctualtest"
	"github.com/punctualmq/punctual/schedule"
)

// A year of a schedule passes in milliseconds.
func Example_schedule() {
	kit := punctualtest.New(t, punctualtest.StartAt(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)))
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatalf("zone: %v", err)
	}
	hours := make(map[string]int)
	kit.Handle("reports", punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
		hours[d.Delivered.In(berlin).Format("15:04")]++
		return nil
	}))
	_, err = schedule.Put(context.Background(), kit.Queue, schedule.Schedule{
		Topic: "reports", Name: "daily", Spec: "0 9 * * MON-FRI", Zone: "Europe/Berlin", Except: []string{"12-24", "12-31"},
	})
	if err != nil {
		t.Fatalf("schedule: %v", err)
	}

	fmt.Println("reports in 2027:", kit.AdvanceTo(time.Date(2028, 1, 1, 0, 0, 0, 0, time.UTC)))
	fmt.Println("by the clock in Berlin:", hours)
	// Output:
	// reports in 2027: 259
	// by the clock in Berlin: map[09:00:259]
}
