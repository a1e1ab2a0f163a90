package lifecycle

import (
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
)

// Work is what a store counts of a topic whose settings bound what is worked on (MaxLeases,
// MaxRate).
type Work struct {
	// Leases is how many messages have a lease, those included whose lease has run out. The store
	// keeps it.
	Leases int
	// Gate is an interval of the rate behind the last lease for each lease that was early, in Unix
	// microseconds. It is in the past when leases may begin at once, and 0 before the first one.
	Gate int64
}

// Full reports whether no message without a lease may be leased. A message whose lease has run out
// may be, because it has its place already.
func (w *Work) Full(set *punctual.Settings) bool {
	return set.MaxLeases > 0 && w.Leases >= set.MaxLeases
}

// Opens returns when the rate lets the next lease begin, in Unix microseconds: 0 without a rate,
// and a time up to now if the lease may begin now.
func (w *Work) Opens(set *punctual.Settings, now int64) int64 {
	r := set.MaxRate
	if r == (limits.Rate{}) {
		return 0
	}
	return w.gate(r, now) - (r.AtOnce()-1)*r.Interval()
}

// Begin notes for the rate that n leases have begun at now, in Unix microseconds.
func (w *Work) Begin(set *punctual.Settings, now int64, n int) {
	if r := set.MaxRate; r != (limits.Rate{}) {
		w.Gate = max(now, w.gate(r, now)) + int64(n)*r.Interval()
	}
}

// gate returns the gate, cut to as far ahead as leases at once can bring it. One that is farther is
// that of a clock that has stepped back, or of a slower rate.
func (w *Work) gate(r limits.Rate, now int64) int64 {
	w.Gate = min(w.Gate, now+r.AtOnce()*r.Interval())
	return w.Gate
}
