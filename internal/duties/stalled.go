package duties

import (
	"context"
	"time"

	"github.com/punctualmq/punctual/internal/stalled"
)

// watchEvery is how often the log is told of schedules that have got a problem.
const watchEvery = time.Minute

// watchSchedules logs which of the schedules whose duty the Runner does have a problem, once when the problem begins and once when it is
// over, until ctx ends.
func (r *Runner) watchSchedules(ctx context.Context) {
	watch := stalled.New(r.tools.Store)
	told := make(map[stalled.Schedule]bool)
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		names, err := r.Names(ctx)
		if err == nil {
			err = r.tellStalled(ctx, watch, stalled.Topics(names), told)
		}
		if err != nil && ctx.Err() == nil {
			r.tools.Logger.Warn("schedules that do not come could not be looked for; trying again", "err", err)
		}
	}
}

// tellStalled logs what has changed since told, and brings told up to date. The time since which a schedule has its problem does not
// count, because it may change with each time that is left out.
func (r *Runner) tellStalled(ctx context.Context, watch *stalled.Watch, topics []string, told map[stalled.Schedule]bool) error {
	found, err := watch.Look(ctx, topics)
	if err != nil {
		return err
	}
	there := make(map[stalled.Schedule]bool, len(found))
	for _, s := range found {
		since := s.Since
		s.Since = time.Time{}
		if there[s] = true; !told[s] {
			r.tools.Logger.Warn("a schedule does not come", "topic", s.Topic, "schedule", s.Name, "problem", s.Problem, "since", since)
		}
		told[s] = true
	}
	for s := range told {
		if !there[s] {
			delete(told, s)
			r.tools.Logger.Info("a schedule has this problem no more", "topic", s.Topic, "schedule", s.Name, "problem", s.Problem)
		}
	}
	return nil
}
