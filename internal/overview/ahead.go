package overview

import (
	"context"
	"fmt"
	"slices"
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

// ParseStep is the inverse of Step.String.
func ParseStep(name string) (Step, bool) {
	for s := Minute; s <= Day; s++ {
		if s.String() == name {
			return s, true
		}
	}
	return 0, false
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

// StartOfDay returns the first instant in zone that has the date of day. That is not always midnight, because some zones
// change their clocks at midnight, so that it does not exist on that day or comes twice.
func StartOfDay(day time.Time, zone *time.Location) time.Time {
	const step = 15 * time.Minute // all changes are multiples of it
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
	// Zone is the time zone in which hours and days begin; nil is UTC.
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

// Ahead says how many messages are due when. Several callers may have the same Ahead, so nobody may change it.
type Ahead struct {
	AheadQuery
	// AsOf is the store's clock when the messages were counted.
	AsOf time.Time
	// Edges are when the steps begin, and when the last one ends: one more than Counts. They are in the zone asked for.
	Edges []time.Time
	// Counts[n] counts the messages due from Edges[n], or from now if that is later, until before Edges[n+1].
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

// Look counts ahead as of now, a time that the store's clock has just told.
func Look(ctx context.Context, i punctual.Inspector, q AheadQuery, now time.Time) (*Ahead, error) {
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

// commonWidth returns the longest duration of which all steps between the edges are multiples. A store counts in steps of one
// length, so it counts in these, and they are added up to hours and days that differ in length.
func commonWidth(edges []time.Time) time.Duration {
	width := edges[1].Sub(edges[0])
	for n := range len(edges) - 1 {
		for rest := edges[n+1].Sub(edges[n]); rest != 0; {
			width, rest = rest, width%rest
		}
	}
	return width
}
