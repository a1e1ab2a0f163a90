package punctual

import "time"

// Backoff says how long a failed message waits before its next attempt: an explicit
// list of delays, or exponential growth with jitter.
type Backoff struct {
	// Delays, if not empty, is the explicit list: Delays[0] after the first failed
	// attempt, and the last one ever after. The other fields are then unused.
	Delays []time.Duration
	// Base is the delay after the first failed attempt; it doubles with each further
	// one up to Max.
	Base time.Duration
	// Max bounds the delay before jitter.
	Max time.Duration
	// Jitter, 0 to 1, lengthens each delay by a random part of up to Jitter times itself. So messages that failed
	// together do not come back together.
	Jitter float64
}

// DefaultBackoff waits 1 s, 2 s, 4 s and so on up to 1 h, each up to 20 % longer.
func DefaultBackoff() Backoff {
	return Backoff{Base: time.Second, Max: time.Hour, Jitter: 0.2}
}

// RetryDelays is a change for Configure: a message that failed is delivered again after each of these delays in turn.
// It is dead when the attempt after the last delay fails, too. So it sets Backoff.Delays, and MaxAttempts to one more
// than there are delays.
func RetryDelays(delays ...time.Duration) func(s *Settings) {
	return func(s *Settings) { s.Backoff.Delays, s.MaxAttempts = delays, len(delays)+1 }
}
