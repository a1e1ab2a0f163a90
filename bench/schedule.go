package main

import (
	"context"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
)

// How many messages a second can be scheduled durably, due 1 to 25 hours ahead.

func scheduleScenarios() []scenario {
	var all []scenario
	for _, n := range []int{1, 64} {
		all = append(all, scenario{
			name: fmt.Sprintf("schedule/single-%d", n), about: fmt.Sprintf("Queue.Push by %d goroutines", n),
			takes: spans(1.4, time.Second), run: func(ctx context.Context, e *env) error { return scheduleSingles(ctx, e, n) },
		})
	}
	for _, n := range []int{100, 1000} {
		all = append(all, scenario{
			name: fmt.Sprintf("schedule/batch-%d", n), about: fmt.Sprintf("Queue.PushMany of %d messages by one goroutine", n),
			takes: spans(1.4, time.Second), run: func(ctx context.Context, e *env) error { return scheduleBatches(ctx, e, n) },
		})
	}
	return all
}

// scheduleSingles has n goroutines push one message each, again and again. The limit is that of
// n messages to one fdatasync, because n goroutines cannot have more on their way.
func scheduleSingles(ctx context.Context, e *env, n int) error {
	return e.scheduleRate(n, func(q *punctual.Queue) (*tally, error) {
		return flatOut(ctx, n, e.sizes.Span, func(ctx context.Context, _ int) (int, error) {
			_, err := q.Push(ctx, topic, randomBody(), punctual.At(farDue(time.Now())))
			return 1, err
		})
	})
}

func scheduleBatches(ctx context.Context, e *env, n int) error {
	ms := make([]punctual.NewMessage, n)
	return e.scheduleRate(n, func(q *punctual.Queue) (*tally, error) {
		return flatOut(ctx, 1, e.sizes.Span, func(ctx context.Context, _ int) (int, error) {
			farMessages(ms)
			return n, checkPushed(q.PushMany(ctx, ms))
		})
	})
}

// scheduleRate notes the rate of push beside the limit for batches of n messages.
func (e *env) scheduleRate(n int, push func(*punctual.Queue) (*tally, error)) error {
	store, err := openStore(e)
	if err != nil {
		return err
	}
	e.say("scheduling for %v", e.sizes.Span)
	err = e.against(n, messageBytes, func() (float64, error) {
		t, err := push(punctual.NewQueue(store, nil))
		if err != nil {
			return 0, err
		}
		t.note(e.out)
		return t.rate(), nil
	})
	return closeStore(store, err)
}
