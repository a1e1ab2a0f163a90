package storekit

import (
	"sync"
	"time"
)

// Clock is where a store gets its time from. SystemClock is the real one, ManualClock
// one for tests.
type Clock interface {
	// Now is the current time.
	Now() time.Time
	// After returns a channel that receives once the clock has reached t, at once if it already
	// has. The function ends the wait early. A suspended machine or a stepped clock may make it
	// late; callers that care look again at least each second.
	After(t time.Time) (reached <-chan time.Time, stop func())
}

// SystemClock is the machine's clock. Inside testing/synctest it is the bubble's.
type SystemClock struct{}

// Now returns time.Now.
func (SystemClock) Now() time.Time { return time.Now() }

// After waits with a timer of package time.
func (SystemClock) After(t time.Time) (<-chan time.Time, func()) {
	timer := time.NewTimer(time.Until(t))
	return timer.C, func() { timer.Stop() }
}

// ManualClock is a clock for tests that stands still until it is moved. It is safe for
// concurrent use.
type ManualClock struct {
	mu    sync.Mutex
	now   time.Time                    // guarded by mu
	waits map[chan time.Time]time.Time // guarded by mu
}

// NewManualClock returns a clock that stands at start.
func NewManualClock(start time.Time) *ManualClock {
	return &ManualClock{now: start, waits: make(map[chan time.Time]time.Time)}
}

// Now returns where the clock stands.
func (c *ManualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock by d, backwards if negative, and wakes those whose time has come.
func (c *ManualClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moveTo(c.now.Add(d))
}

// Set moves the clock to t and wakes those whose time has come.
func (c *ManualClock) Set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moveTo(t)
}

func (c *ManualClock) moveTo(t time.Time) {
	c.now = t
	for ch, at := range c.waits {
		if !at.After(t) {
			delete(c.waits, ch)
			ch <- t // buffered
		}
	}
}

// After implements Clock.
func (c *ManualClock) After(t time.Time) (<-chan time.Time, func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := make(chan time.Time, 1)
	if !t.After(c.now) {
		ch <- c.now
		return ch, func() {}
	}
	c.waits[ch] = t
	return ch, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waits, ch)
	}
}
