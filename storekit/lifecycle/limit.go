package lifecycle

import (
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// Full reports whether a topic in which so many messages have a lease may lease no message without
// one. Messages whose lease has run out count, and may be leased, because they have their places
// already.
func Full(set *punctual.Settings, leases int) bool {
	return set.MaxLeases > 0 && leases >= set.MaxLeases
}

// KeyFull is Full for the messages of one key.
func KeyFull(set *punctual.Settings, leases int) bool {
	bound := storekit.KeyLeases(set)
	return bound > 0 && leases >= bound
}

// BeforeInKey reports whether a comes before b among the messages of a key without leases. Equal
// ones come in the order of their pushes, which the caller knows.
func BeforeInKey(set *punctual.Settings, a, b *Message) bool {
	if set.InOrder {
		return a.FirstDue < b.FirstDue
	}
	return a.Due < b.Due
}

// Gate is what a store keeps for a rate, in Unix microseconds: an interval of the rate behind the
// last lease for each lease that was early. It is in the past when leases may begin at once, and 0
// before the first one.
type Gate int64

// Opens returns when the rate lets the next lease begin, in Unix milliseconds, rounded up: 0
// without a rate, and a time up to now if the lease may begin now, which is in Unix microseconds.
func (g *Gate) Opens(r limits.Rate, now int64) int64 {
	if r == (limits.Rate{}) {
		return 0
	}
	g.cut(r, now)
	return (int64(*g) - (r.AtOnce()-1)*r.Interval() + 999) / 1000
}

// Begin notes that n leases have begun at now, in Unix microseconds.
func (g *Gate) Begin(r limits.Rate, now int64, n int) {
	if r != (limits.Rate{}) {
		g.cut(r, now)
		*g = max(Gate(now), *g) + Gate(int64(n)*r.Interval())
	}
}

// cut takes the gate back to as far ahead as leases at once can bring it. One that is farther is
// that of a clock that has stepped back, or of a slower rate.
func (g *Gate) cut(r limits.Rate, now int64) {
	*g = min(*g, Gate(now+r.AtOnce()*r.Interval()))
}
