package cli

import (
	"context"
	"sync"

	"github.com/punctualmq/punctual"
)

// quota is a store that hands out at most so many deliveries, for consume --count: it
// never claims a message that the run would not print.
type quota struct {
	punctual.Store
	limited bool

	mu   sync.Mutex
	left int64 // deliveries that may still be claimed; guarded by mu
	open int64 // deliveries claimed or still to be, and not done; guarded by mu
}

// newQuota limits s to n deliveries; 0 is no limit.
func newQuota(s punctual.Store, n int64) *quota {
	return &quota{Store: s, limited: n > 0, left: n, open: n}
}

// Claim claims at most what is left. When nothing is left it waits for ctx to end.
func (q *quota) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	if !q.limited {
		return q.Store.Claim(ctx, c)
	}
	n := q.take(int64(c.Max))
	if n == 0 {
		<-ctx.Done() // the run ends when the last delivery is done
		return nil, ctx.Err()
	}
	c.Max = int(n)
	ds, err := q.Store.Claim(ctx, c)
	q.giveBack(n - int64(len(ds)))
	return ds, err
}

func (q *quota) take(n int64) int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	n = min(n, q.left)
	q.left -= n
	return n
}

func (q *quota) giveBack(n int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.left += n
}

// delivered tells that one delivery is done, and returns whether it was the last.
func (q *quota) delivered() (last bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.limited {
		return false
	}
	q.open--
	return q.open == 0
}
