package duties_test

import (
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest/duties"
)

func openMemory(t *testing.T, clock storekit.Clock) punctual.Store {
	s := memstore.New(&memstore.Options{Clock: clock})
	t.Cleanup(func() { s.Close() })
	return s
}

func TestSchedulesOverMemory(t *testing.T) { duties.RunSchedules(t, openMemory) }

// TestSlowScheduleEverySecond has a schedule come in each second of a simulated day, unless the
// environment says for how long.
func TestSlowScheduleEverySecond(t *testing.T) { duties.RunEverySecond(t, openMemory, 86_400) }
