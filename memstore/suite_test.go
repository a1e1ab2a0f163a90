package memstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest"
	"github.com/punctualmq/punctual/storetest/ledger"
	"github.com/punctualmq/punctual/storetest/races"
	"github.com/punctualmq/punctual/storetest/random"
)

func TestStore(t *testing.T)  { storetest.Run(t, open) }
func TestRandom(t *testing.T) { random.Run(t, open) }
func TestRaces(t *testing.T)  { races.Run(t, open) }

func open(t *testing.T, clock storekit.Clock) punctual.Store {
	s := memstore.New(&memstore.Options{Clock: clock})
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, punctual.ErrClosed) {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// TestSlowWorkload runs the workload of package ledger for six seconds.
func TestSlowWorkload(t *testing.T) { ledger.RunWorkload(t, open, 6*time.Second, 0) }
