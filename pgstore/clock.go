package pgstore

import (
	"sync"
	"time"

	"github.com/punctualmq/punctual/storekit"
)

// clock is what this process knows of the store's clock, which is that of the server (P8). Statements are given the latest
// time that this process has heard, so that nobody here sees the clock run backwards. Between two answers the
// machine's clock only measures how long to sleep; no message's fate depends on it.
type clock struct {
	// fake is the time of a test, in place of the server's; nil otherwise.
	fake storekit.Clock

	mu     sync.Mutex
	latest int64     // guarded by mu: the latest time heard, in µs
	answer int64     // guarded by mu: the time that an answer gave, in µs
	heard  time.Time // guarded by mu: when that answer came
	stored int64     // guarded by mu: what the store's table said last, in µs
}

// freshFor is how long an answer's time is preferred to that of a later one which took longer to arrive.
const freshFor = 10 * time.Second

// args are the first arguments of every statement that reads the clock. The time of a test is rounded up to µs, but not
// into the next millisecond.
func (c *clock) args() (latest int64, fake *int64) {
	if c.fake != nil {
		t := c.fake.Now()
		us := t.UnixMicro()
		if t.Nanosecond()%1000 > 0 && us%1000 < 999 {
			us++
		}
		fake = &us
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.latest, fake
}

// hear records the time that an answer gave, in µs.
func (c *clock) hear(micros int64) {
	here := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.latest = max(c.latest, micros)
	// The answer that came back fastest is the most exact: by it, the clock is furthest ahead.
	if micros >= c.answer+here.Sub(c.heard).Microseconds() || here.Sub(c.heard) > freshFor {
		c.answer, c.heard = micros, here
	}
}

// latestMicros is the latest time heard, in µs.
func (c *clock) latestMicros() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.latest
}

// guess is what the store's clock probably says now, in µs.
func (c *clock) guess() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fake != nil {
		return max(c.latest, c.fake.Now().UnixMicro())
	}
	return max(c.latest, c.answer+time.Since(c.heard).Microseconds())
}

// longestSleep bounds a sleep; whoever wakes reads the clock again.
const longestSleep = time.Hour

// after wakes when the store's clock has probably reached a time in ms, or after an hour.
func (c *clock) after(ms int64) (<-chan time.Time, func()) {
	if c.fake != nil {
		return c.fake.After(time.UnixMilli(ms))
	}
	wait := longestSleep
	if left := ms - c.guess()/1000; left < longestSleep.Milliseconds() {
		wait = time.Duration(ms*1000-c.guess()) * time.Microsecond
	}
	timer := time.NewTimer(wait)
	return timer.C, func() { timer.Stop() }
}

// kept records what the store's table says, in µs.
func (c *clock) kept(micros int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.latest, c.stored = max(c.latest, micros), max(c.stored, micros)
}

// keptMicros is what the store's table said last.
func (c *clock) keptMicros() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stored
}
