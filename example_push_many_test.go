package punctual_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
)

// Each message has a result of its own; one that is refused does not stop the others.
func ExampleQueue_PushMany() {
	ctx := context.Background()
	store := memstore.New(nil)
	defer store.Close()
	q := punctual.NewQueue(store, nil)

	rs, err := q.PushMany(ctx, []punctual.NewMessage{
		{Topic: "mail", ID: "a", Delay: time.Minute},
		{Topic: "mail", ID: "b", Delay: -time.Minute},
		{Topic: "mail", ID: "a", Delay: time.Hour},
	})
	for _, r := range rs {
		fmt.Printf("%s %q %v\n", r.ID, r.Status, r.Err)
	}
	if failed := (*punctual.BatchError)(nil); errors.As(err, &failed) {
		fmt.Println(failed.Failed, "of", failed.Total, "failed")
	}

	// Output:
	// a "stored" <nil>
	// b "" delay -1m0s is negative: use 0 for now, or a due time, which may lie in the past: invalid
	// a "duplicate" <nil>
	// 1 of 3 failed
}
