package server

import (
	"context"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	batching "github.com/punctualmq/punctual/internal/batch"
)

// This file sends the pushes of requests that arrive at the same time as one call of the store, and
// their settlements as another, so that one transaction and one wait for the disk serve all of
// them. No timer holds a request back: while one call is under way, the requests that arrive wait
// together for the next. A topic whose calls are slow gets calls of its own, so that it delays no
// other topic by more than coalesceLate (P14), except where both are in one call.

const (
	// coalesceItems is how many items one call of the store may have, where a follow-up counts as
	// one. A request with more items is a call by itself.
	coalesceItems = 2000
	// coalesceLate is how long a call of the store may take before the requests that wait for it to
	// end are sent beside it.
	coalesceLate = 500 * time.Millisecond
)

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
