package storekit

import (
	"sync"
	"time"
)

// SteadyClock is a clock that never runs backwards (P8), made of one that may be stepped. When its source
// steps back it goes on at half the speed of elapsed time until the source has caught up. To stand still would stop
// all deliveries for the length of the step; to go on at full speed would stay ahead for ever. It is safe for
// concurrent use.
type SteadyClock struct {
	source Clock

	mu   sync.Mutex
	read time.Time // guarded by mu: the source's last reading, with its monotonic part if it has one
	last time.Time // guarded by mu: the last time given out; never decreases
}

// NewSteadyClock returns a clock that starts at passed or the source's time, whichever is later.
func NewSteadyClock(source Clock, passed time.Time) *SteadyClock {
	return &SteadyClock{source: source, read: source.Now(), last: passed.Round(0)}
}

// Now is the current time in UTC, as finely as the source tells it.
func (c *SteadyClock) Now() time.Time {
	now, _ := c.Read()
	return now
}

// Read is Now, with the source's reading that it comes from.
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

// After is Clock.After, with a wait of at most limit. A step of the source may make it early or, up to limit,
// late: who wakes looks again.
func (c *SteadyClock) After(t time.Time, limit time.Duration) (<-chan time.Time, func()) {
	now, source := c.Read()
	// Behind its source's step the clock needs twice the time, but it never falls behind the source.
	wait, way := t.Sub(source), t.Sub(now)
	if way < wait/2 {
		wait = 2 * way
	}
	return c.source.After(source.Add(min(wait, limit)))
}
