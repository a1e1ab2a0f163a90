package storekit

import (
	"math/rand/v2"
	"time"

	"github.com/punctualmq/punctual"
)

// RetryDelay returns how long b has a message wait after the given failed attempt, counted from 1,
// random jitter included.
func RetryDelay(b punctual.Backoff, attempt int) time.Duration {
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
