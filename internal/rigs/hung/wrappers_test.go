package hungrig

import (
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/rigs/calls"
)

func TestStorePassesCallsOn(t *testing.T) {
	calls.PassOn(t, func(below punctual.Store) punctual.Store { return New(below, "push", "amend", "claim", "ack") })
}
