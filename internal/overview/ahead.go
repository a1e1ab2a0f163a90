package overview

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
)

// Step is the length of the steps in which messages are counted ahead.
type Step uint8

// The steps. Hours and days are those of a time zone; a day may have 23 or 25 hours.
const (
	Minute Step = iota + 1
	Hour
	Day
)

// String returns "minute", "hour" or "day".
func (s Step) String() string {
	switch s {
	case Minute:
		return "minute"
	case Hour:
		return "hour"
	}
	return "day"
}

// begin returns when the step begins in which t is.
func (s Step) begin(t time.Time) time.Time {
	switch s {
	case Minute:
		return t.Truncate(time.Minute)
	case Hour:
		return t.Truncate(time.Minute).Add(-time.Duration(t.Minute()) * time.Minute)
	}
	return StartOfDay(t, t.Location())
}

// next returns when the step ends that begins at t.
func (s Step) next(t time.Time) time.Time {
	switch s {
	case Minute:
		return t.Add(time.Minute)
	case Hour:
		return t.Add(time.Hour)
	}
	return StartOfDay(t.AddDate(0, 0, 1), t.Location())
}

// StartOfDay returns the first instant in zone that has the date of day. That is not always
// midnight, because some zones change their clocks at midnight, so that it does not exist on that
// day or comes twice.
func StartOfDay(day time.Time, zone *time.Location) time.Time {
	const step = 15 * time.Minute // all changes of clocks since 2000 are multiples of it
	begun := func(t time.Time) bool { return t.In(zone).Format(time.DateOnly) >= day.Format(time.DateOnly) }
	t := time.Date(day.Year(), day.Month(), day.Day(), 0, 0, 0, 0, zone)
	for !begun(t) {
		t = t.Add(step)
	}
	for begun(t.Add(-step)) {
		t = t.Add(-step)
	}
	return t
}

// AheadQuery asks how many messages are due in each of some steps, from the one under way on.
type AheadQuery struct {
	// Topic is the topic to count; empty stands for all topics.
	Topic string
	Step  Step
	// Steps is the number of steps.
	Steps int
	// Zone is the time zone in which hours and days begin; nil is UTC, and for Reader.Ahead
	// Options.Zone.
	Zone *time.Location

	row bool // of a table, which is counted less often than a picture
}

// edges returns when each step begins, and when the last one ends.
func (q AheadQuery) edges(now time.Time) []time.Time {
	zone := q.Zone
	if zone == nil {
		zone = time.UTC
	}
	edges := make([]time.Time, 1, q.Steps+1)
	edges[0] = q.Step.begin(now.In(zone))
	for n := range q.Steps {
		edges = append(edges, q.Step.next(edges[n]))
	}
	return edges
}

// Ahead says how many messages are due when. Several callers may have the same Ahead, so nobody may
// change it.
type Ahead struct {
	AheadQuery
	// AsOf is the store's clock when the messages were counted. For the answer of a survey it is
	// the store's clock when somebody asked, which is later.
	AsOf time.Time
	// Edges are when the steps begin, and when the last one ends: one more than Counts. They are in
	// the zone asked for.
	Edges []time.Time
	// Counts[n] counts the messages due from Edges[n], or from when they were counted if that is
	// later, until before Edges[n+1].
	Counts []int64
	// Overdue counts the ready and leased messages, Beyond those due after the last step.
	Overdue, Beyond int64
}

// in returns a copy with its edges in a time zone.
func (a *Ahead) in(zone *time.Location) *Ahead {
	out := *a
	out.Zone, out.Edges = zone, slices.Clone(a.Edges)
	for n, e := range out.Edges {
		out.Edges[n] = e.In(zone)
	}
	return &out
}

// Sum returns how many messages are due within the steps.
func (a *Ahead) Sum() (n int64) {
	for _, c := range a.Counts {
		n += c
	}
	return n
}

// sumOf adds up topics that have the same edges. There has to be at least one.
func sumOf(topics []*Ahead) *Ahead {
	out := *topics[0]
	out.Topic, out.Counts = "", slices.Clone(out.Counts)
	for _, a := range topics[1:] {
		out.Overdue, out.Beyond = out.Overdue+a.Overdue, out.Beyond+a.Beyond
		for n, count := range a.Counts {
			out.Counts[n] += count
		}
	}
	return &out
}

// take subtracts the messages of other, which has the same edges.
func (a *Ahead) take(other *Ahead) {
	a.Overdue, a.Beyond = max(0, a.Overdue-other.Overdue), max(0, a.Beyond-other.Beyond)
	for n := range a.Counts {
		a.Counts[n] = max(0, a.Counts[n]-other.Counts[n])
	}
}

// Forecast counts ahead as of now, which is a time that the caller has just read from the store's
// clock.
func Forecast(ctx context.Context, i punctual.Inspector, q AheadQuery, now time.Time) (*Ahead, error) {
	edges := q.edges(now)
	width := commonWidth(edges)
	f, err := i.Forecast(ctx, punctual.ForecastQuery{
		Topic: q.Topic, From: edges[0], Step: width, Buckets: int(edges[len(edges)-1].Sub(edges[0]) / width),
	})
	if err != nil {
		return nil, fmt.Errorf("count what is due by %s: %w", q.Step, err)
	}
	out := &Ahead{AheadQuery: q, AsOf: now, Edges: edges, Counts: make([]int64, q.Steps), Overdue: f.Overdue, Beyond: f.Beyond}
	for n := range out.Counts {
		parts := int(edges[n+1].Sub(edges[n]) / width)
		for _, count := range f.Counts[:parts] {
			out.Counts[n] += count
		}
		f.Counts = f.Counts[parts:]
	}
	return out, nil
}

