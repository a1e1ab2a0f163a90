package remotestore_test

import (
	"testing"

	"github.com/punctualmq/punctual/storetest/duties"
)

// TestSlowDuties runs the cases of copies for groups and of forwarding over a server that leaves
// the duties to its clients.
func TestSlowDuties(t *testing.T) { duties.Run(t, overMemory) }

// TestSlowSchedules runs the cases of schedules over a server.
func TestSlowSchedules(t *testing.T) { duties.RunSchedules(t, overMemory) }

// TestFirstUse: what makes a companion is not late the first time, behind a server that leaves the
// duties to its clients.
func TestFirstUse(t *testing.T) {
	s := overMemory(t, nil)
	duties.RunFirst(t, s, s)
}
