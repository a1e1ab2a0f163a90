package memstore

import (
	"time"

	"github.com/punctualmq/punctual"
)

// lookAgain is how long a waiting claim sleeps at most while something lies ahead:
// after a suspend or a step of the clock nothing is later than this (P11).
const lookAgain = time.Second

// steadyClock makes a clock that never runs backwards (P8) of one that may be stepped.
// While the source is behind what was already told, the steady clock goes on at half
// the speed of elapsed time until the source has caught up.
type steadyClock struct {
	source punctual.Clock
	last   time.Time // what now returned last, wall clock only; never decreases
	read   time.Time // the source's latest answer, with its monotonic reading if it has one
}

func (c *steadyClock) now() time.Time {
	t := c.source.Now()
	// For times of package time, Sub goes by the monotonic reading, which no step touches.
	elapsed := max(0, t.Sub(c.read))
	c.read = t
	if wall := t.Round(0).UTC(); wall.Before(c.last) {
		c.last = c.last.Add(elapsed / 2)
	} else {
		c.last = wall
	}
	return c.last
}

// until is how long, by the source, to sleep at most before the steady clock may have
// reached t: at half speed twice the way, but never beyond the source's own t.
func (c *steadyClock) until(t time.Time) time.Duration {
	way := min(t.Sub(c.last), lookAgain)
	return min(2*way, t.Sub(c.read), lookAgain)
}

// after wakes once the source has moved on by d since it was last read.
func (c *steadyClock) after(d time.Duration) (<-chan time.Time, func()) {
	return c.source.After(c.read.Add(d))
}
