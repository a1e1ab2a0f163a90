package server

import (
	"context"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	batching "github.com/punctualmq/punctual/internal/batch"
)

// gathered is a store that gets the pushes and settlements of requests that come at the same time in one call. So one transaction,
// and one wait for the disk, serves them all. Nothing is held back: while one call is under way the next gathers. Topics that are slow
// go apart from the others (P14). Its optional interfaces are not those of the store.
type gathered struct {
	punctual.Store
	pushes      *batching.Batcher[[]punctual.NewMessage, []punctual.PushResult]
	settlements *batching.Batcher[[]punctual.Settlement, []error]
}

const (
	// gatherItems bounds the items of one gathered call. A request with more goes alone.
	gatherItems = 2000
	// gatherLate is how long a gathered call takes until the next one overtakes it.
	gatherLate = 500 * time.Millisecond
)

func gather(s punctual.Store, limit time.Duration) *gathered {
	return &gathered{
		Store: s,
		pushes: gatherCalls("push", limit, s.Push, func(ms []punctual.NewMessage) string {
			return oneTopic(len(ms), func(i int) string { return ms[i].Topic })
		}),
		settlements: gatherCalls("settle", limit, s.Settle, func(ss []punctual.Settlement) string {
			return oneTopic(len(ss), func(i int) string { return ss[i].Topic })
		}),
	}
}

// oneTopic is the topic of n items, or "" when they have several.
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

// gatherCalls makes one call of many, whose item is the items of one. The limit is that of a call of the store.
func gatherCalls[In, Out any](op string, limit time.Duration, call func(context.Context, []In) ([]Out, error), key func([]In) string) *batching.Batcher[[]In, []Out] {
	return batching.New(batching.Config[[]In, []Out]{
		Op: op, Key: key, MaxItems: gatherItems, MaxBytes: gatherItems, Late: gatherLate,
		Size:       func(items []In) int64 { return int64(len(items)) },
		MaxPending: 1 << 40, // what waits is bounded by the bodies of requests
		Closed:     punctual.ErrClosed, Overloaded: punctual.ErrOverloaded, Indeterminate: punctual.ErrIndeterminate,
		Run: func(ctx context.Context, calls [][]In) ([][]Out, error) {
			ctx, end := context.WithTimeoutCause(ctx, limit, errStoreTime)
			defer end()
			return runGathered(ctx, calls, call)
		},
	})
}

// runGathered makes one call of the store with the items of all, and gives each its part of the answer.
func runGathered[In, Out any](ctx context.Context, calls [][]In, call func(context.Context, []In) ([]Out, error)) ([][]Out, error) {
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

// Push implements punctual.Store. It waits for the store also when ctx has ended, whose end would leave the outcome open. The limit ends it.
func (g *gathered) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	return g.pushes.Do(context.WithoutCancel(ctx), ms)
}

// Settle implements punctual.Store. It waits as Push does.
func (g *gathered) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	return g.settlements.Do(context.WithoutCancel(ctx), ss)
}

// drain waits for the calls under way. There are no others to come.
func (g *gathered) drain() error {
	if err := g.pushes.Close(context.Background()); err != nil {
		return err
	}
	return g.settlements.Close(context.Background())
}
