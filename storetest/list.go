package storetest

import (
	"context"
	"fmt"

	"github.com/punctualmq/punctual"
)

// listAll reads all pages of a list. It returns an error when they are not well-formed: too large,
// out of order, of another state or topic, or without end.
func listAll(ctx context.Context, in punctual.Inspector, q punctual.ListQuery) ([]punctual.Info, error) {
	var all []punctual.Info
	limit := q.Limit
	if limit == 0 {
		limit = 100
	}
	for {
		p, err := in.List(ctx, q)
		if err != nil {
			return nil, fmt.Errorf("a list of %s messages of %s: unexpected error: %w", q.State, q.Topic, err)
		}
		if len(p.Messages) > limit {
			return nil, fmt.Errorf("a page of at most %d messages has %d", limit, len(p.Messages))
		}
		for _, i := range p.Messages {
			if q.Reason != "" && i.Reason != q.Reason {
				return nil, fmt.Errorf("a list of those dead as %s shows %s, which is dead as %s", q.Reason, i.ID, i.Reason)
			}
			if i.Topic != q.Topic || i.State != q.State {
				return nil, fmt.Errorf("a list of %s messages of %s shows %s/%s, which is %s", q.State, q.Topic, i.Topic, i.ID, i.State)
			}
			if n := len(all); n > 0 && sortTime(i).Before(sortTime(all[n-1])) {
				return nil, fmt.Errorf("a list of %s messages shows %s of %v behind %s of %v", q.State, i.ID, sortTime(i), all[n-1].ID, sortTime(all[n-1]))
			}
			all = append(all, i)
		}
		if p.Next == "" {
			return all, nil
		}
		if p.Next == q.After {
			return nil, fmt.Errorf("a list of %s messages comes to no end: cursor %q leads to itself", q.State, p.Next)
		}
		q.After = p.Next
	}
}
