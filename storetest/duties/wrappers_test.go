package duties

import (
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/rigs/calls"
)

func TestLossyPassesCallsOn(t *testing.T) {
	calls.PassOn(t, func(below punctual.Store) punctual.Store { return &lossy{Store: below, every: 1 << 40} })
}

func TestStandingPassesCallsOn(t *testing.T) {
	calls.PassOn(t, func(below punctual.Store) punctual.Store {
		s := &standing{Store: below, stands: make(chan struct{}), goes: make(chan struct{})}
		s.once.Do(func() {}) // as if it had stood still already
		close(s.goes)
		return s
	})
}

func TestStoppingPassesCallsOn(t *testing.T) {
	never := func(bool, string) bool { return false }
	calls.PassOn(t, func(below punctual.Store) punctual.Store {
		return &stopping{Store: below, stage: stage{settle: never, push: never}}
	})
}
