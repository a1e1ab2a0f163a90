package redisstore

import (
	"strconv"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
)

// clock is what this process knows of the store's clock, which is that of the server (P8).
// Scripts are given the latest time that this process was told, so that nobody here ever
// sees the clock run backwards. Between two answers the machine's clock only measures how
// long to sleep; no message's fate depends on it.
type clock struct {
	// fake is the time of a test, in place of the server's; nil otherwise.
	fake punctual.Clock

	mu    sync.Mutex
	floor int64     // guarded by mu: the latest time told, in ms
	told  int64     // guarded by mu: an answer's time, in µs
	heard time.Time // guarded by mu: when that answer came
}

// freshFor is how long an answer's time is preferred to that of a later answer which took
// longer to arrive.
const freshFor = 10 * time.Second

// args are the first arguments of every script: the floor, and the time of a test in
// seconds and microseconds, rounded up but not into the next millisecond.
func (c *clock) args() (floor int64, seconds, micros string) {
	c.mu.Lock()
	floor = c.floor
	c.mu.Unlock()
	if c.fake == nil {
		return floor, "", ""
	}
	t := c.fake.Now()
	us := t.Nanosecond() / 1000
	if t.Nanosecond()%1000 > 0 && us%1000 < 999 {
		us++
	}
	return floor, strconv.FormatInt(t.Unix(), 10), strconv.Itoa(us)
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

// longestSleep keeps durations from overflowing; whoever wakes looks at the clock again.
const longestSleep = time.Hour

// after wakes when the store's clock has probably reached ms, or after an hour.
func (c *clock) after(ms int64) (<-chan time.Time, func()) {
	if c.fake != nil {
		return c.fake.After(punctual.FromMillis(ms))
	}
	wait := min(ms-c.guess()/1000, longestSleep.Milliseconds()) // coarse, so that it cannot overflow
	if wait < longestSleep.Milliseconds() {
		return c.timer(time.Duration(ms*1000-c.guess()) * time.Microsecond)
	}
	return c.timer(longestSleep)
}

func (c *clock) timer(d time.Duration) (<-chan time.Time, func()) {
	timer := time.NewTimer(d)
	return timer.C, func() { timer.Stop() }
}
