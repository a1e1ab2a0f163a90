// Package clock keeps what a process knows of the store's clock, which is the clock of the server
// (P8): a lower bound, which is the latest time in an answer, and a guess at what the clock says
// between two answers.
package clock

import (
	"context"
	"maps"
	"math"
	"sync"
	"time"

	"github.com/punctualmq/punctual/storekit"
)

// Never is a time in ms that no clock reaches: 2^53-1, which the scripts call NEVER.
const Never int64 = 1<<53 - 1

// Clock is the store's clock as this process knows it. All methods are safe for concurrent use.
//
// Each script that reads the server's clock is given the lower bound, and goes by the bound while
// the server's clock is behind it. So nobody in this process ever sees the store's clock run
// backwards, but for a step. When the bound has been too far ahead of the servers' clocks for too
// long (storekit.StepRule), one process makes a step in the hash of the store. All others learn of
// it from that hash or from a partition's answer. The era counts the steps, and times of an earlier
// era do not count.
//
// Between two answers the machine's own clock measures how much time has passed. The guess that
// follows from it says how long to sleep, sets the deadlines of calls, and shows whether a lease in
// an answer that took long has ended. What becomes of a message is decided by the scripts, by the
// server's clock.
type Clock struct {
	// fake is the clock of a test, which takes the place of the server's; nil otherwise.
	fake  storekit.Clock
	begun time.Time // when the store was opened

	mu       sync.Mutex
	era      int64              // guarded by mu: how many steps of the store's clock this process knows of
	bound    int64              // guarded by mu: the latest time that an answer of this era had, in ms
	readings map[string]reading // guarded by mu: by server, for those that have answered lately; by "" also what Correct took in
	rule     storekit.StepRule  // guarded by mu: it has the readings of the servers' clocks
	// stepped is closed by the next step. back is by how much the steps have set back the fake
	// clock's guess, in µs.
	stepped chan struct{} // guarded by mu
	back    int64         // guarded by mu
}

// reading is what the clock of a server probably said at a moment.
type reading struct {
	micros int64
	at     time.Time
}

// by returns what the server's clock says at a later moment, in µs, if it has run on since.
func (r reading) by(now time.Time) int64 { return r.micros + now.Sub(r.at).Microseconds() }

// New returns a clock that has heard no answer yet. fake, for tests, takes the place of the
// server's clock; nil has the scripts read the server's.
func New(fake storekit.Clock) *Clock {
	return &Clock{fake: fake, begun: time.Now(), readings: make(map[string]reading), stepped: make(chan struct{})}
}

// Fake reports whether the clock of a test takes the place of the server's.
func (c *Clock) Fake() bool { return c.fake != nil }

// FakeTime returns what the clock of a test says, in ms, if there is one.
func (c *Clock) FakeTime() (ms int64, fake bool) {
	if c.fake == nil {
		return 0, false
	}
	return c.fake.Now().UnixMilli(), true
}

// freshFor is for how long the reading of a server counts while other servers answer and that one
// does not.
const freshFor = 10 * time.Second

// Args returns what a script is given to know the time: the lower bound in ms, the era of the
// bound, and the time of a test in seconds and microseconds. The time of a test is rounded up to a
// microsecond, but not into the next millisecond. Seconds below 0 say that the script is to read
// the server's clock.
func (c *Clock) Args() (bound, era, seconds, micros int64) {
	c.mu.Lock()
	bound, era = c.bound, c.era
	c.mu.Unlock()
	if c.fake == nil {
		return bound, era, -1, 0
	}
	t := c.fake.Now()
	us := t.Nanosecond() / 1000
	if t.Nanosecond()%1000 > 0 && us%1000 < 999 {
		us++
	}
	return bound, era, t.Unix(), int64(us)
}

// Hear takes in the time in an answer: ms and, beyond these, micros by the clock of a server, after
// so many steps as era says. sent is the local time at which the request was sent. A time of an
// earlier era than that of this process does not count.
//
// The server read its clock while the request was under way, so by now that clock says the answer's
// time, or more by at most the time that the request took. The reading kept of that server is moved
// into that range. So the reading does not run ahead while the server's clock, which was set back,
// is behind the lower bound and each answer has the lower bound again.
func (c *Clock) Hear(server string, sent time.Time, era, ms, micros int64) {
	here := time.Now()
	us := ms*1000 + micros
	latest := us + here.Sub(sent).Microseconds() + 1000 // the answer's time may be rounded to whole ms
	c.mu.Lock()
	defer c.mu.Unlock()
	if era < c.era {
		return
	}
	c.enter(era, ms)
	c.bound = max(c.bound, ms)
	if r, ok := c.readings[server]; ok {
		us = min(max(us, r.by(here)), latest)
	}
	c.readings[server] = reading{us, here}
	if len(c.readings) > 1 {
		maps.DeleteFunc(c.readings, func(_ string, r reading) bool { return here.Sub(r.at) > freshFor })
	}
}

