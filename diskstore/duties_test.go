package diskstore

import (
	"log/slog"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storetest/duties"
)

// TestSlowDuties copies for groups and forwards follow-ups over this store.
func TestSlowDuties(t *testing.T) {
	t.Parallel()
	duties.Run(t, openFresh)
}

// TestSlowKillDuties kills processes while they copy for groups and forward follow-ups.
func TestSlowKillDuties(t *testing.T) {
	duties.RunKilled(t, "TestSlowKillDuties", func(t *testing.T) string { return t.TempDir() }, openQuietly)
}

func openQuietly(t *testing.T, dir string) punctual.Store {
	s, err := Open(dir, &Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSlowSchedules runs the cases of recurring schedules over this store.
func TestSlowSchedules(t *testing.T) {
	t.Parallel()
	duties.RunSchedules(t, openFresh)
}

// TestSlowKillSchedules kills processes that do the duty of schedules.
func TestSlowKillSchedules(t *testing.T) {
	duties.RunKilledSchedules(t, "TestSlowKillSchedules", func(t *testing.T) string { return t.TempDir() }, openQuietly)
}

// TestSlowScheduleEverySecond lets a schedule for each second live for 500 simulated seconds, or as
// many as PUNCTUAL_TORTURE_SECONDS says.
func TestSlowScheduleEverySecond(t *testing.T) { duties.RunEverySecond(t, openFresh, 500) }

// TestFirstUse: what makes a companion is not late the first time.
func TestFirstUse(t *testing.T) {
	t.Parallel()
	s := openFresh(t, nil)
	duties.RunFirst(t, s, s)
}
