package sharedstore_test

import (
	"testing"

	"github.com/punctualmq/punctual/storetest/duties"
)

// TestDuties copies for groups in a process that does not own the directory.
func TestDuties(t *testing.T) {
	t.Parallel()
	duties.Run(t, new(pairs).open)
}

// TestSchedules has the cases of schedules in a process that does not own the directory.
func TestSchedules(t *testing.T) {
	t.Parallel()
	duties.RunSchedules(t, new(pairs).open)
}
