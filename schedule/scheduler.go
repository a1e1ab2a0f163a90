package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/cron"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/schedule/internal/rule"
	"github.com/punctualmq/punctual/storekit"
)

// Scheduler is the Handler of the companions T@cron: it stores the occurrences of schedules when
// these come. Package duty runs one for all topics of a store, and a Worker one for its own topics
// if worker.Config.Schedules says so. A program that wants to see or bound this work registers the
// Scheduler itself, in slots and under leases like those of any topic:
//
//	w.Handle("reports@cron", NewScheduler(store))
//
// Any number of processes may run one, because the lease of the schedule's message decides which of
// them stores a time. Make one with NewScheduler.
type Scheduler struct {
	// Observer is told what was decided, by its OnSchedule. Default none. It must not be changed
	// once the Scheduler is in use.
	Observer *punctual.Observer

	store punctual.Store
	zones *cron.Zones
}

// NewScheduler returns a Scheduler for a store that is an Inspector and has follow-ups
// (Abilities.Follow), as Put demands.
func NewScheduler(s punctual.Store) *Scheduler { return &Scheduler{store: s, zones: new(cron.Zones)} }

const (
	// strangeDelay is how long a schedule that this process cannot read, or whose zone it does not
	// know, is left to others.
	strangeDelay = time.Minute
	// troubleDelay is how long a schedule waits when the store does not answer what the Scheduler
	// has to know.
	troubleDelay = time.Second
)

// Handle decides about the times of the schedule d that have come, by the store's clock at the
// claim. A schedule that has decided about times ahead, because that clock has stepped back since,
// begins again before (Info.Ahead). Handle returns a Follow, which acks d with the occurrences, the
// events and the schedule itself as follow-ups, or a Snooze with the reason why nothing is stored.
// After a Snooze the schedule's message is delivered again by itself.
func (s *Scheduler) Handle(ctx context.Context, d *punctual.Delivery) error {
	topic, ok := strings.CutSuffix(d.Topic, Suffix)
	if !ok {
		return leaveToOthers(d, fmt.Errorf("%s is not the companion %s of a topic", d.Topic, Suffix))
	}
	r, err := rule.Decode(d.Body)
	if err != nil {
		return leaveToOthers(d, err)
	}
	now := d.Delivered.UnixMilli()
	if err := forget(ctx, s.store, r, now, s.zones); err != nil {
		return fmt.Errorf("schedule %s: begin again: %w: %w", d.ID, err, punctual.Snooze(troubleDelay))
	}
	fates, err := s.fates(ctx, topic, d.ID, r.Question())
	if err != nil {
		return fmt.Errorf("schedule %s: look for its occurrences: %w: %w", d.ID, err, punctual.Snooze(troubleDelay))
	}
	delay := rule.Delay(r.Spread, topic, d.ID)
	step, err := r.Decide(rule.Occasion{Now: now, Delay: delay, Fates: fates, Room: roomFor(&r.Definition)}, s.zones)
	if err != nil {
		return leaveToOthers(d, err)
	}
	if o := s.Observer; o != nil && o.OnSchedule != nil {
		counts := punctual.ScheduleCounts{Stored: int64(len(step.Store)), Missed: step.Missed, Skipped: step.Skipped}
		o.OnSchedule(ctx, punctual.ScheduleStep{Topic: topic, Name: d.ID, Counts: counts, Paused: step.Paused})
	}
	if step.Cancel != 0 {
		if err := s.cancel(ctx, topic, occurrenceID(d.ID, step.Cancel)); err != nil {
			return fmt.Errorf("schedule %s: %w: %w", d.ID, err, punctual.Snooze(troubleDelay))
		}
	}
	var then []punctual.NewMessage
	for _, at := range step.Store {
		m := occurrence(topic, d.ID, occurrenceID(d.ID, at), &r.Definition, at, at+delay, "")
		m.IfExists = punctual.IfExistsReplaceDead // a dead message with this ID must not hold the schedule up for ever
		then = append(then, m)
	}
	events, err := s.events(ctx, topic, d, step.Accounts)
	if err != nil {
		return fmt.Errorf("schedule %s: tell of the times that were left out: %w: %w", d.ID, err, punctual.Snooze(troubleDelay))
	}
	then = append(then, events...)
	self, err := scheduleMessage(topic, d.ID, r, s.zones)
	if err != nil {
		return leaveToOthers(d, err)
	}
	self.IfExists = punctual.IfExistsReplace // also when the companion still remembers the ID of an acked message
	return punctual.Follow(nil, append(then, self)...)
}

// leaveToOthers returns the error that snoozes d for strangeDelay, because another process may know
// what this one does not.
func leaveToOthers(d *punctual.Delivery, err error) error {
	return fmt.Errorf("schedule %s is left to other processes: %w: %w", d.ID, err, punctual.Snooze(strangeDelay))
}

