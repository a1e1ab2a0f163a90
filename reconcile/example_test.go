package reconcile_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/reconcile"
)

// ordersTable stands for a table of orders in a database.
type ordersTable []orderRow

type orderRow struct {
	number string
	placed time.Time
	status string
}

// unpaid stands for this query, where $1 is the last number of the page before:
//
//	SELECT number, placed FROM orders
//	WHERE status = 'unpaid' AND number > $1 ORDER BY number LIMIT 1000
func (t ordersTable) unpaid(after string) []orderRow {
	var page []orderRow
	for _, row := range t {
		if row.status == "unpaid" && row.number > after {
			page = append(page, row)
		}
	}
	slices.SortFunc(page, func(a, b orderRow) int { return strings.Compare(a.number, b.number) })
	return page[:min(len(page), 1000)]
}

// paid stands for this query, where $1 has the numbers:
//
//	SELECT number FROM orders WHERE number = ANY($1) AND status = 'paid'
func (t ordersTable) paid(numbers []string) []string {
	var paid []string
	for _, row := range t {
		if row.status == "paid" && slices.Contains(numbers, row.number) {
			paid = append(paid, row.number)
		}
	}
	return paid
}

// Orders that are not paid are closed half an hour after they were placed. The push of A-2 and the
// cancel of A-3 were lost; a pass over the table finds both.
func ExampleRun() {
	ctx := context.Background()
	store := memstore.New(nil)
	defer store.Close()
	q := punctual.NewQueue(store, nil)
	now := time.Now()
	orders := ordersTable{{"A-1", now, "unpaid"}, {"A-2", now.Add(-10 * time.Minute), "unpaid"}, {"A-3", now, "paid"}}
	for _, number := range []string{"A-1", "A-3"} {
		if _, err := q.Push(ctx, "order.close", nil, punctual.ID(number), punctual.In(30*time.Minute)); err != nil {
			fmt.Println(err)
		}
	}

	ctx, cancel := context.WithCancel(ctx)
	err := reconcile.Run(ctx, q, &reconcile.Config{
		Topic: "order.close",
		Every: 5 * time.Minute,
		List: func(_ context.Context, after string) (page []punctual.NewMessage, next string, err error) {
			for _, row := range orders.unpaid(after) {
				page = append(page, punctual.NewMessage{ID: row.number, Due: row.placed.Add(30 * time.Minute)})
				next = row.number
			}
			return page, next, nil // the page that is empty has an empty next, and is the last
		},
		Unwanted: func(_ context.Context, ids []string) ([]string, error) { return orders.paid(ids), nil },
		Report: func(r reconcile.Report, err error) {
			fmt.Println("pushed", r.PushedIDs, "cancelled", r.CancelledIDs, "error", err)
			cancel() // one pass is enough for the example
		},
	})
	fmt.Println("end", err)

	repaired, err := q.Get(context.Background(), "order.close", "A-2")
	fmt.Println("A-2 is due in", time.Until(repaired.Due).Round(time.Minute), err)

	// Output:
	// pushed [A-2] cancelled [A-3] error <nil>
	// end <nil>
	// A-2 is due in 20m0s <nil>
}
