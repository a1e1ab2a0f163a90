package sharedstore_test

import (
	"testing"

	"github.com/punctualmq/punctual/storetest/duties"
)

// TestSlowDuties has the cases of copies for groups and of forwarded follow-ups in a process that does not own the directory.
func TestSlowDuties(t *testing.T) {
	t.Parallel()
	duties.Run(t, new(pairs).open)
}

// TestSlowSchedules has the cases of schedules in a process that does not own the directory.
func TestSlowSchedules(t *testing.T) {
	t.Parallel()
	duties.RunSchedules(t, new(pairs).open)
}
