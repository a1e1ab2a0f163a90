package punctual

import (
	"math/rand/v2"
	"slices"
	"sort"
)

// claimOrder returns the topics in the order in which the next claim is to ask for them. Only the
// claimer calls it.
func (w *Worker) claimOrder() []string {
	if w.cfg.Strict || len(w.topics) == 1 {
		return w.topics
	}
	weights := make([]int, len(w.topics))
	for i, t := range w.topics {
		weights[i] = w.routes[t].weight
	}
	return drawOrder(w.topics, weights)
}

// drawOrder returns topics in a random order in which each comes first as often as its
// share of the weights, second as often as its share of what is left, and so on: each
// draws an exponentially distributed time with its weight as rate, and the earliest
// comes first (Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006).
func drawOrder(topics []string, weights []int) []string {
	times := make([]float64, len(topics))
	for i, w := range weights {
		times[i] = rand.ExpFloat64() / float64(w)
	}
	d := draw{slices.Clone(topics), times}
	sort.Sort(d)
	return d.topics
}

type draw struct {
	topics []string
	times  []float64
}

func (d draw) Len() int           { return len(d.topics) }
func (d draw) Less(i, j int) bool { return d.times[i] < d.times[j] }
func (d draw) Swap(i, j int) {
	d.topics[i], d.topics[j] = d.topics[j], d.topics[i]
	d.times[i], d.times[j] = d.times[j], d.times[i]
}
