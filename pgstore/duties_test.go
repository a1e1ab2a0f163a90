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

// TestFirstUse: what makes a companion is not late the first time, for the process that makes it
// and for another one, also when notifications do not come.
func TestFirstUse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ alone, deaf bool }{"one process": {alone: true}, "two processes": {}, "without notifications": {deaf: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := Options{Schema: fresh(), Migrate: true, OwnPool: true, NoListen: c.deaf}
			mine, others := o, o
			does := openStore(t, newPool(t, shared), &mine)
			stores := does
			if !c.alone {
				stores = openStore(t, newPool(t, shared), &others)
			}
			duties.RunFirst(t, does, stores)
		})
	}
}
