package overview

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
)

// topicCounts is what count reads in one go.
type topicCounts struct {
	now    time.Time
	topics []punctual.TopicStats
	hidden []punctual.TopicStats
	// lacking is true when the store turned out not to be a punctual.Inspector, which may be so for
	// a store behind a server.
	lacking bool
	// surveyed is what a survey found to be due when; nil when the store is no surveyor.
	surveyed *surveyed
}

// Counts are the topics, as of an instant of the store's clock.
type Counts struct {
	AsOf time.Time
	// Counted and Partial are as those of an Overview.
	Counted time.Time
	Partial bool
	// Topics are sorted by name.
	Topics []punctual.TopicStats
}

// Topics counts the messages of the topics. Where counting takes the store long, callers share an
// answer that may be some minutes old, and hours if the store is a storekit.Surveyor. Before the
// first survey of such a store only what is ready is known (Counts.Partial).
func (r *Reader) Topics(ctx context.Context) (Counts, error) {
	if !r.isCostly() {
		c, err := r.count(ctx)
		if err == nil && (r.inspector == nil || c.lacking) {
			err = fmt.Errorf("count the topics: the store cannot be inspected: %w", punctual.ErrUnsupported)
		}
		return Counts{AsOf: c.now, Counted: c.now, Topics: c.topics}, err
	}
	running := r.beginCount()
	if r.surveyor != nil {
		return r.surveyedTopics(ctx, running)
	}
	c := r.counts.await(ctx, nil)
	if !r.isUsable(c) {
		c = r.counts.await(ctx, running)
	}
	switch {
	case c.err != nil:
		return Counts{}, c.err
	case c.read.IsZero():
		return Counts{}, context.Cause(ctx)
	}
	return Counts{AsOf: c.value.now, Counted: c.value.now, Topics: slices.Clone(c.value.topics)}, nil
}

// quick returns the counts of the topics. It waits until patient ends, and then returns older
// counts. Where there are none, or they are too old to be shown, it waits until ctx ends; with
// Options.Hurry it returns an empty answer instead. For a costly survey that may be shown it does
// not wait at all.
func (r *Reader) quick(ctx, patient context.Context) (answer[topicCounts], error) {
	running := r.beginCount()
	if r.surveyor != nil && r.isCostly() {
		if c := r.counts.await(ctx, nil); !c.read.IsZero() && r.isUsable(c) {
			return c, nil // a survey takes longer than anybody waits
		}
	}
	c := r.counts.await(patient, running)
	if !r.isUsable(c) {
		if r.o.Hurry && ctx.Err() == nil {
			return answer[topicCounts]{}, nil
		}
		c = r.counts.await(ctx, running)
	}
	switch {
	case !c.read.IsZero():
		return c, nil
	case c.err != nil:
		return c, fmt.Errorf("overview: %w", c.err)
	}
	return c, fmt.Errorf("overview: %w", context.Cause(ctx))
}

// count reads the store's clock and counts the topics, with a survey if the store is a surveyor.
func (r *Reader) count(ctx context.Context) (topicCounts, error) {
	began := time.Now()
	now, err := r.store.Now(ctx)
	if err != nil {
		return topicCounts{}, fmt.Errorf("read the store's clock: %w", err)
	}
	out := topicCounts{now: now}
	if r.inspector == nil {
		return out, nil
	}
	if r.surveyor != nil {
		out, err = r.survey(ctx, now)
		r.noteCost(time.Since(began))
		return out, err
	}
	all, err := r.inspector.Topics(ctx)
	if errors.Is(err, punctual.ErrUnsupported) {
		out.lacking = true
		return out, nil
	}
	if err != nil {
		return topicCounts{}, fmt.Errorf("count the messages of the topics: %w", err)
	}
	r.noteCost(time.Since(began))
	out.keep(all)
	return out, nil
}

// keep sorts the topics into those that are shown and those that are hidden.
func (c *topicCounts) keep(all []punctual.TopicStats) {
	for _, t := range all {
		if t.Topic == access.AuditTopic {
			c.hidden = append(c.hidden, t)
		} else {
			c.topics = append(c.topics, t)
		}
	}
}

// beginCount begins to count the topics, unless the last counts are still fresh. It returns what
// cached.begin returns.
func (r *Reader) beginCount() <-chan struct{} {
	return r.counts.begin(r, policy{timeout: r.o.Timeout, fresh: r.countsFor}, r.count)
}

// countsFor returns how long counts are used that took so long.
func (r *Reader) countsFor(took time.Duration) time.Duration {
	if r.surveyor != nil {
		return max(leastAge, surveyShare*took)
	}
	return freshFor(mostCountAge, countShare)(took)
}

// isUsable reports whether counts may be shown while new ones are read. They may not when they are
// too old, because nobody asked for a long time, unless the last reading failed: then they are
// shown with its error.
func (r *Reader) isUsable(a answer[topicCounts]) bool {
	return a.err != nil || time.Since(a.read) <= max(longAgo, 2*r.countsFor(a.took))
}

// isCostly reports whether each of the last mostCosts counts took the store long, so that a single
// slow count changes nothing. The counts of a surveyor are costly until one has been made, and as
// long as each of the last ones, however few, took long.
func (r *Reader) isCostly() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.surveyor != nil {
		return len(r.costs) == 0 || slices.Min(r.costs) >= costly
	}
	return len(r.costs) == mostCosts && slices.Min(r.costs) >= costly
}

// noteCost notes how long a count of the topics took.
func (r *Reader) noteCost(took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.costs = append(r.costs, took)
	r.costs = r.costs[max(0, len(r.costs)-mostCosts):]
}

// Stats counts one topic of a store that is a punctual.Inspector. For a surveyor whose counts are
// costly it returns what Topics knows about the topic, and the Counts that this is part of.
func (r *Reader) Stats(ctx context.Context, topic string) (punctual.TopicStats, Counts, error) {
	if r.surveyor == nil || !r.isCostly() {
		s, err := r.inspector.Stats(ctx, topic)
		return s, Counts{}, err
	}
	c, err := r.Topics(ctx)
	if err != nil {
		return punctual.TopicStats{}, c, err
	}
	n, found := slices.BinarySearchFunc(c.Topics, topic, func(s punctual.TopicStats, name string) int { return strings.Compare(s.Topic, name) })
	if !found {
		return punctual.TopicStats{}, c, fmt.Errorf("topic %s: %w", topic, punctual.ErrNotFound)
	}
	return c.Topics[n], c, nil
}
