package pgstore

import (
	"sync"
	"time"

	"github.com/punctualmq/punctual/storekit"
)

// clock is what this process knows of the store's clock, which is that of the server (P8).
// Statements are given the latest time that this process has heard, so that nobody here sees the
// clock run backwards, but for a step. Between two answers the process measures by the machine's
// clock how much time has passed: it sleeps by that, and puts such a guess into new IDs. The server
// alone decides what is due.
type clock struct {
	// fake is the time of a test, in place of the server's; nil otherwise.
	fake storekit.Clock

	mu     sync.Mutex
	steps  int64     // guarded by mu: how often the store's clock has stepped back, as the table store said
	latest int64     // guarded by mu: the latest time heard since the last step, or read from the table store, in µs
	answer int64     // guarded by mu: the time by the answer that guesses count from, in µs
	heard  time.Time // guarded by mu: when that answer came, by the machine's clock
	stored int64     // guarded by mu: the latest time that the table store was known to hold on the server's timeline, in µs

	// stepped is what the clock said when this process learned of the last step, in µs, and
	// steppedAt when that was. Guarded by mu.
	stepped   int64
	steppedAt time.Time

	rule storekit.StepRule // the goroutine of watch alone uses it
}

// freshFor is how long an answer's time is preferred to that of a later one which took longer to
// arrive.
const freshFor = 10 * time.Second

// args returns the first two arguments of every statement that reads the clock.
func (c *clock) args() (latest []int64, fake *int64) {
	c.mu.Lock()
	latest = []int64{c.latest, c.steps}
	c.mu.Unlock()
	return latest, c.fakeMicros()
}

// fakeMicros returns the time of a test, rounded up to µs, but not into the next millisecond; nil
// where the server's clock counts.
func (c *clock) fakeMicros() *int64 {
	if c.fake == nil {
		return nil
	}
	t := c.fake.Now()
	us := t.UnixMicro()
	if t.Nanosecond()%1000 > 0 && us%1000 < 999 {
		us++
	}
	return &us
}

// hear records the time that an answer gave, in µs.
func (c *clock) hear(micros int64) {
	here := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	// A call that was under way at a step may answer with the time before.
	if since := c.here().Sub(c.steppedAt); since < 2*callTime && micros > c.stepped+(since+storekit.StepBeyond).Microseconds() {
		return
	}
	c.latest = max(c.latest, micros)
	// Guesses count from the answer that came back fastest, because that one is the most exact. By
	// it the clock is furthest ahead.
	if micros >= c.answer+here.Sub(c.heard).Microseconds() || here.Sub(c.heard) > freshFor {
		c.answer, c.heard = micros, here
	}
}

// latestMicros returns the latest time that this process knows, in µs.
func (c *clock) latestMicros() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.latest
}

// guess returns what the store's clock probably says now, in µs.
func (c *clock) guess() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fake != nil {
		return max(c.latest, c.fake.Now().UnixMicro())
	}
	return max(c.latest, c.answer+time.Since(c.heard).Microseconds())
}

// longestSleep bounds a sleep; whoever wakes looks at the clock again.
const longestSleep = time.Hour

// after returns a channel that receives when the store's clock has probably reached a time, in ms,
// or after longestSleep, and what ends the wait early. With the clock of a test longestSleep does
// not count.
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

// kept records how far the clock is in the table store, as it was read or written, in µs, and after
// how many steps. After a step that this process did not know of, nothing counts that it has heard
// before.
func (c *clock) kept(micros, steps int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if steps != c.steps {
		c.steps, c.latest, c.answer, c.stored = steps, 0, 0, 0
		c.stepped, c.steppedAt = micros, c.here()
	}
	c.latest, c.stored = max(c.latest, micros), max(c.stored, micros)
}

// wrote records that this process has written the time down in the table store, unless the clock
// has stepped since.
func (c *clock) wrote(micros, steps int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if steps == c.steps {
		c.latest, c.stored = max(c.latest, micros), max(c.stored, micros)
	}
}

// here returns the time of this machine's clock, or that of a test's.
func (c *clock) here() time.Time {
	if c.fake != nil {
		return c.fake.Now()
	}
	return time.Now()
}

// forgetKept forgets how far the clock was in the table store, because the server that has taken
// over may not know of that.
func (c *clock) forgetKept() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stored = 0
}

// keptMicros returns the latest time that the table store was known to hold on the server's
// timeline, in µs.
func (c *clock) keptMicros() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stored
}
