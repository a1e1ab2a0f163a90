package remotestore_test

import (
	"path/filepath"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest"
	"github.com/punctualmq/punctual/storetest/ledger"
	"github.com/punctualmq/punctual/storetest/races"
	"github.com/punctualmq/punctual/storetest/random"
)

func TestSlowOverMemory(t *testing.T) {
	storetest.Run(t, overMemory, storetest.WithClockElsewhere(), storetest.WithLossyClaims())
}
func TestSlowRandomHistories(t *testing.T) { random.Run(t, overMemory) }
func TestRaces(t *testing.T)               { races.Run(t, overMemory, storetest.WithLossyClaims()) }

// TestStoreOverSocket runs the races over a socket, and in make torture the suite instead.
func TestStoreOverSocket(t *testing.T) {
	if !ledger.Tortured() {
		races.Run(t, overSocket, storetest.WithLossyClaims())
		return
	}
	storetest.Run(t, overSocket, storetest.WithClockElsewhere(), storetest.WithLossyClaims())
}

func overMemory(t *testing.T, clock storekit.Clock) punctual.Store {
	below := closing(t, memstore.New(&memstore.Options{Clock: clock}), nil)
	return connect(t, nil, serve(t, below, "").url)
}

func overSocket(t *testing.T, clock storekit.Clock) punctual.Store {
	below := closing(t, memstore.New(&memstore.Options{Clock: clock}), nil)
	return connect(t, nil, serveUnix(t, below, filepath.Join(tempDir(t), "s")).url)
}
