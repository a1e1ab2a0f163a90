package overview

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/storekit"
)

// A store that has to read every message to count them, a storekit.Surveyor, is read in two ways. A
// survey counts all messages and all pictures in one pass. It is costly, so the next one begins
// only after surveyShare times as long as it took, or after ten times as long when something has
// changed (Recount). So what an open page costs is bounded whatever the size of the store. The next
// due times of the topics are cheap. They are read anew, when somebody asks, after nextDueShare
// times as long as that took, at least after a second. With them come the number of ready messages
// and what is paused.

const (
	// A survey that took one second is used for surveyShare seconds, and next due times that took
	// as long for nextDueShare seconds.
	surveyShare, nextDueShare = 400, 1000
	// surveyTopics is how many topics a survey counts one by one: as many as a page of a table
	// shows.
	surveyTopics = 50
)

// surveyed is what a survey found to be due when.
type surveyed struct {
	edges []time.Time
	all   *dueCounts // without the hidden topics
	// largest are the topics that were counted one by one. Pictures show the first ones of them, as
	// many as drawn.
	largest []*dueCounts
	drawn   int
	// found is what is unusual in the picture of a step.
	found map[Step][]Finding
}

// survey counts the topics and all pictures in one pass of the store.
func (r *Reader) survey(ctx context.Context, now time.Time) (topicCounts, error) {
	v := &surveyed{edges: surveyEdges(now, r.o.Zone), drawn: r.o.Drawn, found: make(map[Step][]Finding)}
	found, err := r.surveyor.Survey(ctx, storekit.SurveyQuery{Edges: v.edges, Largest: max(r.o.Drawn, surveyTopics), Without: []string{access.AuditTopic}})
	if err != nil {
		return topicCounts{}, fmt.Errorf("count the messages: %w", err)
	}
	v.all = (*dueCounts)(&found.All)
	for i := range found.Largest {
		v.largest = append(v.largest, (*dueCounts)(&found.Largest[i]))
	}
	out := topicCounts{now: found.At, surveyed: v}
	out.keep(found.Topics)
	forecast := func(ctx context.Context, q AheadQuery, now time.Time) (*Ahead, error) {
		if a, ok := v.ahead(q, now); ok {
			return a, nil
		}
		return r.forecast(ctx, q, now)
	}
	for step := Minute; step <= Day; step++ {
		p, ok := v.picture(step, r.o.Zone, now)
		if !ok {
			continue
		}
		if err := r.examinePicture(ctx, &p, out.topics, forecast); err != nil {
			return out, err
		}
		v.found[step] = p.found
	}
	return out, nil
}

// surveyEdges returns the edges of the steps that pages in the zone of the Reader ask for. Hours
// reach as far as the page Week. Minutes reach as far as the picture of the hours, because bursts
// are counted by the minute. All reach a day further, so that the survey still answers somebody who
// asks hours later.
func surveyEdges(now time.Time, zone *time.Location) []time.Time {
	hours, _ := Hour.picture()
	days, _ := Day.picture()
	var all []time.Time
	for _, q := range []AheadQuery{
		{Step: Minute, Steps: (hours + 24) * 60}, {Step: Hour, Steps: 9 * 24}, {Step: Hour, Steps: 9 * 24, Zone: zone}, {Step: Day, Steps: days + 1, Zone: zone},
	} {
		all = append(all, q.edges(now)...)
	}
	slices.SortFunc(all, time.Time.Compare)
	return slices.CompactFunc(all, time.Time.Equal)
}

// picture returns a picture from the survey; ok is false if the survey does not have its edges.
func (v *surveyed) picture(step Step, zone *time.Location, now time.Time) (p Picture, ok bool) {
	q := AheadQuery{Step: step, Zone: zone}
	q.Steps, _ = step.picture()
	edges := q.edges(now)
	at := v.places(edges)
	if at == nil {
		return p, false
	}
	p.All, p.found = v.all.between(q, now, edges, at), v.found[step]
	for _, t := range v.largest[:min(v.drawn, len(v.largest))] {
		p.Topics = append(p.Topics, t.between(q, now, edges, at))
	}
	return p, true
}

// ahead answers from the survey, if it has the topic and the edges. now may be later than the
// survey.
func (v *surveyed) ahead(q AheadQuery, now time.Time) (*Ahead, bool) {
	edges := q.edges(now)
	at := v.places(edges)
	if at == nil {
		return nil, false
	}
	if q.Topic == "" {
		return v.all.between(q, now, edges, at), true
	}
	for _, t := range v.largest {
		if t.Topic == q.Topic {
			return t.between(q, now, edges, at), true
		}
	}
	return nil, false
}

// places returns the index of each edge among those of the survey, nil if the survey does not have
// one of them.
func (v *surveyed) places(edges []time.Time) []int {
	if v == nil {
		return nil
	}
	at := make([]int, len(edges))
	for i, e := range edges {
		var found bool
		if at[i], found = slices.BinarySearchFunc(v.edges, e, time.Time.Compare); !found {
			return nil
		}
	}
	return at
}