// commonWidth returns the longest duration of which all steps between the edges are multiples. A
// store counts in steps of one length, so it counts in these, and they are added up to hours and
// days that differ in length.
func commonWidth(edges []time.Time) time.Duration {
	width := edges[1].Sub(edges[0])
	for n := range len(edges) - 1 {
		for rest := edges[n+1].Sub(edges[n]); rest != 0; {
			width, rest = rest, width%rest
		}
	}
	return width
}

// Ahead counts ahead as q says, for a page of one topic for instance. Callers share its answers, of
// which at most mostAsked are kept. It fails with ErrCounting when the first answer takes the store
// longer than Options.Patience.
func (r *Reader) Ahead(ctx context.Context, q AheadQuery) (*Ahead, error) {
	if r.inspector == nil {
		return nil, fmt.Errorf("count ahead: the store cannot be inspected: %w", punctual.ErrUnsupported)
	}
	if q.Zone == nil {
		q.Zone = r.o.Zone
	}
	patient, cancel := context.WithTimeout(ctx, r.o.Patience)
	defer cancel()
	if r.surveyor != nil {
		if a, err := r.surveyedAhead(patient, q); a != nil || err != nil {
			return a, err
		}
	}
	c := r.askedFor(q)
	a := c.await(patient, c.begin(r, r.picturePolicy(q.Step), func(ctx context.Context) (*Ahead, error) {
		now, err := r.store.Now(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the store's clock: %w", err)
		}
		return r.forecast(ctx, q, now)
	}))
	switch {
	case a.err != nil:
		return a.value, a.err
	case a.value == nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case a.value == nil:
		return nil, ErrCounting
	}
	return a.value, nil
}

// AheadOf counts ahead for the rows of a table: as q says, but for each of the topics. It waits for
// all of them together no longer than Options.Patience, and returns without the topics that are not
// counted by then. All rows together may cost what one picture may, so each answer is used the
// longer, the more topics there are.
func (r *Reader) AheadOf(ctx context.Context, q AheadQuery, topics []string) map[string]*Ahead {
	out := make(map[string]*Ahead, len(topics))
	if r.inspector == nil {
		return out
	}
	patient, cancel := context.WithTimeout(ctx, r.o.Patience)
	defer cancel()
	var c answer[topicCounts]
	if r.surveyor != nil {
		if c = r.counts.await(patient, nil); c.read.IsZero() {
			c = r.counts.await(patient, r.beginCount())
		}
		if c.read.IsZero() {
			return out // nothing is counted beside the first survey, which will have the largest topics
		}
	}
	var once sync.Once
	var now time.Time
	var failed error
	clock := func(ctx context.Context) (time.Time, error) {
		once.Do(func() { now, failed = r.store.Now(ctx) })
		return now, failed
	}
	fresh := freshFor(math.MaxInt64, share*time.Duration(len(topics)))
	waiting := make(map[string]*cached[*Ahead])
	running := make(map[string]<-chan struct{})
	for _, topic := range topics {
		q := q
		q.Topic, q.row = topic, true
		if a, ok := c.value.surveyed.ahead(q, c.value.now.Add(time.Since(c.read))); ok {
			out[topic] = a
			continue
		}
		waiting[topic] = r.askedFor(q)
		var own time.Duration // without the wait for others
		p := policy{timeout: time.Minute, fresh: func(time.Duration) time.Duration { return fresh(own) }}
		running[topic] = waiting[topic].begin(r, p, func(ctx context.Context) (a *Ahead, err error) {
			now, err := clock(ctx)
			if err != nil {
				return nil, fmt.Errorf("read the store's clock: %w", err)
			}
			a, own, err = r.timedForecast(ctx, q, now)
			return a, err
		})
	}
	for topic, k := range waiting {
		if a := k.await(patient, running[topic]); a.value != nil {
			out[topic] = a.value
		}
	}
	return out
}

// askedFor returns the place where the answer to q is kept; see place.
func (r *Reader) askedFor(q AheadQuery) *cached[*Ahead] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return place(r.asked, q, mostAsked)
}

// forecast counts ahead in the store. At most two counts run at a time, because those of all
// pictures at once would slow down a store of many messages.
func (r *Reader) forecast(ctx context.Context, q AheadQuery, now time.Time) (*Ahead, error) {
	a, _, err := r.timedForecast(ctx, q, now)
	return a, err
}

// timedForecast is forecast, and also returns how long the store took. The time that it waited for
// other counts is not part of that.
func (r *Reader) timedForecast(ctx context.Context, q AheadQuery, now time.Time) (a *Ahead, took time.Duration, err error) {
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
		began := time.Now()
		a, err = Forecast(ctx, r.inspector, q, now)
		return a, time.Since(began), err
	case <-ctx.Done():
		return nil, 0, fmt.Errorf("count what is due by %s: %w", q.Step, context.Cause(ctx))
	}
}