// enter takes in that the store's clock has made so many steps as era says, and that it is ms since
// or later. Called with mu held.
func (c *Clock) enter(era, ms int64) {
	if era <= c.era {
		return
	}
	before := c.guess()
	c.era, c.bound, c.rule = era, ms, storekit.StepRule{}
	clear(c.readings)
	if c.fake != nil {
		c.back += before - c.guess()
	}
	close(c.stepped)
	c.stepped = make(chan struct{})
}

// Learn takes in a time that somebody has written down, in ms, after so many steps as era says.
func (c *Clock) Learn(era, ms int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.enter(era, ms)
	if era == c.era {
		c.bound = max(c.bound, ms)
	}
}

// Era returns how many steps of the store's clock this process knows of.
func (c *Clock) Era() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.era
}

// StepDue takes in a reading of the servers' clocks, in ms, of which the latest counts, and reports
// whether the store's clock is to step.
func (c *Clock) StepDue(servers int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	here := time.Now()
	if c.fake != nil {
		here = c.fake.Now()
	}
	return c.rule.Due(here, storekit.FromMillis(c.bound).Sub(storekit.FromMillis(servers)))
}

// Correct takes in the time at which a server has refused a call as late (errkind.ErrLate), after
// so many steps as era says. The readings of all servers are dropped, because one of them may have
// led to a deadline that had passed or was too far ahead.
func (c *Clock) Correct(ms, era int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.enter(era, ms)
	if era == c.era && c.bound <= ms { // otherwise another server has given a later time since
		clear(c.readings)
		c.bound, c.readings[""] = ms, reading{ms * 1000, time.Now()}
	}
}

// Deadline returns the deadline of a call that is made now, in ms by the store's clock: the
// earliest of ahead ms from now, the end of ctx, and the last millisecond before the NotAfter of a
// storekit.Request in ctx.
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

// Passed reports whether the NotAfter of a storekit.Request in ctx has come, by the lower bound.
func (c *Clock) Passed(ctx context.Context) bool {
	r, ok := storekit.RequestOf(ctx)
	return ok && !r.NotAfter.IsZero() && c.LowerBound() >= r.NotAfter.UnixMilli()
}

// LowerBound returns the latest time in an answer, in ms: the store's clock says that or more.
func (c *Clock) LowerBound() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bound
}

// Guess returns what the store's clock probably says now, in µs.
func (c *Clock) Guess() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.guess()
}

// guess is Guess with mu held.
func (c *Clock) guess() int64 {
	if c.fake != nil {
		return max(c.bound*1000, c.fake.Now().UnixMicro())
	}
	guess, here := c.bound*1000, time.Now()
	for _, r := range c.readings {
		guess = max(guess, r.by(here))
	}
	return guess
}

// Time returns Guess as a time.
func (c *Clock) Time() time.Time { return time.UnixMicro(c.Guess()) }

// Now returns a local time that never jumps, to sleep by: the µs since New. With the clock of a
// test it returns Guess, and counts on from there when the store's clock steps back.
func (c *Clock) Now() int64 {
	if c.fake != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.guess() + c.back
	}
	return time.Since(c.begun).Microseconds()
}

// At returns the local time, as Now has it, at which the store's clock probably says ms.
func (c *Clock) At(ms int64) int64 {
	switch {
	case ms <= -Never:
		return -math.MaxInt64
	case ms >= Never/1000: // from the year 2255 on, which is as good as never for a sleep
		return math.MaxInt64
	}
	return c.Now() + ms*1000 - c.Guess()
}

// longestSleep bounds the time of a timer. A caller that wakes earlier than it wanted reads the
// clock and sleeps again.
const longestSleep = time.Hour

// After returns a channel that receives at a local time, or after an hour if that comes first, and
// a function that ends the timer. With the clock of a test the channel receives when that clock has
// come to the time, or when the store's clock steps back.
func (c *Clock) After(at int64) (<-chan time.Time, func()) {
	at = min(at, Never)
	if c.fake != nil {
		return c.fakeAfter(at)
	}
	timer := time.NewTimer(time.Duration(min(at-c.Now(), longestSleep.Microseconds())) * time.Microsecond)
	return timer.C, func() { timer.Stop() }
}

func (c *Clock) fakeAfter(at int64) (<-chan time.Time, func()) {
	c.mu.Lock()
	stepped, back := c.stepped, c.back
	c.mu.Unlock()
	reached, stop := c.fake.After(time.UnixMicro(at - back))
	out, quit := make(chan time.Time, 1), make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		select {
		case t := <-reached:
			out <- t
		case <-stepped:
			out <- c.fake.Now()
		case <-quit:
		}
	})
	return out, sync.OnceFunc(func() {
		stop()
		close(quit)
		work.Wait()
	})
}
