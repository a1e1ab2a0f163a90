package worker

import (
	"math/rand/v2"
	"slices"
	"sort"
	"time"
)

// The order of many topics is kept for a while, because drawing it for each claim takes longer than
// everything else, and because a store may recognise a list that it was asked for before. The time
// for which it is kept grows with the number of topics, as the cost of drawing does. It is bounded,
// because a topic with a backlog may come first for all of it (P14).
const (
	// drawnEach is the largest number of topics whose order is drawn anew for each claim.
	drawnEach = 256
	// keptFor is how long the order of more topics is kept, for each of them; keptMost bounds the
	// product.
	keptFor  = 20 * time.Microsecond
	keptMost = 500 * time.Millisecond
)

// order is all topics in the order in which claims ask for them.
type order struct {
	polls []*polled
	names []string  // the names of polls; the slice is never written again, because claims under way use it
	until time.Time // when the next claim draws another order
}

// inOrder returns all topics in the order in which a claim is to ask for them.
func (p *poller) inOrder(now time.Time) []*polled {
	o := &p.order
	if o.polls != nil && (now.Before(o.until) || p.w.cfg.Strict) {
		return o.polls
	}
	o.polls, o.until = p.draw(p.polls), now
	if n := len(o.polls); n > drawnEach {
		o.until = now.Add(min(time.Duration(n)*keptFor, keptMost))
	}
	o.names = namesOf(o.polls)
	return o.polls
}

func namesOf(ts []*polled) []string {
	names := make([]string, len(ts))
	for i, t := range ts {
		names[i] = t.topic
	}
	return names
}

// draw returns some topics in the order in which a claim is to ask for them.
func (p *poller) draw(ts []*polled) []*polled {
	if p.w.cfg.Strict || len(ts) == 1 {
		return ts
	}
	weights := make([]int, len(ts))
	for i, t := range ts {
		weights[i] = t.weight
	}
	return drawOrder(ts, weights)
}

// drawOrder returns topics in a random order. The probability that a topic comes first is its share
// of all weights, that it comes second its share of the weights that are left, and so on. For this
// each topic draws an exponentially distributed time with its weight as rate, and the topics are
// sorted by these times. See Efraimidis and Spirakis, "Weighted random sampling with a reservoir",
// 2006.
func drawOrder[T any](topics []T, weights []int) []T {
	times := make([]float64, len(topics))
	for i, w := range weights {
		times[i] = rand.ExpFloat64() / float64(w)
	}
	d := draw[T]{slices.Clone(topics), times}
	sort.Sort(d)
	return d.topics
}

type draw[T any] struct {
	topics []T
	times  []float64
}

func (d draw[T]) Len() int           { return len(d.topics) }
func (d draw[T]) Less(i, j int) bool { return d.times[i] < d.times[j] }
func (d draw[T]) Swap(i, j int) {
	d.topics[i], d.topics[j] = d.topics[j], d.topics[i]
	d.times[i], d.times[j] = d.times[j], d.times[i]
}
