package remotestore_test

import (
	"testing"

	"github.com/punctualmq/punctual/storetest/duties"
)

// TestDuties copies for groups over a server that leaves the duties to its clients.
func TestDuties(t *testing.T) { duties.Run(t, overMemory) }

// TestSchedules has the cases of schedules over a server.
func TestSchedules(t *testing.T) { duties.RunSchedules(t, overMemory) }
