package punctual

import (
	"context"
	"time"
)

// ClockKeeper is an optional interface of stores whose clock follows another one: the clock of the machine, or of a server.
// As[ClockKeeper] finds it.
//
// A store's clock does not run backwards, so it is ahead of the other clock after that one was set back. When it has been ahead by
// more than 2 s for 5 s on end, the store steps its clock back to the other one (P8). The step cuts leases to their length and
// keeps what is left of delays; see package storekit/lifecycle.
type ClockKeeper interface {
	// Clock returns how the store's clock stands to the clock that it follows.
	Clock(ctx context.Context) (ClockState, error)
	// StepClock steps the store's clock back at once if it is ahead at all, without the 5 s, and returns what Clock returns then.
	StepClock(ctx context.Context) (ClockState, error)
}

// ClockState is how a store's clock stands to the clock that it follows.
type ClockState struct {
	// Now is the store's clock.
	Now time.Time
	// Follows names whose clock the store's clock follows, such as "machine" or "Redis server".
	Follows string
	// Ahead is by how much the store's clock is ahead of the one that it follows; 0 when it agrees. A store behind a network may say 0
	// for less than 2 s.
	Ahead time.Duration
	// Steps is how often the store's clock has stepped back since the store was made, or since it was opened if it is kept in memory.
	Steps int64
	// Last is the last step; zero when there was none.
	Last ClockStep
}

// ClockStep is a step of a store's clock back, from From to To. The step happened at To.
type ClockStep struct{ From, To time.Time }
