package memstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest"
)

func TestStore(t *testing.T)  { storetest.Run(t, open) }
func TestRandom(t *testing.T) { storetest.RunRandom(t, open) }
func TestRaces(t *testing.T)  { storetest.RunRaces(t, open) }

func open(t *testing.T, clock storekit.Clock) punctual.Store {
	s := memstore.New(&memstore.Options{Clock: clock})
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, punctual.ErrClosed) {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// TestSlowWorkload does everything at once for a while.
func TestSlowWorkload(t *testing.T) { storetest.RunWorkload(t, open, 6*time.Second, 0) }
