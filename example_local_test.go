package punctual_test

import (
	"context"
	"fmt"
	"time"
	_ "time/tzdata" // so that the zones are known wherever the program runs

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
)

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
