package cli

import (
	"context"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// quota is a store that hands out at most so many deliveries, for consume --count. A delivery that is given back unstarted, or whose
// lease is lost before its handler has begun, does not count. So a run never claims more messages than it may still handle.
//
// quota has no Unwrap, because it changes Claim.Max. A claim that is sent again may have another Max, and a storekit.Repeater below
// would refuse it, since the key of a request belongs to one content.
type quota struct {
	store   punctual.Store
	limited bool

	mu   sync.Mutex
	left int64 // deliveries that may still be claimed; guarded by mu
	open int64 // deliveries of the quota whose handlers have not ended, claimed or not; guarded by mu
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
	return &quota{store: s, limited: n > 0, left: n, open: n, unstarted: make(map[lease]bool), returned: make(chan struct{}, 1)}
}

// Claim claims at most what is left of the quota. When nothing is left, it waits for what another claim leaves of its part, or for a
// delivery that is given back unstarted or whose lease is lost before its handler has begun, because another message may be claimed in
// its place then. Claim takes no longer than c.Wait in all, because a claim that takes longer looks to the worker like one that hangs.
func (q *quota) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	if !q.limited {
		return q.store.Claim(ctx, c)
	}
	begun, rest := time.Now(), c.Wait
	over := time.After(c.Wait)
	n := q.take(int64(c.Max))
	for n == 0 {
		select {
		case <-q.returned:
			n = q.take(int64(c.Max))
			rest = max(0, c.Wait-time.Since(begun))
		case <-over:
			return nil, nil
		case <-ctx.Done(): // the run ends when the last delivery is done
			return nil, ctx.Err()
		}
	}
	c.Max, c.Wait = int(n), rest
	ds, err := q.store.Claim(ctx, c)
	q.claimed(n, ds)
	return ds, err
}

func (q *quota) take(n int64) int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	n = min(n, q.left)
	q.left -= n
	q.wake()
	return n
}

// wake wakes a claim that waits, if something is left for it. Its caller holds mu.
func (q *quota) wake() {
	if q.left == 0 {
		return
	}
	select {
	case q.returned <- struct{}{}:
	default:
	}
}

// claimed counts what a claim for n messages brought, and returns the rest of n to the quota.
func (q *quota) claimed(n int64, ds []punctual.Delivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.left += n - int64(len(ds))
	for i := range ds {
		q.unstarted[leaseOf(&ds[i])] = true
	}
	q.wake()
}

// started notes that the handler of d has begun. It is the OnStart of the worker's Observer.
func (q *quota) started(_ context.Context, d *punctual.Delivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.unstarted, leaseOf(d))
}

// lost notes that the lease of d was lost. A handler that has not begun by then never will, so another delivery may be
// claimed in its place. It is the OnLeaseLost of the worker's Observer.
func (q *quota) lost(_ context.Context, d *punctual.Delivery, _ error) { q.neverStarts(leaseOf(d)) }

// Settle implements punctual.Store. For each delivery that is given back unstarted another one may be claimed. Follow-ups that the store
// does not reach go into envelopes here, because the worker above cannot ask the store what it reaches.
func (q *quota) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	for _, s := range ss {
		if s.Verb == punctual.SettleRelease {
			q.neverStarts(lease{s.Topic, s.ID, s.Token})
		}
	}
	return storekit.Settle(ctx, q.store, ss, nil)
}

// Push implements punctual.Store.
func (q *quota) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	return q.store.Push(ctx, ms)
}

// Amend implements punctual.Store.
func (q *quota) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	return q.store.Amend(ctx, as)
}

// Now implements punctual.Store.
func (q *quota) Now(ctx context.Context) (time.Time, error) { return q.store.Now(ctx) }

// Close implements punctual.Store.
func (q *quota) Close() error { return q.store.Close() }

// neverStarts returns a delivery to the quota whose handler will not begin any more. It does nothing if the handler has begun.
func (q *quota) neverStarts(l lease) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.unstarted[l] {
		return
	}
	delete(q.unstarted, l)
	q.left++
	q.wake()
}

// delivered counts a delivery whose handler has ended, and returns whether it was the last of the quota.
func (q *quota) delivered() (last bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.limited {
		return false
	}
	q.open--
	return q.open == 0
}
