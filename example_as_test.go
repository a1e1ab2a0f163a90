package punctual_test

import (
	"context"
	"fmt"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
)

// A store may have optional interfaces beside Store. As finds them, also below a wrapper that shows the store which it wraps.
func ExampleAs() {
	ctx := context.Background()
	store := memstore.New(nil)
	defer store.Close()

	checker, err := punctual.As[storekit.Checker](store)
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := checker.Check(ctx, nil)
	fmt.Println(len(report.Problems), "problems", err)

	_, err = punctual.As[storekit.ConsumerReporter](store)
	fmt.Println(err)
	// Output:
	// 0 problems <nil>
	// this store does not know who claims: not supported
}
