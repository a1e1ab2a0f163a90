// Package stalled goes through the schedules of a store and finds those with a problem
// (schedule.Info.Problem), for metrics, the log of the duties, the console, "punctual top" and
// doctor. What is a problem is decided in the root package. Here stands what finding them may cost.
package stalled

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/storekit"
)

const (
	// slice is how long a Look reads before it leaves the other topics to the next one.
	slice = time.Second
	// share is for how many times as long as a Look took the next one reads nothing, so that
	// 100,000 schedules, which take a second or two to read, cost at most a fiftieth of the time.
	share = 50
)

// Schedule is a schedule with a problem, or one that has missed times.
type Schedule struct {
	Topic, Name string
	// Problem and Since are schedule.Info.Problem and schedule.Info.ProblemSince. Without a Problem
	// Since is schedule.Info.LastMissed.
	Problem string
	Since   time.Time
	// Ahead tells that schedule.Info.Ahead is set.
	Ahead bool
}

// Watch goes through the schedules of a store again and again. It is not for concurrent use.
type Watch struct {
	queue *punctual.Queue
	// found has the schedules with a problem, missed those without one that have missed times: by
	// topic, as it was read last.
	found, missed map[string][]Schedule
	left          []string  // the topics that the round under way has not read yet
	rests         time.Time // until when Look reads nothing
}

// New returns a Watch of a store, which is read by the caller of Look alone.
func New(store punctual.Store) *Watch {
	return &Watch{queue: punctual.NewQueue(store, nil), found: make(map[string][]Schedule), missed: make(map[string][]Schedule)}
}

// Topics returns the topics that have schedules, given the names of all topics.
func Topics(names []string) (topics []string) {
	for _, name := range names {
		if topic, ok := strings.CutSuffix(name, schedule.Suffix); ok {
			topics = append(topics, topic)
		}
	}
	return topics
}

// Look reads the schedules of the topics, and returns those with a problem, sorted by topic. It
// reads topics for a second, and the others in the next calls; what it returns of these was read
// before. After a call that took 100 ms, calls read nothing for 5 s. A store without schedules
// (ErrUnsupported) has none with a problem.
func (w *Watch) Look(ctx context.Context, topics []string) ([]Schedule, error) {
	if began := time.Now(); !began.Before(w.rests) {
		if len(w.left) == 0 {
			w.left = slices.Clone(topics)
		}
		err := w.read(ctx, began.Add(slice))
		w.rests = time.Now().Add(share * time.Since(began))
		if err != nil {
			return nil, err
		}
	}
	for _, read := range []map[string][]Schedule{w.found, w.missed} {
		maps.DeleteFunc(read, func(topic string, _ []Schedule) bool { return !slices.Contains(topics, topic) })
	}
	return inOrder(w.found), nil
}

// Missed returns the schedules without a problem that have missed times, sorted by topic, as the
// last Look has read them.
func (w *Watch) Missed() []Schedule { return inOrder(w.missed) }

func inOrder(read map[string][]Schedule) (all []Schedule) {
	for _, topic := range slices.Sorted(maps.Keys(read)) {
		all = append(all, read[topic]...)
	}
	return all
}

// read reads topics of w.left until an instant, at least one of them.
func (w *Watch) read(ctx context.Context, until time.Time) error {
	for len(w.left) > 0 {
		topic := w.left[0]
		var found, missed []Schedule
		for s, err := range schedule.List(ctx, w.queue, schedule.Query{Topic: topic}) {
			switch {
			case errors.Is(err, punctual.ErrUnsupported):
			case err != nil:
				return fmt.Errorf("look for schedules of %s that do not come: %w", topic, err)
			case s.Problem != "":
				found = append(found, Schedule{Topic: topic, Name: s.Name, Problem: s.Problem, Since: s.ProblemSince, Ahead: !s.Ahead.IsZero()})
			case !s.LastMissed.IsZero():
				missed = append(missed, Schedule{Topic: topic, Name: s.Name, Since: s.LastMissed})
			}
		}
		w.left = w.left[1:]
		w.found[topic], w.missed[topic] = found, missed
		if !time.Now().Before(until) {
			return nil
		}
	}
	return nil
}

// mostShown is how many schedules Examine names one by one.
const mostShown = 10

// Examine returns a finding for each schedule with a problem, or a good one if there are schedules
// and all is well. It reads for a second, and says so if that was not enough for all topics.
func Examine(ctx context.Context, store punctual.Store) ([]storekit.Finding, error) {
	namer, err := punctual.As[storekit.TopicNamer](store)
	if err != nil {
		return nil, nil // it cannot have schedules that a duty finds
	}
	names, err := namer.TopicNames(ctx, storekit.NameQuery{Suffix: schedule.Suffix})
	if errors.Is(err, punctual.ErrUnsupported) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look which topics have schedules: %w", err)
	}
	topics := Topics(names)
	w := New(store)
	found, err := w.Look(ctx, topics)
	if err != nil {
		return nil, err
	}
	var out []storekit.Finding
	for i, s := range found {
		if i == mostShown && len(found) > mostShown+1 {
			out = append(out, storekit.Finding{
				Name: "schedules", Value: fmt.Sprintf("%d more do not come", len(found)-mostShown), Severity: storekit.SeverityBad,
				Remedy: "'punctual schedule list' shows all with their problems",
			})
			break
		}
		out = append(out, s.Finding())
	}
	switch {
	case len(w.left) > 0:
		out = append(out, storekit.Finding{
			Name: "schedules", Value: fmt.Sprintf("those of %d of %d topics were not read", len(w.left), len(topics)), Severity: storekit.SeverityWarning,
			Remedy: "reading all takes longer than an examination may: 'punctual schedule list' reads them",
		})
	case len(topics) > 0 && len(found) == 0:
		out = append(out, storekit.Finding{Name: "schedules", Value: "none has a problem", Severity: storekit.SeverityGood})
	}
	return out, nil
}

// Finding returns s as a finding of an examination.
func (s *Schedule) Finding() storekit.Finding {
	value := "does not come"
	if !s.Since.IsZero() {
		value = "does not run as it should from " + s.Since.UTC().Format(time.RFC3339) + " on"
	}
	return storekit.Finding{Name: "schedule " + s.Name + " in " + s.Topic, Value: value, Severity: storekit.SeverityBad, Remedy: s.Problem}
}