// dueCounts is what a survey counted for one topic, or for all.
type dueCounts storekit.DueCounts

// between returns the counts of d as an Ahead with the given edges. at has the index of each edge
// among those of the survey (see places).
func (d *dueCounts) between(q AheadQuery, now time.Time, edges []time.Time, at []int) *Ahead {
	q.Topic = d.Topic
	out := &Ahead{AheadQuery: q, AsOf: now, Edges: edges, Counts: make([]int64, q.Steps), Overdue: d.Overdue, Beyond: d.Beyond}
	for i := range out.Counts {
		out.Counts[i] = sum(d.Counts[at[i]:at[i+1]])
	}
	out.Beyond += sum(d.Counts[at[q.Steps]:])
	return out
}

func sum(counts []int64) (n int64) {
	for _, c := range counts {
		n += c
	}
	return n
}

// beginNextDue begins to read the next due times of the topics, unless the last ones are still
// fresh. It returns nil for a store that is no surveyor.
func (r *Reader) beginNextDue() <-chan struct{} {
	if r.surveyor == nil {
		return nil
	}
	fresh := func(took time.Duration) time.Duration { return max(leastAge, nextDueShare*took) }
	return r.nextDue.begin(r, policy{timeout: r.o.Timeout, fresh: fresh}, r.surveyor.NextDue)
}

// surveyedAhead answers from the last survey. It returns nil if the survey does not have the answer
// or is too old to be shown. Before the first survey it returns ErrCounting, or why that survey
// failed.
func (r *Reader) surveyedAhead(patient context.Context, q AheadQuery) (*Ahead, error) {
	running := r.beginCount()
	c := r.counts.await(patient, nil)
	if c.read.IsZero() || !r.isCostly() {
		c = r.counts.await(patient, running)
	}
	switch {
	case c.read.IsZero() && c.err == nil:
		return nil, ErrCounting
	case c.read.IsZero() || !r.isUsable(c):
		return nil, c.err
	}
	a, _ := c.value.surveyed.ahead(q, c.value.now.Add(time.Since(c.read)))
	return a, nil
}

// surveyedTopics returns what is known about the topics. It waits for a survey no longer than
// Options.Patience, and not at all when there is one that may be shown.
func (r *Reader) surveyedTopics(ctx context.Context, running <-chan struct{}) (Counts, error) {
	reading := r.beginNextDue()
	patient, cancel := context.WithTimeout(ctx, r.o.Patience)
	defer cancel()
	c := r.counts.await(patient, nil)
	if c.read.IsZero() || !r.isUsable(c) {
		c = r.counts.await(patient, running)
	}
	h := r.nextDue.await(ctx, reading)
	if !r.isUsable(c) {
		c = answer[topicCounts]{err: c.err}
	}
	switch {
	case h.err != nil:
		return Counts{}, h.err
	case c.err != nil:
		return Counts{}, c.err
	case h.read.IsZero():
		return Counts{}, context.Cause(ctx)
	}
	if h.value.At.Before(c.value.now) {
		return Counts{AsOf: c.value.now, Counted: c.value.now, Topics: slices.Clone(c.value.topics)}, nil
	}
	topics := withNextDue(c.value.topics, h.value)
	return Counts{AsOf: h.value.At, Counted: c.value.now, Partial: c.read.IsZero(), Topics: topics}, nil
}

// addNextDue brings an overview up to date with the next due times of the topics.
func (o *Overview) addNextDue(h answer[storekit.NextDueTimes]) {
	if o.Err == nil {
		o.Err = h.err
	}
	if h.read.IsZero() || h.value.At.Before(o.AsOf) {
		return
	}
	o.AsOf, o.Topics = h.value.At, withNextDue(o.Topics, h.value)
}

// withNextDue returns the topics that there are, with what the store returned beside their next due
// times: what is ready, for how long, and what is paused. All other numbers are as they were
// counted.
func withNextDue(counted []punctual.TopicStats, h storekit.NextDueTimes) []punctual.TopicStats {
	out := make([]punctual.TopicStats, 0, len(h.Topics))
	for _, n := range h.Topics {
		if n.Topic == access.AuditTopic {
			continue
		}
		t := punctual.TopicStats{Topic: n.Topic}
		for len(counted) > 0 && counted[0].Topic <= n.Topic {
			if counted[0].Topic == n.Topic {
				t = counted[0]
			}
			counted = counted[1:]
		}
		t.Settings = n.Settings
		if n.Ready < storekit.MaxReadyCount {
			t.Ready = n.Ready
		} else {
			t.Ready = max(t.Ready, n.Ready)
		}
		switch {
		case n.Ready > 0:
			t.NextDue = n.Due
		case !t.NextDue.After(h.At):
			t.NextDue = time.Time{} // it was ready, and is gone
		}
		out = append(out, t)
	}
	return out
}
