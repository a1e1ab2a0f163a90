package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	batching "github.com/punctualmq/punctual/internal/batch"
)

// coalesced is a store that sends the pushes of requests which arrive at the same time as one call
// to the store below, and their settlements as another, so that one transaction and one wait for
// the disk serve all of them. No timer holds a request back: while one call is under way, the
// requests that arrive wait together for the next. A topic whose calls are slow gets calls of its
// own, so that it delays no other topic by more than coalesceLate (P14), except where both are in
// one call.
//
// It has no Unwrap, because a call that went past it would not be limited in time: answers.Store
// makes its calls with contexts that do not end with the request.
type coalesced struct {
	store       punctual.Store
	limit       time.Duration // how long one call of the store may take, except a claim
	pushes      *batching.Batcher[[]punctual.NewMessage, []punctual.PushResult]
	settlements *batching.Batcher[[]punctual.Settlement, []error]
}

const (
	// coalesceItems is how many items one call of the store may have, where a follow-up counts as
	// one. A request with more items is a call by itself.
	coalesceItems = 2000
	// coalesceLate is how long a call of the store may take before the requests that wait for it to
	// end are sent beside it.
	coalesceLate = 500 * time.Millisecond
)

// coalesce returns s with coalesced pushes and settlements. Each call of s except a claim ends
// after limit.
func coalesce(s punctual.Store, limit time.Duration) *coalesced {
	return &coalesced{
		store: s, limit: limit,
		pushes: newBatcher("push", limit, s.Push, func(ms []punctual.NewMessage) string {
			return oneTopic(len(ms), func(i int) string { return ms[i].Topic })
		}, func(ms []punctual.NewMessage) int { return len(ms) }),
		settlements: newBatcher("settle", limit, s.Settle, topicOfSettlements, messagesOf),
	}
}

// topicOfSettlements returns the topic of settlements and their follow-ups, or "" if they have
// several.
func topicOfSettlements(ss []punctual.Settlement) string {
	topic := oneTopic(len(ss), func(i int) string { return ss[i].Topic })
	for i := range ss {
		for j := range ss[i].Then {
			if ss[i].Then[j].Topic != topic {
				return ""
			}
		}
	}
	return topic
}

// messagesOf returns how many messages settlements change or store.
func messagesOf(ss []punctual.Settlement) int {
	n := len(ss)
	for i := range ss {
		n += len(ss[i].Then)
	}
	return n
}

// oneTopic returns the topic of n items, or "" if they have several topics or there are none.
func oneTopic(n int, topic func(i int) string) string {
	if n == 0 {
		return ""
	}
	first := topic(0)
	for i := 1; i < n; i++ {
		if topic(i) != first {
			return ""
		}
	}
	return first
}

// newBatcher returns a Batcher that makes one call of the store, which ends after limit, for the
// items of many requests.
func newBatcher[In, Out any](op string, limit time.Duration, call func(context.Context, []In) ([]Out, error), key func([]In) string, count func([]In) int) *batching.Batcher[[]In, []Out] {
	return batching.New(batching.Config[[]In, []Out]{
		Op: op, Key: key, MaxItems: coalesceItems, MaxBytes: coalesceItems, Late: coalesceLate,
		Size:       func(items []In) int64 { return int64(count(items)) },
		MaxPending: 1 << 40, // Limits.MaxMemory bounds the requests that wait
		Closed:     punctual.ErrClosed, Overloaded: punctual.ErrOverloaded, Indeterminate: punctual.ErrIndeterminate,
		Run: func(ctx context.Context, calls [][]In) ([][]Out, error) {
			ctx, end := context.WithTimeoutCause(ctx, limit, errStoreTime)
			defer end()
			return runCoalesced(ctx, calls, call)
		},
	})
}

// runCoalesced makes one call of the store with the items of all requests, and returns for each
// request the results of its own items.
func runCoalesced[In, Out any](ctx context.Context, calls [][]In, call func(context.Context, []In) ([]Out, error)) ([][]Out, error) {
	items := calls[0]
	if len(calls) > 1 {
		n := 0
		for _, c := range calls {
			n += len(c)
		}
		items = make([]In, 0, n)
		for _, c := range calls {
			items = append(items, c...)
		}
	}
	results, err := call(ctx, items)
	if err != nil {
		return nil, storeError(ctx, err)
	}
	if len(results) != len(items) {
		return nil, fmt.Errorf("the store answered %d results for %d items: %w", len(results), len(items), punctual.ErrIndeterminate)
	}
	out := make([][]Out, len(calls))
	for i, c := range calls {
		out[i], results = results[:len(c):len(c)], results[len(c):]
	}
	return out, nil
}

// Push implements punctual.Store. It waits for the store even when ctx has ended, because a caller
// that left early would not know whether its messages are stored. The wait ends because the context
// of each call of the store ends after the limit.
func (c *coalesced) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	return c.pushes.Do(context.WithoutCancel(ctx), ms)
}

// Settle implements punctual.Store. It waits as Push does.
func (c *coalesced) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	return c.settlements.Do(context.WithoutCancel(ctx), ss)
}

// Claim implements punctual.Store. Each claim is a call by itself, because requests differ in
// topics, lease and wait. It needs no limit, because answers.Store ends a claim when its last
// caller leaves.
func (c *coalesced) Claim(ctx context.Context, q punctual.Claim) ([]punctual.Delivery, error) {
	return c.store.Claim(ctx, q)
}

// Amend implements punctual.Store. Each request is a call by itself, because amendments are few.
// The call ends after the limit, also when its request has a key, so that its context does not end
// with the request.
func (c *coalesced) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	ctx, end := context.WithTimeoutCause(ctx, c.limit, errStoreTime)
	defer end()
	rs, err := c.store.Amend(ctx, as)
	return rs, storeError(ctx, err)
}

// Now implements punctual.Store. It ends after the limit as well if ctx has no deadline:
// answers.Store reads the clock once more after a call, when the request may have ended.
func (c *coalesced) Now(ctx context.Context) (time.Time, error) {
	if _, ok := ctx.Deadline(); !ok {
		limited, end := context.WithTimeoutCause(ctx, c.limit, errStoreTime)
		defer end()
		ctx = limited
	}
	now, err := c.store.Now(ctx)
	return now, storeError(ctx, err)
}

// Close closes the store below, which ends the calls under way, and waits for those calls.
func (c *coalesced) Close() error {
	return errors.Join(c.store.Close(), c.drain())
}

// drain waits for the calls under way and refuses further ones. The store below stays open.
func (c *coalesced) drain() error {
	if err := c.pushes.Close(context.Background()); err != nil {
		return err
	}
	return c.settlements.Close(context.Background())
}
