package storetest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openMemory(t *testing.T, clock storekit.Clock) punctual.Store {
	s := memstore.New(&memstore.Options{Clock: clock})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestMemstore(t *testing.T) { storetest.Run(t, openMemory) }
