package pgstore

import (
	"crypto/rand"
	"strings"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storetest/duties"
)

// TestSlowDuties has copies made for groups, and follow-ups forwarded, over this store.
func TestSlowDuties(t *testing.T) {
	t.Parallel()
	duties.Run(t, openSerializable)
}

// TestSlowKillDuties kills processes while they do these duties.
func TestSlowKillDuties(t *testing.T) {
	t.Parallel()
	address := func(*testing.T) string {
		return shared.URL("postgres") + "&schema=d" + strings.ToLower(rand.Text())
	}
	duties.RunKilled(t, "TestSlowKillDuties", address, openMigrated)
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

// TestSlowSchedules has the cases of schedules over this store.
func TestSlowSchedules(t *testing.T) {
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
