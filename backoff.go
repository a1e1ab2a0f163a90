package punctual

import "time"

// Backoff says how long a failed message waits before its next attempt: an explicit list of delays, or delays that double,
// with jitter. The delays are 0 to 3650 days. For example, Backoff{Base: time.Second, Max: time.Minute} waits 1 s, 2 s, 4 s,
// … 32 s, and from the seventh failed attempt on 1 min.
type Backoff struct {
	// Delays, if not empty, is the explicit list: Delays[0] is the delay after the first failed attempt, Delays[1] after the
	// second, and the last one after every further one. The other fields then have no effect.
	Delays []time.Duration
	// Base is the delay after the first failed attempt. The delay doubles with each further failed attempt, up to Max.
	Base time.Duration
	// Max is the longest delay before jitter is added; at least Base.
	Max time.Duration
	// Jitter, 0 to 1, lengthens each delay by a random time of up to Jitter times the delay, so that messages which failed
	// together are not all due again together.
	Jitter float64
}

// RetryDelays returns a change for Queue.Configure with which a failed message is delivered again after each of the delays in
// turn, and becomes dead when the attempt after the last delay has failed, too. It sets Backoff.Delays, and MaxAttempts to
// the number of delays plus one.
func RetryDelays(delays ...time.Duration) func(s *Settings) {
	return func(s *Settings) { s.Backoff.Delays, s.MaxAttempts = delays, len(delays)+1 }
}
