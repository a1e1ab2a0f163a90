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
	return openStore(t, s.client, &Options{Prefix: s.opt.Prefix, Partitions: s.opt.Partitions, clock: clock})
}

// The same on topics of four partitions.
func TestPartitions(t *testing.T) {
	open := func(t *testing.T, clock punctual.Clock) punctual.Store {
		return openStore(t, connect(t, shared), &Options{Prefix: fresh(), Partitions: 4, clock: clock})
	}
	of := storetest.WithPartitions(func(id string) int { return home(id, 4) })
	t.Run("suite", func(t *testing.T) { storetest.Run(t, open, storetest.WithReopen(reopen), of) })
	t.Run("random", func(t *testing.T) { storetest.RunRandom(t, open, storetest.WithReopen(reopen), of) })
	t.Run("races", func(t *testing.T) { storetest.RunRaces(t, open) })
}
