package cli

import (
	"context"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
)

// quota is a store that hands out at most so many deliveries, for consume --count. It never claims
// a message that the run would not print.
type quota struct {
	punctual.Store
	limited bool

	mu   sync.Mutex
	left int64 // deliveries that may still be claimed; guarded by mu
	open int64 // deliveries claimed or still to be, and not done; guarded by mu
	// unstarted holds the deliveries whose handlers have not begun. Guarded by mu.
	unstarted map[lease]bool
	// returned has room for one signal that something may be claimed again.
	returned chan struct{}
}

// lease names one delivery.
type lease struct {
	topic, id string
	token     int64
}

func leaseOf(d *punctual.Delivery) lease { return lease{d.Topic, d.ID, d.Token} }

// newQuota limits s to n deliveries; 0 is no limit.
func newQuota(s punctual.Store, n int64) *quota {
	return &quota{Store: s, limited: n > 0, left: n, open: n, unstarted: make(map[lease]bool), returned: make(chan struct{}, 1)}
}

// Claim claims at most what is left. When nothing is left it waits, as long as any claim does, for a delivery whose lease was
// lost before it was started, because another message may be claimed in its place then. A claim that took longer would look
// to the worker like one that hangs.
func (q *quota) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	if !q.limited {
		return q.Store.Claim(ctx, c)
	}
	over := time.After(c.Wait)
	n := q.take(int64(c.Max))
	for n == 0 {
		select {
		case <-q.returned:
			n = q.take(int64(c.Max))
		case <-over:
			return nil, nil
		case <-ctx.Done(): // the run ends when the last delivery is done
			return nil, ctx.Err()
		}
	}
	c.Max = int(n)
	ds, err := q.Store.Claim(ctx, c)
	q.claimed(n, ds)
	return ds, err
}

func (q *quota) take(n int64) int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	n = min(n, q.left)
	q.left -= n
	return n
}

// claimed takes note of what a claim for n messages brought.
func (q *quota) claimed(n int64, ds []punctual.Delivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.left += n - int64(len(ds))
	for i := range ds {
		q.unstarted[leaseOf(&ds[i])] = true
	}
}

// started tells that the handler of d has begun.
func (q *quota) started(_ context.Context, d *punctual.Delivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.unstarted, leaseOf(d))
}

// lost tells that the lease of d was lost. If its handler has not begun it never will, and another
// delivery may be claimed in its place.
func (q *quota) lost(_ context.Context, d *punctual.Delivery, _ error) { q.neverStarts(leaseOf(d)) }

// Settle takes note of deliveries that are given back unstarted, too: others may be claimed in their place.
func (q *quota) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	for _, s := range ss {
		if s.Verb == punctual.SettleRelease {
			q.neverStarts(lease{s.Topic, s.ID, s.Token})
		}
	}
	return q.Store.Settle(ctx, ss)
}

// neverStarts takes note that the handler of a delivery that has not begun never will.
func (q *quota) neverStarts(l lease) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.unstarted[l] {
		return
	}
	delete(q.unstarted, l)
	q.left++
	select {
	case q.returned <- struct{}{}:
	default:
	}
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
