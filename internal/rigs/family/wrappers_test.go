package familyrig

import (
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/rigs/calls"
)

func TestStorePassesCallsOn(t *testing.T) {
	calls.PassOn(t, func(below punctual.Store) punctual.Store { return New(below, 1, false) })
}
