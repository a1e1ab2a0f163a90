package punctual

import (
	"math/rand/v2"
	"time"
)

// Backoff says how long a failed message waits before its next attempt: an explicit
// list of delays, or exponential growth with jitter.
type Backoff struct {
	// Delays, if not empty, is the explicit list: Delays[0] after the first failed
	// attempt, and the last one ever after. The other fields are then unused.
	Delays []time.Duration `json:"delays,omitempty"`
	// Base is the delay after the first failed attempt; it doubles with each further
	// one up to Max.
	Base time.Duration `json:"base,omitempty"`
	// Max bounds the delay before jitter.
	Max time.Duration `json:"max,omitempty"`
	// Jitter, 0 to 1, lengthens each delay by a random part of up to Jitter times
	// itself, so that messages that failed together do not come back together.
	Jitter float64 `json:"jitter,omitempty"`
}

// DefaultBackoff waits 1 s, 2 s, 4 s and so on up to 1 h, each up to 20 % longer.
func DefaultBackoff() Backoff {
	return Backoff{Base: time.Second, Max: time.Hour, Jitter: 0.2}
}

// Delay returns the wait after the given failed attempt (from 1). It is safe
// for concurrent use.
func (b Backoff) Delay(attempt int) time.Duration {
	if len(b.Delays) > 0 {
		return b.Delays[min(max(attempt, 1), len(b.Delays))-1]
	}
	d := b.Base
	for i := 1; i < min(attempt, 64) && d < b.Max; i++ {
		d *= 2
	}
	d = min(d, b.Max)
	if spread := time.Duration(b.Jitter * float64(d)); spread > 0 {
		d += rand.N(spread)
	}
	return d
}

// maxDelay bounds every delay of a backoff; it keeps the doubling from overflowing.
const maxDelay = 10 * 365 * 24 * time.Hour

func (b Backoff) check() error {
	for i, d := range b.Delays {
		if d < 0 || d > maxDelay {
			return invalidf("backoff delay %d is %v: use 0 to %v", i+1, d, maxDelay)
		}
	}
	if len(b.Delays) > 0 {
		return nil
	}
	switch {
	case b.Base < 0 || b.Base > maxDelay:
		return invalidf("backoff base %v: use 0 to %v", b.Base, maxDelay)
	case b.Max < b.Base || b.Max > maxDelay:
		return invalidf("backoff max %v: use the base %v to %v", b.Max, b.Base, maxDelay)
	case !(b.Jitter >= 0 && b.Jitter <= 1):
		return invalidf("backoff jitter %v: use 0 to 1", b.Jitter)
	}
	return nil
}
