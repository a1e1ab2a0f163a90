package duties

import (
	"context"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/stalled"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/schedule"
)

// watchEvery is how often the log is told of schedules that have got a problem, unless the store's
// clock has stepped back: then it is told at once. Every clockEvery the clock is read for that.
const (
	watchEvery = time.Minute
	clockEvery = 10 * time.Second
)

// watchSchedules logs which of the schedules whose duty the Runner does have a problem, once when
// the problem begins and once when it is over, until ctx ends. It has those begin again that have
// decided about times ahead because the store's clock has stepped back. Run waits for it.
func (r *Runner) watchSchedules(ctx context.Context) {
	watch := stalled.New(r.tools.Store)
	told := make(map[stalled.Schedule]bool)
	tick := time.NewTicker(clockEvery)
	defer tick.Stop()
	var clock time.Time // the store's
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		looks := n%int(watchEvery/clockEvery) == 0
		now, err := r.tools.Store.Now(ctx)
		if err == nil {
			if now.Before(clock) {
				watch, looks = stalled.New(r.tools.Store), true // a new one reads at once
			}
			clock = now
		}
		if !looks {
			continue
		}
		var names []string
		if err == nil {
			names, err = r.Names(ctx)
		}
		if err == nil {
			err = r.tellStalled(ctx, watch, stalled.Topics(names), told)
		}
		if err != nil && ctx.Err() == nil {
			r.tools.Logger.Log(ctx, LevelOf(err), "schedules that do not come could not be looked for; trying again", "err", err)
		}
	}
}

// tellStalled logs which problems are new and which are over, compared with told, and updates told.
// It ignores since when a schedule has its problem, because that may change with each time that is
// left out. It makes each schedule due that has decided about times ahead, so that its duty lets it
// begin again.
func (r *Runner) tellStalled(ctx context.Context, watch *stalled.Watch, topics []string, told map[stalled.Schedule]bool) error {
	found, err := watch.Look(ctx, topics)
	if err != nil {
		return err
	}
	there := make(map[stalled.Schedule]bool, len(found))
	var wake []punctual.Amendment
	for _, s := range found {
		if s.Ahead && len(wake) < limits.MaxBatch {
			wake = append(wake, punctual.Amendment{Change: punctual.ChangeReschedule, Topic: s.Topic + schedule.Suffix, ID: s.Name})
		}
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
	if len(wake) > 0 {
		// What does not become due, because somebody works on it or has removed it, is found again
		// if it has to.
		if _, err := r.tools.Store.Amend(ctx, wake); err != nil {
			return fmt.Errorf("have schedules begin again: %w", err)
		}
	}
	return nil
}