// forget has r begin again after the step of the store's clock, if r has decided about times that
// lie ahead of now because that clock has stepped back since. Where the store does not tell of the
// step, r begins again after now.
func forget(ctx context.Context, store punctual.Store, r *rule.Record, now int64, zones *cron.Zones) error {
	ahead := r.Ahead(now)
	if ahead == 0 {
		return nil
	}
	from := now
	if k, err := punctual.As[storekit.ClockKeeper](store); err == nil {
		c, err := k.Clock(ctx)
		if err != nil && !errors.Is(err, punctual.ErrUnsupported) {
			return err
		}
		if ahead <= c.Last.From.UnixMilli() {
			from = min(now, c.Last.To.UnixMilli())
		}
	}
	r.Forget(from, now, zones)
	return nil
}

// roomFor is how many occurrences fit into one settlement.
func roomFor(d *rule.Definition) int {
	each := len(d.Body()) + scheduleHeaderBytes
	for name, value := range d.Headers {
		each += len(name) + len(value)
	}
	const self = 2 * MaxBody // the stored form of the schedule escapes some bytes
	return max(1, min(rule.MostStored, (limits.MaxThenBytes-self)/each))
}

// fates looks up what has become of the occurrences that a decision depends on.
func (s *Scheduler) fates(ctx context.Context, topic, name string, q rule.Question) (map[int64]rule.Fate, error) {
	if q.Last == 0 && len(q.Watched) == 0 {
		return nil, nil
	}
	look, err := punctual.As[punctual.Inspector](s.store)
	if err != nil {
		return nil, err
	}
	fates := make(map[int64]rule.Fate)
	for _, at := range append(q.Watched, q.Last) {
		if _, known := fates[at]; known || at == 0 {
			continue
		}
		m, err := look.Get(ctx, topic, occurrenceID(name, at))
		switch {
		case errors.Is(err, punctual.ErrNotFound):
			fates[at] = rule.Gone
		case err != nil:
			return nil, err
		case m.State == punctual.StateDead:
			fates[at] = rule.Dead
		default:
			fates[at] = rule.Live
		}
	}
	return fates, nil
}

// events are the messages that tell of the times which a step has left out, where the topic emits
// them (Settings.Emit). They are follow-ups as the occurrences are, so that each time is told of
// once.
func (s *Scheduler) events(ctx context.Context, topic string, d *punctual.Delivery, accounts []rule.Account) (ms []punctual.NewMessage, err error) {
	if len(accounts) == 0 {
		return nil, nil
	}
	look, err := punctual.As[punctual.Inspector](s.store)
	if err != nil {
		return nil, err
	}
	set, err := look.Settings(ctx, topic)
	switch {
	case errors.Is(err, punctual.ErrNotFound):
		return nil, nil
	case err != nil: // whether the topic is to tell is not known, so nothing is decided yet
		return nil, err
	case set.Emit&(punctual.EventMissed|punctual.EventSkipped) == 0:
		return nil, nil
	}
	for _, a := range accounts {
		body := scheduleEvent{
			Event: punctual.EventSkipped.String(), Topic: topic, ID: occurrenceID(d.ID, a.Last), At: d.Delivered.UnixMilli(),
			FirstDue: a.First, Due: a.Last, Count: a.Count, Why: leftOut[a.Why],
		}
		on := punctual.EventSkipped
		if a.Why == rule.WhyMissed {
			on, body.Event, body.Why = punctual.EventMissed, punctual.EventMissed.String(), ""
		}
		if set.Emit&on == 0 {
			continue
		}
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		ms = append(ms, punctual.NewMessage{
			Topic: topic + storekit.EventSuffix, ID: body.ID + "~" + string(a.Why), Body: text, ExpireAfter: set.EmitKeep,
			DropExpired: true, IfExists: punctual.IfExistsReplace,
		})
	}
	return ms, nil
}

// scheduleEvent is the body of a message that tells of times of a schedule, which event.Parse
// reads.
type scheduleEvent struct {
	Event    string           `json:"event"`
	Topic    string           `json:"topic"`
	ID       string           `json:"id"`
	At       int64            `json:"at"`
	FirstDue int64            `json:"first_due"`
	Due      int64            `json:"due"`
	Count    int64            `json:"count"`
	Why      OccurrenceStatus `json:"why,omitempty"`
}

// cancel cancels an occurrence that a later one replaces. One that has finished meanwhile is as
// good as cancelled, and one that somebody works on gets no further attempt.
func (s *Scheduler) cancel(ctx context.Context, topic, id string) error {
	answers, err := s.store.Amend(ctx, []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: topic, ID: id}})
	if err == nil {
		err = answers[0].Err
	}
	if errors.Is(err, punctual.ErrNotFound) || errors.Is(err, punctual.ErrLeased) {
		return nil
	}
	return err
}
