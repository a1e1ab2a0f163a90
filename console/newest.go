package console

import (
	"context"

	"github.com/punctualmq/punctual"
)

// newest returns up to n messages of a list without their bodies: those whose times are the latest,
// the latest first. whole is true if the list has no other messages. n must not exceed 10,000,
// which is the largest page of a store.
func newest(ctx context.Context, i punctual.Inspector, q punctual.ListQuery, n int) (out []punctual.Info, whole bool, err error) {
	q.Descending, q.Bare = true, true
	for len(out) < n {
		q.Limit = n - len(out)
		page, err := i.List(ctx, q)
		if err != nil {
			return nil, false, err
		}
		out = append(out, page.Messages...)
		if page.Next == "" {
			return out, true, nil
		}
		q.After = page.Next
	}
	return out, false, nil
}
