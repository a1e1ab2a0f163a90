package diskstore

import (
	"log/slog"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storetest/duties"
)

// TestDuties copies for groups and forwards follow-ups over this store.
func TestDuties(t *testing.T) {
	t.Parallel()
	duties.Run(t, openFresh)
}

// TestKillDuties kills processes while they do so.
func TestKillDuties(t *testing.T) {
	duties.RunKilled(t, "TestKillDuties", func(t *testing.T) string { return t.TempDir() }, func(t *testing.T, dir string) punctual.Store {
		s, err := Open(dir, &Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}
