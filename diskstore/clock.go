package diskstore

import (
	"sync"
	"time"

	"github.com/punctualmq/punctual"
)

// clock is the store's clock (P8): the given one, made never to run backwards, not
// even across a restart. When the given clock steps back, this one goes on at half the speed
// of elapsed time until the other has caught up. To stand still would stop all
// deliveries for the length of the step; to go on at full speed would stay ahead for ever.
type clock struct {
	source punctual.Clock

	mu   sync.Mutex
	prev time.Time // guarded by mu: the source's last reading
	last time.Time // guarded by mu: the last time given out
}

// newClock starts at passed or the source's time, whichever is later.
func newClock(source punctual.Clock, passed time.Time) *clock {
	now := source.Now()
	last := now.Round(0)
	if last.Before(passed) {
		last = passed
	}
	return &clock{source: source, prev: now, last: last}
}

// now is the current time as finely as the source tells it.
func (c *clock) now() time.Time {
	now, _ := c.read()
	return now
}

// read is now, with the source's reading that it comes from.
func (c *clock) read() (now, source time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.source.Now()
	elapsed := max(0, t.Sub(c.prev)) // of a monotonic reading where there is one
	c.prev = t
	if wall := t.Round(0); wall.Before(c.last) {
		c.last = c.last.Add(elapsed / 2)
	} else {
		c.last = wall
	}
	return c.last, t
}

// ms is the current time in whole milliseconds, rounded down.
func (c *clock) ms() int64 { return punctual.Millis(c.now()) }

// never is a time that no clock reaches, maxSleep how long nobody sleeps beyond while
// something is pending, both in ms.
const (
	never    int64 = 1<<63 - 1
	maxSleep int64 = 1000
)

// after waits until the clock has reached ms, but not longer than limit milliseconds.
// It may be early while the clock lags behind its source: look again.
func (c *clock) after(ms, limit int64) (<-chan time.Time, func()) {
	now, from := c.read()
	wait := punctual.FromMillis(ms).Sub(now)
	if limit < wait.Milliseconds() {
		wait = time.Duration(limit) * time.Millisecond
	}
	return c.source.After(from.Add(wait))
}
