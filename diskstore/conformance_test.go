package diskstore

import (
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storetest"
)

func openTest(t *testing.T, clock punctual.Clock) punctual.Store {
	t.Helper()
	return openAt(t, t.TempDir(), &Options{Clock: clock})
}

func TestConformance(t *testing.T) { storetest.Run(t, openTest) }
