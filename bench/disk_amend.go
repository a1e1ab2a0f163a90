package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/punctualmq/punctual"
)

// These scenarios measure how many messages a second can be cancelled or rescheduled by ID. The
// messages are picked at random among those pending.

const (
	amendSingles = 64 // callers, where each amends one message at a time
	amendRounds  = 2
)

// amendments returns the ways of amending that are measured.
func amendments() []amendment {
	var all []amendment
	for _, verb := range []string{"cancel", "reschedule"} {
		all = append(all, amendment{verb, 1, amendSingles}, amendment{verb, 100, 1}, amendment{verb, 1000, 1})
	}
	return all
}

func (a amendment) name() string {
	if a.batch == 1 {
		return fmt.Sprintf("pending/%s-single-%d", a.verb, a.callers)
	}
	return fmt.Sprintf("pending/%s-batch-%d", a.verb, a.batch)
}

func amendScenarios() []scenario {
	var all []scenario
	for _, a := range amendments() {
		about := fmt.Sprintf("%s one by one by %d goroutines", a.verb, a.callers)
		if a.batch > 1 {
			about = fmt.Sprintf("%s in lists of %d by one goroutine", a.verb, a.batch)
		}
		all = append(all, scenario{
			name: a.name(), about: about, pending: true, maxRounds: amendRounds, takes: spans(1.4, 3*time.Second), run: a.run,
		})
	}
	return all
}

// amendment is a way of amending messages by ID: a verb, how many messages each call names, and how
// many callers there are.
type amendment struct {
	verb    string
	batch   int
	callers int
}

func (a amendment) run(ctx context.Context, e *env) error {
	share := min(e.sizes.Pending, sampleMax) / (len(amendments()) * amendRounds)
	if share < a.batch {
		return fmt.Errorf("of %d pending messages each way of amending gets %d, fewer than a list of %d: give more with -pending", e.sizes.Pending, share, a.batch)
	}
	ids, err := takeIDs(e.kept, share)
	if err != nil {
		return err
	}
	store, err := openStore(e)
	if err != nil {
		return err
	}
	e.say("%s for %v or %d messages", a.verb, e.sizes.Span, len(ids))
	err = e.against(a.batch*a.callers, ackBytes, func() (float64, error) {
		t, err := a.all(ctx, e, punctual.NewQueue(store, nil), ids)
		if err != nil {
			return 0, err
		}
		t.note(e.out)
		return t.rate(), nil
	})
	return closeStore(store, err)
}

// all amends the messages with the given IDs until a span is over or fewer than a batch are left.
func (a amendment) all(ctx context.Context, e *env, q *punctual.Queue, ids []string) (*tally, error) {
	var next atomic.Int64
	return flatOut(ctx, a.callers, e.sizes.Span, func(ctx context.Context, _ int) (int, error) {
		to := int(next.Add(int64(a.batch)))
		if to > len(ids) {
			return 0, nil
		}
		return a.batch, a.some(ctx, q, ids[to-a.batch:to])
	})
}

// some amends messages by one call, and returns an error unless all of them were there to be
// amended.
func (a amendment) some(ctx context.Context, q *punctual.Queue, ids []string) error {
	when := punctual.At(farDue(time.Now()))
	var err error
	switch {
	case a.verb == "reschedule" && len(ids) == 1:
		_, err = q.Reschedule(ctx, topic, ids[0], when)
	case a.verb == "reschedule":
		_, err = q.RescheduleMany(ctx, topic, ids, when)
	case len(ids) == 1:
		err = q.Cancel(ctx, topic, ids[0])
	default:
		_, err = q.CancelMany(ctx, topic, ids)
	}
	return err
}
