package punctual

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/punctualmq/punctual/internal/cron"
	"github.com/punctualmq/punctual/internal/schedule"
)

// Scheduler is the Handler of the companions T@cron: it stores the occurrences of schedules when these come. Package duty runs
// one for all topics of a store. A program that runs a Worker for a few topics can do it there:
//
//	w.Handle("reports@cron", punctual.NewScheduler(store))
//
// Any number of processes may run one, because the lease of the schedule's message decides which of them stores a time. Make one
// with NewScheduler.
type Scheduler struct {
	store Store
	zones cron.Zones
}

// NewScheduler returns a Scheduler for a store that is an Inspector and has follow-ups (Abilities.Follow). Where it is not,
// Handle snoozes each schedule and says why.
func NewScheduler(s Store) *Scheduler { return &Scheduler{store: s} }

const (
	// strangeDelay is how long a schedule that this process cannot read, or whose zone it does not know, is left to others.
	strangeDelay = time.Minute
	// troubleDelay is how long a schedule waits when the store does not answer what the Scheduler has to know.
	troubleDelay = time.Second
)

// Handle decides about the times of the schedule d that have come, by the store's clock at the claim. What it returns acks d with
// the occurrences and the schedule itself as follow-ups, or snoozes it. So an error other than of a Follow says why nothing was
// decided, and the schedule comes again by itself.
func (s *Scheduler) Handle(ctx context.Context, d *Delivery) error {
	topic, ok := strings.CutSuffix(d.Topic, companionCron)
	if !ok {
		return leaveToOthers(d, fmt.Errorf("%s is not the companion %s of a topic", d.Topic, companionCron))
	}
	r, err := schedule.Decode(d.Body)
	if err != nil {
		return leaveToOthers(d, err)
	}
	fates, err := s.fates(ctx, topic, d.ID, r.Question())
	if err != nil {
		return fmt.Errorf("schedule %s: look for its occurrences: %w: %w", d.ID, err, Snooze(troubleDelay))
	}
	delay := schedule.Delay(r.Spread, topic, d.ID)
	step, err := r.Decide(schedule.Occasion{Now: d.Delivered.UnixMilli(), Delay: delay, Fates: fates, Room: roomFor(&r.Definition)}, &s.zones)
	if err != nil {
		return leaveToOthers(d, err)
	}
	if step.Cancel != 0 {
		if err := s.cancel(ctx, topic, occurrenceID(d.ID, step.Cancel)); err != nil {
			return fmt.Errorf("schedule %s: %w: %w", d.ID, err, Snooze(troubleDelay))
		}
	}
	var then []NewMessage
	for _, at := range step.Store {
		m := occurrence(topic, d.ID, occurrenceID(d.ID, at), &r.Definition, at, at+delay, "")
		m.IfExists = IfExistsReplaceDead // a dead message with this ID must not hold the schedule up for ever
		then = append(then, m)
	}
	self, err := scheduleMessage(topic, d.ID, r, &s.zones)
	if err != nil {
		return leaveToOthers(d, err)
	}
	self.IfExists = IfExistsReplace // whatever the companion remembers
	return Follow(nil, append(then, self)...)
}

// leaveToOthers snoozes d, because another process may know what this one does not.
func leaveToOthers(d *Delivery, err error) error {
	return fmt.Errorf("schedule %s is left to other processes: %w: %w", d.ID, err, Snooze(strangeDelay))
}

// roomFor is how many occurrences fit into one settlement.
func roomFor(d *schedule.Definition) int {
	each := len(d.Body()) + scheduleHeaderBytes
	for name, value := range d.Headers {
		each += len(name) + len(value)
	}
	const self = 2 * MaxScheduleBody // the stored form of the schedule escapes some bytes
	return max(1, min(schedule.MostStored, (MaxThenBytes-self)/each))
}

// fates looks up what has become of the occurrences that a decision depends on.
func (s *Scheduler) fates(ctx context.Context, topic, name string, q schedule.Question) (map[int64]schedule.Fate, error) {
	if q.Last == 0 && len(q.Watched) == 0 {
		return nil, nil
	}
	look, err := As[Inspector](s.store)
	if err != nil {
		return nil, err
	}
	fates := make(map[int64]schedule.Fate)
	for _, at := range append(q.Watched, q.Last) {
		if _, known := fates[at]; known || at == 0 {
			continue
		}
		m, err := look.Get(ctx, topic, occurrenceID(name, at))
		switch {
		case errors.Is(err, ErrNotFound):
			fates[at] = schedule.Gone
		case err != nil:
			return nil, err
		case m.State == StateDead:
			fates[at] = schedule.Dead
		default:
			fates[at] = schedule.Live
		}
	}
	return fates, nil
}

// cancel cancels an occurrence that a later one replaces. One that has finished meanwhile is as good as cancelled, and one that
// somebody works on gets no further attempt.
func (s *Scheduler) cancel(ctx context.Context, topic, id string) error {
	answers, err := s.store.Amend(ctx, []Amendment{{Change: ChangeCancel, Topic: topic, ID: id}})
	if err == nil {
		err = answers[0].Err
	}
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrLeased) {
		return nil
	}
	return err
}
