package storekit

import (
	"sync"
	"time"
)

// Clock is where a store gets its time from: SystemClock, or in tests ManualClock.
type Clock interface {
	// Now returns the current time.
	Now() time.Time
	// After returns a channel that receives a value when the clock has reached t, at once if it
	// already has, and a function that ends the wait early. The value may come late when the
	// machine was suspended or its clock was set; callers to whom that matters read the clock at
	// least once a second.
	After(t time.Time) (reached <-chan time.Time, stop func())
}

// SystemClock is the clock of the machine; inside testing/synctest, the clock of the bubble.
type SystemClock struct{}

// Now returns time.Now.
func (SystemClock) Now() time.Time { return time.Now() }

// After waits with a timer of package time.
func (SystemClock) After(t time.Time) (<-chan time.Time, func()) {
	timer := time.NewTimer(time.Until(t))
	return timer.C, func() { timer.Stop() }
}

// ManualClock is a clock for tests that stands still until the test moves it. It is safe for
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

// Now returns the time that the clock shows.
func (c *ManualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock by d, backwards if d is negative, and ends the waits whose time has come.
func (c *ManualClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moveTo(c.now.Add(d))
}

// Set moves the clock to t and ends the waits whose time has come.
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
