package punctual_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
)

// A push with an ID may be repeated, say after a network error: the first one counts.
func ExampleID_idempotentPush() {
	ctx := context.Background()
	store := memstore.New(nil)
	defer store.Close()
	q := punctual.NewQueue(store, nil)

	for range 2 {
		r, err := q.Push(ctx, "invoice.send", nil, punctual.ID("invoice-4"), punctual.In(time.Hour))
		fmt.Println(r.ID, r.Status, r.Existing, err)
	}
	_, err := q.Push(ctx, "invoice.send", nil, punctual.ID("invoice-4"), punctual.FailIfExists())
	fmt.Println("taken:", errors.Is(err, punctual.ErrDuplicate))

	// Output:
	// invoice-4 stored  <nil>
	// invoice-4 duplicate scheduled <nil>
	// taken: true
}
