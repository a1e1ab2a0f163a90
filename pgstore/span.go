package pgstore

import (
	"cmp"
	"slices"
)

// span is a stretch of time in a topic, in ms. Both ends belong to it.
type span struct{ from, until int64 }

// mostSpans bounds the spans that are kept of a topic.
const mostSpans = 16

// addSpan adds a span to a list that is sorted and whose spans do not touch each other, and keeps
// the list so. When the list has more than mostSpans, the two that are closest to each other become
// one, together with what is between them.
func addSpan(list []span, n span) []span {
	if n.from > n.until {
		return list
	}
	all := append(slices.Clone(list), n)
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	out := all[:1]
	for _, x := range all[1:] {
		if last := &out[len(out)-1]; x.from <= last.until+1 {
			last.until = max(last.until, x.until)
		} else {
			out = append(out, x)
		}
	}
	for len(out) > mostSpans {
		closest := 1
		for i := 2; i < len(out); i++ {
			if out[i].from-out[i-1].until < out[closest].from-out[closest-1].until {
				closest = i
			}
		}
		out[closest-1].until = out[closest].until
		out = slices.Delete(out, closest, closest+1)
	}
	return out
}

const (
	// stepFirst is how long the first span is that a bounded reading covers, in ms.
	stepFirst int64 = 1000
	// stepMost is longer than the time between any two due times, in ms: some thousand years. A
	// reading of that length begins at the beginning of the topic.
	stepMost int64 = 1 << 47
	// stepQuick and stepSlow are how long a bounded reading may take, in ms, until the next one
	// covers more or less.
	stepQuick = 20
	stepSlow  = 100
)

// nextStep returns how long the span of the next bounded reading is to be, after one of length step
// that took so long, in ms.
func nextStep(step, took int64) int64 {
	switch {
	case took <= stepQuick:
		return min(4*step, stepMost)
	case took > stepSlow:
		return max(step/2, 1)
	}
	return step
}
