package redisstore

import (
	"context"
	"sync"
	"time"

	"github.com/punctualmq/punctual/storekit"
)

// clock is what this process knows of the store's clock, which is that of the server (P8).
// Scripts are given the latest time that this process was told, so that nobody here ever
// sees the clock run backwards. Between two answers the machine's clock only measures how
// long to sleep; no message's fate depends on it.
type clock struct {
	// fake is the time of a test, in place of the server's; nil otherwise.
	fake  storekit.Clock
	begun time.Time // when the store was opened

	mu    sync.Mutex
	floor int64     // guarded by mu: the latest time told, in ms
	told  int64     // guarded by mu: an answer's time, in µs
	heard time.Time // guarded by mu: when that answer came
}

// freshFor is how long an answer's time is preferred to that of a later answer which took
// longer to arrive.
const freshFor = 10 * time.Second

// args are what every script is told: the floor, and the time of a test in seconds and
// microseconds, rounded up but not into the next millisecond; seconds below 0 for that of the server.
func (c *clock) args() (floor, seconds, micros int64) {
	c.mu.Lock()
	floor = c.floor
	c.mu.Unlock()
	if c.fake == nil {
		return floor, -1, 0
	}
	t := c.fake.Now()
	us := t.Nanosecond() / 1000
	if t.Nanosecond()%1000 > 0 && us%1000 < 999 {
		us++
	}
	return floor, t.Unix(), int64(us)
}

// hear takes in the time of an answer.
func (c *clock) hear(ms, micros int64) {
	here := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.floor = max(c.floor, ms)
	us := ms*1000 + micros
	// The answer that took the shortest way tells most: by it, the clock is furthest ahead.
	if us >= c.told+here.Sub(c.heard).Microseconds() || here.Sub(c.heard) > freshFor {
		c.told, c.heard = us, here
	}
}

// correct takes in the time at which a server has refused a call as late or early.
func (c *clock) correct(ms int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.floor <= ms { // else the server was not told of what another one has told since
		c.floor, c.told, c.heard = ms, ms*1000, time.Now()
	}
}

// deadline is that of a call which is made now, in ms by the store's clock: callTime ahead, the end of ctx or
// what a request in ctx says, whichever comes first.
func (c *clock) deadline(ctx context.Context) int64 {
	left := int64(callTime)
	if end, ok := ctx.Deadline(); ok {
		left = max(min(left, time.Until(end).Milliseconds()), 0)
	}
	deadline := c.guess()/1000 + left
	if r, ok := storekit.RequestOf(ctx); ok && !r.NotAfter.IsZero() {
		deadline = min(deadline, r.NotAfter.UnixMilli()-1)
	}
	return deadline
}

// passed reports whether the time is over that a request in ctx names.
func (c *clock) passed(ctx context.Context) bool {
	r, ok := storekit.RequestOf(ctx)
	return ok && !r.NotAfter.IsZero() && c.floorMillis() >= r.NotAfter.UnixMilli()
}

// floorMillis is the latest time told.
func (c *clock) floorMillis() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.floor
}

// guess is what the store's clock probably says now, in µs.
func (c *clock) guess() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fake != nil {
		return max(c.floor*1000, c.fake.Now().UnixMicro())
	}
	return max(c.floor*1000, c.told+time.Since(c.heard).Microseconds())
}

// local is a time that never jumps, to sleep by: µs since the store was opened. With the clock of
// a test it is that clock.
func (c *clock) local() int64 {
	if c.fake != nil {
		return c.guess()
	}
	return time.Since(c.begun).Microseconds()
}

// localAt is the local time at which the store's clock probably says ms.
func (c *clock) localAt(ms int64) int64 {
	switch {
	case ms <= -never:
		return -never
	case ms >= never/1000: // in µs it would be beyond never
		return never
	}
	return c.local() + ms*1000 - c.guess()
}

// longestSleep bounds a sleep; whoever wakes looks at the clock again.
const longestSleep = time.Hour

// after wakes at a local time, or after an hour.
func (c *clock) after(at int64) (<-chan time.Time, func()) {
	if c.fake != nil {
		return c.fake.After(time.UnixMicro(at))
	}
	timer := time.NewTimer(time.Duration(min(at-c.local(), longestSleep.Microseconds())) * time.Microsecond)
	return timer.C, func() { timer.Stop() }
}
