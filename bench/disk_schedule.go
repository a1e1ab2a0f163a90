package main

import (
	"context"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
)

// These scenarios measure how many messages a second can be scheduled durably. All messages are due
// 1 to 25 hours ahead.

// schedule is a way of scheduling: n callers that push one message in each call, or one caller that
// pushes n in each (batches).
type schedule struct {
	n       int
	batches bool
	chosen  bool // the caller chooses the IDs
}

func (x schedule) name() string {
	name := "schedule/"
	if x.chosen {
		name += "chosen-"
	}
	if x.batches {
		return fmt.Sprintf("%sbatch-%d", name, x.n)
	}
	return fmt.Sprintf("%ssingle-%d", name, x.n)
}

// label returns the name of x in tables.
func (x schedule) label() string {
	label := fmt.Sprintf("%d goroutines, one by one", x.n)
	switch {
	case x.batches:
		label = fmt.Sprintf("1 goroutine, batches of %d", x.n)
	case x.n == 1:
		label = "1 goroutine, one by one"
	}
	if x.chosen {
		label += ", chosen IDs"
	}
	return label
}

func (x schedule) run(ctx context.Context, e *env) error {
	if x.batches {
		return scheduleBatches(ctx, e, x.n, x.chosen)
	}
	return scheduleSingles(ctx, e, x.n, x.chosen)
}

// schedules returns the ways that are measured on an empty store: with IDs that the store makes,
// and with chosen IDs.
func schedules() []schedule {
	var all []schedule
	for _, chosen := range []bool{false, true} {
		all = append(all, schedule{1, false, chosen}, schedule{64, false, chosen}, schedule{100, true, chosen}, schedule{1000, true, chosen})
	}
	return all
}

// pendingSchedules returns the ways that are measured beside the pending messages, because there a
// chosen ID has to be looked for among many.
func pendingSchedules() []schedule {
	var all []schedule
	for _, chosen := range []bool{false, true} {
		all = append(all, schedule{64, false, chosen}, schedule{100, true, chosen})
	}
	return all
}

func scheduleScenarios() []scenario {
	var all []scenario
	for _, x := range schedules() {
		all = append(all, scenario{name: x.name(), about: x.label(), takes: spans(1.4, time.Second), run: x.run})
	}
	return all
}

// pendingName returns the name of the scenario that measures x beside the pending messages.
func (x schedule) pendingName() string { return "pending/" + x.name() }

func pendingScheduleScenarios() []scenario {
	var all []scenario
	for _, x := range pendingSchedules() {
		all = append(all, scenario{
			name: x.pendingName(), about: x.label() + ", beside the pending ones", pending: true, maxRounds: 2,
			takes: spans(1.4, 3*time.Second), run: x.run,
		})
	}
	return all
}

// scheduleSingles has n goroutines push one message each, again and again. The limit is that of
// batches of n messages, because n goroutines that wait for their answers never push more than n
// messages at the same time.
func scheduleSingles(ctx context.Context, e *env, n int, chosen bool) error {
	return e.scheduleRate(n, func(q *punctual.Queue) (*tally, error) {
		return flatOut(ctx, n, e.sizes.Span, func(ctx context.Context, _ int) (int, error) {
			options := []punctual.PushOption{punctual.At(farDue(time.Now()))}
			if chosen {
				options = append(options, punctual.ID(chosenID()))
			}
			_, err := q.Push(ctx, topic, randomBody(), options...)
			return 1, err
		})
	})
}

func scheduleBatches(ctx context.Context, e *env, n int, chosen bool) error {
	ms := make([]punctual.NewMessage, n)
	return e.scheduleRate(n, func(q *punctual.Queue) (*tally, error) {
		return flatOut(ctx, 1, e.sizes.Span, func(ctx context.Context, _ int) (int, error) {
			farMessages(ms)
			if chosen {
				for i := range ms {
					ms[i].ID = chosenID()
				}
			}
			return n, checkPushed(q.PushMany(ctx, ms))
		})
	})
}

// scheduleRate opens the store and notes the rate of push beside the limit for batches of n
// messages.
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
