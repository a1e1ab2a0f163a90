package storekit

import (
	"sync"
	"time"
)

// SteadyClock is a clock that never runs backwards (P8), made from a source that somebody may set back. When the source is set
// back, the SteadyClock goes on at half the speed of elapsed time until the source has caught up. For example, after a step of
// 10 s back it agrees with the source again after 20 s. If it stood still instead, all deliveries would stop for the length of
// the step; at full speed it would stay ahead for ever. It is safe for concurrent use.
type SteadyClock struct {
	source Clock

	mu   sync.Mutex
	read time.Time // guarded by mu: the last reading of the source, with its monotonic part if it has one
	last time.Time // guarded by mu: the last time that the clock returned; never decreases
}

// NewSteadyClock returns a clock that starts at the time of the source, or at passed if that is later. passed is the latest time
// that a store has recorded, so that its clock does not run backwards when it is opened again.
func NewSteadyClock(source Clock, passed time.Time) *SteadyClock {
	return &SteadyClock{source: source, read: source.Now(), last: passed.Round(0)}
}

// Now returns the current time in UTC, in the resolution of the source.
func (c *SteadyClock) Now() time.Time {
	now, _ := c.Read()
	return now
}

// Read returns what Now returns, and the reading of the source from which it was made.
func (c *SteadyClock) Read() (now, source time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.source.Now()
	elapsed := max(0, t.Sub(c.read)) // by the monotonic clock, which no step touches
	c.read = t
	if wall := t.Round(0).UTC(); wall.Before(c.last) {
		c.last = c.last.Add(elapsed / 2)
	} else {
		c.last = wall
	}
	return c.last, t
}

// After is Clock.After with a wait of at most limit. When somebody sets the source meanwhile, the wait may end too early, or up
// to limit too late, so callers read the clock again when it ends.
func (c *SteadyClock) After(t time.Time, limit time.Duration) (<-chan time.Time, func()) {
	now, source := c.Read()
	// After its source was set back the clock needs twice the time, but it never falls behind the source.
	wait, way := t.Sub(source), t.Sub(now)
	if way < wait/2 {
		wait = 2 * way
	}
	return c.source.After(source.Add(min(wait, limit)))
}
