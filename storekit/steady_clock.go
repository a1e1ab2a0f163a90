package storekit

import (
	"sync"
	"time"
)

// StepRule tells when a store's clock steps back (P8): when it has been ahead of the clock that it
// follows by more than StepBeyond at every reading for StepAfter on end. Corrections of a clock
// that is kept right are smaller than StepBeyond, and a clock that was wrong for a moment, such as
// that of a machine which resumes, is right again before StepAfter is over. The zero StepRule has
// no reading.
type StepRule struct {
	read   time.Time     // when the last reading was
	far    bool          // the last reading had the store's clock ahead by more than StepBeyond
	farFor time.Duration // the time since the first of the readings in a row that were far
}

// The limits of StepRule.
const (
	StepBeyond = 2 * time.Second
	StepAfter  = 5 * time.Second
)

// Due takes in a reading that was made at a local time and has the store's clock ahead by so much,
// and reports whether that clock is to step. While a local clock runs backwards, as that of a test
// does, no time passes.
func (r *StepRule) Due(at time.Time, ahead time.Duration) bool {
	far := ahead > StepBeyond
	if far && r.far {
		r.farFor += max(0, at.Sub(r.read))
	} else {
		r.farFor = 0
	}
	r.read, r.far = at, far
	return far && r.farFor >= StepAfter
}

// SteadyClock is a clock that never runs backwards (P8) but for a step, made from a source that
// somebody may set back. When the source is set back, the SteadyClock goes on at half the speed of
// elapsed time until the source has caught up. For example, after a step of 1 s back it agrees with
// the source again after 2 s. If it stood still instead, all deliveries would stop for the length
// of the step; at full speed it would stay ahead for ever. When it stays far ahead (StepRule),
// StepDue says so, and the owner of the clock calls Step. It is safe for concurrent use.
type SteadyClock struct {
	source Clock

	mu   sync.Mutex
	read time.Time // guarded by mu: the last reading of the source, with its monotonic part if it has one
	last time.Time // guarded by mu: the last time that the clock returned; decreases at a step alone
	rule StepRule  // guarded by mu: it has the readings of the source
	due  bool      // guarded by mu: what rule said last

	state ClockState // guarded by mu: Steps and Last
}

// NewSteadyClock returns a clock that starts at the time of the source, or at passed if that is
// later. passed is the latest time that a store has recorded, so that its clock does not run
// backwards when it is opened again.
func NewSteadyClock(source Clock, passed time.Time) *SteadyClock {
	return &SteadyClock{source: source, read: source.Now(), last: passed.Round(0)}
}

// Now returns the current time in UTC, in the resolution of the source.
func (c *SteadyClock) Now() time.Time {
	now, _ := c.Read()
	return now
}

// Read returns what Now returns, and the reading of the source from which it was made.
func (c *SteadyClock) Read() (now, source time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.readSource()
	return c.last, t
}

func (c *SteadyClock) readSource() time.Time {
	t := c.source.Now()
	elapsed := max(0, t.Sub(c.read)) // by the monotonic clock, which no step touches
	c.read = t
	wall := t.Round(0).UTC()
	c.due = c.rule.Due(t, c.last.Sub(wall))
	if wall.Before(c.last) {
		c.last = c.last.Add(elapsed / 2)
	} else {
		c.last = wall
	}
	return t
}

// StepDue reports whether the clock has been so far ahead of its source for so long, at the
// readings until now, that it is to step.
func (c *SteadyClock) StepDue() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.due
}

// Step steps the clock back to its source and returns the step. It returns false if the clock is
// not ahead. The caller sees to it that what was decided by the time before is not carried out
// after the step.
func (c *SteadyClock) Step() (s ClockStep, stepped bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	to := c.readSource().Round(0).UTC()
	if !to.Before(c.last) {
		return ClockStep{}, false
	}
	s = ClockStep{From: c.last, To: to}
	c.last, c.rule, c.due = to, StepRule{}, false
	c.state.Steps, c.state.Last = c.state.Steps+1, s
	return s, true
}

// State returns how the clock stands to its source, and the steps since it was made.
func (c *SteadyClock) State() ClockState {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall := c.readSource().Round(0)
	s := c.state
	s.Now, s.Ahead, s.Follows = c.last, c.last.Sub(wall), "machine"
	return s
}

// After is Clock.After with a wait of at most limit. When somebody sets the source meanwhile, the
// wait may end too early, or up to limit too late, so callers read the clock again when it ends.
func (c *SteadyClock) After(t time.Time, limit time.Duration) (<-chan time.Time, func()) {
	now, source := c.Read()
	// After its source was set back the clock needs twice the time, but it never falls behind the
	// source.
	wait, way := t.Sub(source), t.Sub(now)
	if way < wait/2 {
		wait = 2 * way
	}
	return c.source.After(source.Add(min(wait, limit)))
}
