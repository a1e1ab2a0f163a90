// Package clock has what a process knows of the store's clock, which is that of the server (P8). That is the latest time
// that it was told, and what the clock probably says between two answers.
package clock

import (
	"context"
	"maps"
	"math"
	"sync"
	"time"

	"github.com/punctualmq/punctual/storekit"
)

// Never is a time in ms that no clock reaches, as the scripts name it: 2^53-1.
const Never int64 = 1<<53 - 1

// Clock is the store's clock as this process knows it. All methods are safe for concurrent use.
//
// Scripts are given the latest time that this process was told, so that nobody here ever
// sees the clock run backwards. Between two answers the machine's clock only measures how
// long to sleep; no message's fate depends on it.
type Clock struct {
	// fake is the time of a test, in place of the server's; nil otherwise.
	fake  storekit.Clock
	begun time.Time // when the store was opened

	mu       sync.Mutex
	floor    int64              // guarded by mu: the latest time told, in ms
	readings map[string]reading // guarded by mu: by server, the clocks that were heard lately
}

// reading is what the clock of a server probably said at a moment.
type reading struct {
	micros int64
	at     time.Time
}

// by is what the clock probably says at a later moment, in µs, if it runs.
func (r reading) by(now time.Time) int64 { return r.micros + now.Sub(r.at).Microseconds() }

// New returns a clock of which nothing was told yet. fake is that of a test, which takes the place of the server's; nil
// is none.
func New(fake storekit.Clock) *Clock {
	return &Clock{fake: fake, begun: time.Now(), readings: make(map[string]reading)}
}

// Fake reports whether a test moves the clock.
func (c *Clock) Fake() bool { return c.fake != nil }

// freshFor is for how long the clock of a server counts when others are heard and that one is not.
const freshFor = 10 * time.Second

// Args are what every script is told: the floor, and the time of a test in seconds and microseconds. The time is
// rounded up, but not into the next millisecond. Seconds below 0 stand for the server's time.
func (c *Clock) Args() (floor, seconds, micros int64) {
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

// Hear takes in the time of an answer by a server, to a request that was sent at a local time.
//
// By now the server's clock says the answer's time or up to as much more as the request was under way. What was
// expected of it is corrected to that. So the expectation stops where the clock stands still, because the
// server's clock was set back.
func (c *Clock) Hear(server string, sent time.Time, ms, micros int64) {
	here := time.Now()
	us := ms*1000 + micros
	latest := us + here.Sub(sent).Microseconds() + 1000 // the answer's time may be rounded to whole ms
	c.mu.Lock()
	defer c.mu.Unlock()
	c.floor = max(c.floor, ms)
	if r, ok := c.readings[server]; ok {
		us = min(max(us, r.by(here)), latest)
	}
	c.readings[server] = reading{us, here}
	if len(c.readings) > 1 {
		maps.DeleteFunc(c.readings, func(_ string, r reading) bool { return here.Sub(r.at) > freshFor })
	}
}

// Correct takes in the time at which a server has refused a call as late or early.
func (c *Clock) Correct(ms int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.floor <= ms { // else the server was not told of what another one has told since
		clear(c.readings)
		c.floor, c.readings[""] = ms, reading{ms * 1000, time.Now()}
	}
}

// Deadline is that of a call which is made now, in ms by the store's clock. It is the earliest of three: so many ms
// ahead, the end of ctx, and what a request in ctx says.
func (c *Clock) Deadline(ctx context.Context, ahead int64) int64 {
	left := ahead
	if end, ok := ctx.Deadline(); ok {
		left = max(min(left, time.Until(end).Milliseconds()), 0)
	}
	deadline := c.Guess()/1000 + left
	if r, ok := storekit.RequestOf(ctx); ok && !r.NotAfter.IsZero() {
		deadline = min(deadline, r.NotAfter.UnixMilli()-1)
	}
	return deadline
}

// Passed reports whether the time is over that a request in ctx names.
func (c *Clock) Passed(ctx context.Context) bool {
	r, ok := storekit.RequestOf(ctx)
	return ok && !r.NotAfter.IsZero() && c.Floor() >= r.NotAfter.UnixMilli()
}

// Floor is the latest time told.
func (c *Clock) Floor() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.floor
}

// Guess is what the store's clock probably says now, in µs.
func (c *Clock) Guess() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fake != nil {
		return max(c.floor*1000, c.fake.Now().UnixMicro())
	}
	guess, here := c.floor*1000, time.Now()
	for _, r := range c.readings {
		guess = max(guess, r.by(here))
	}
	return guess
}

// Time is Guess as a time.
func (c *Clock) Time() time.Time { return time.UnixMicro(c.Guess()) }

// Now is a time that never jumps, to sleep by: µs since the store was opened. With the clock of
// a test it is that clock.
func (c *Clock) Now() int64 {
	if c.fake != nil {
		return c.Guess()
	}
	return time.Since(c.begun).Microseconds()
}

// At is the local time at which the store's clock probably says ms.
func (c *Clock) At(ms int64) int64 {
	switch {
	case ms <= -Never:
		return -math.MaxInt64
	case ms >= Never/1000: // in µs no double could hold it
		return math.MaxInt64
	}
	return c.Now() + ms*1000 - c.Guess()
}

// longestSleep bounds a sleep; whoever wakes looks at the clock again.
const longestSleep = time.Hour

// After wakes at a local time, or after an hour.
func (c *Clock) After(at int64) (<-chan time.Time, func()) {
	at = min(at, Never)
	if c.fake != nil {
		return c.fake.After(time.UnixMicro(at))
	}
	timer := time.NewTimer(time.Duration(min(at-c.Now(), longestSleep.Microseconds())) * time.Microsecond)
	return timer.C, func() { timer.Stop() }
}
