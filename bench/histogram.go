package main

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// newHistogram returns a histogram of microseconds up to an hour, whose values have an error of at
// most 0.1 %.
func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, time.Hour.Microseconds(), 3)
}

// recorder is a histogram in several parts, so that many goroutines can record at the same time.
type recorder struct {
	next   atomic.Uint32
	shards [4]struct {
		mu sync.Mutex
		h  *hdrhistogram.Histogram // guarded by mu
	}
}

func newRecorder() *recorder {
	r := new(recorder)
	for i := range r.shards {
		r.shards[i].h = newHistogram()
	}
	return r
}

// record counts a duration. A duration of more than an hour counts as an hour.
func (r *recorder) record(d time.Duration) {
	s := &r.shards[r.next.Add(1)%uint32(len(r.shards))]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.h.RecordValue(d.Microseconds()) != nil {
		_ = s.h.RecordValue(s.h.HighestTrackableValue())
	}
}

// merged returns one histogram of all durations recorded so far.
func (r *recorder) merged() *hdrhistogram.Histogram {
	all := newHistogram()
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		all.Merge(s.h)
		s.mu.Unlock()
	}
	return all
}

// setQuantiles notes p50, p99, p99.9 and the maximum in milliseconds, under names that begin with
// name.
func (r *Result) setQuantiles(name string, h *hdrhistogram.Histogram) {
	ms := func(us int64) float64 { return float64(us) / 1000 }
	r.set(name+"_p50_ms", ms(h.ValueAtQuantile(50)))
	r.set(name+"_p99_ms", ms(h.ValueAtQuantile(99)))
	r.set(name+"_p999_ms", ms(h.ValueAtQuantile(99.9)))
	r.set(name+"_max_ms", ms(h.Max()))
}
