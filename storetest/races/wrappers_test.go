package races

import (
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/rigs/calls"
)

func TestRaceStorePassesCallsOn(t *testing.T) {
	calls.PassOn(t, func(below punctual.Store) punctual.Store {
		return raceStore{below, newRaceWorker(&race{ctx: t.Context(), store: below}, 0)}
	})
}
