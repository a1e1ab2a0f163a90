package cli

import (
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/rigs/calls"
)

func TestQuotaPassesCallsOn(t *testing.T) {
	for name, n := range map[string]int64{"unlimited": 0, "limited": 5} {
		t.Run(name, func(t *testing.T) {
			calls.PassOn(t, func(below punctual.Store) punctual.Store { return newQuota(below, n) })
		})
	}
}
