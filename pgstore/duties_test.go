package pgstore

import (
	"crypto/rand"
	"strings"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storetest/duties"
)

// TestDuties copies for groups and forwards follow-ups over this store.
func TestDuties(t *testing.T) {
	t.Parallel()
	duties.Run(t, openSerializable)
}

// TestKillDuties kills processes while they do so.
func TestKillDuties(t *testing.T) {
	t.Parallel()
	address := func(*testing.T) string {
		return shared.URL("postgres") + "&schema=d" + strings.ToLower(rand.Text())
	}
	duties.RunKilled(t, "TestKillDuties", address, openMigrated)
}

func openMigrated(t *testing.T, url string) punctual.Store {
	o := quietly()
	o.Migrate = true
	s, err := OpenURL(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSchedules has the cases of schedules over this store.
func TestSchedules(t *testing.T) {
	t.Parallel()
	duties.RunSchedules(t, openSerializable)
}

// TestSlowKillSchedules kills processes that do the duty of schedules.
func TestSlowKillSchedules(t *testing.T) {
	t.Parallel()
	address := func(*testing.T) string {
		return shared.URL("postgres") + "&schema=s" + strings.ToLower(rand.Text())
	}
	duties.RunKilledSchedules(t, "TestSlowKillSchedules", address, openMigrated)
}
