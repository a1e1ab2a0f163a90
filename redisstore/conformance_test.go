package redisstore

import (
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, openFresh, storetest.WithReopen(reopen))
}

func TestRandomHistories(t *testing.T) {
	storetest.RunRandom(t, openFresh, storetest.WithReopen(reopen))
}

func TestRaces(t *testing.T) { storetest.RunRaces(t, openFresh) }

func openFresh(t *testing.T, clock punctual.Clock) punctual.Store {
	t.Helper()
	return openStore(t, connect(t, shared), &Options{Prefix: fresh(), clock: clock})
}

func reopen(t *testing.T, old punctual.Store, clock punctual.Clock) punctual.Store {
	t.Helper()
	s := old.(*Store)
	if err := s.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	return openStore(t, s.client, &Options{Prefix: s.opt.Prefix, clock: clock})
}
