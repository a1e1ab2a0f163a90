package redisstore

import (
	"log/slog"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest/duties"
)

// TestDuties copies for groups and forwards follow-ups over this store, whose topics have one partition, and then four.
func TestDuties(t *testing.T) {
	t.Parallel()
	t.Run("one partition", func(t *testing.T) { duties.Run(t, openFresh) })
	t.Run("four partitions", func(t *testing.T) {
		duties.Run(t, func(t *testing.T, clock storekit.Clock) punctual.Store {
			return openStore(t, connect(t, shared), &Options{Prefix: fresh(), Partitions: 4, clock: clock})
		})
	})
}

// TestKillDuties kills processes while they do so, over topics of four partitions.
func TestKillDuties(t *testing.T) {
	t.Parallel()
	address := func(*testing.T) string { return "redis://" + shared.Addr + "?prefix=" + fresh() }
	duties.RunKilled(t, "TestKillDuties", address, func(t *testing.T, url string) punctual.Store {
		s, err := OpenURL(t.Context(), url, &Options{Partitions: 4, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}
