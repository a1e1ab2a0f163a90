package diskstore

import (
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storetest"
)

func TestConformance(t *testing.T) { storetest.Run(t, openFresh, storetest.WithReopen(reopen)) }

func TestRandomHistories(t *testing.T) {
	storetest.RunRandom(t, openFresh, storetest.WithReopen(reopen))
}

func TestRaces(t *testing.T) { storetest.RunRaces(t, openFresh) }

func openFresh(t *testing.T, clock punctual.Clock) punctual.Store {
	t.Helper()
	return openAt(t, t.TempDir(), &Options{Clock: clock})
}

func reopen(t *testing.T, old punctual.Store, clock punctual.Clock) punctual.Store {
	t.Helper()
	closeStore(t, old)
	return openAt(t, old.(*Store).dir, &Options{Clock: clock})
}
