package redisstore

import (
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest"
	"github.com/punctualmq/punctual/storetest/ledger"
	"github.com/punctualmq/punctual/storetest/races"
	"github.com/punctualmq/punctual/storetest/random"
	"github.com/punctualmq/punctual/storetest/transitions"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, openFresh, storetest.WithReopen(reopen))
}

func TestSlowRandomHistories(t *testing.T) {
	t.Parallel()
	random.Run(t, openFresh, storetest.WithReopen(reopen))
}

// TestSweptByItself: the store itself removes events that nobody has read in time.
func TestSweptByItself(t *testing.T) {
	t.Parallel()
	storetest.RunSweeps(t, func(t *testing.T, clock storekit.Clock) punctual.Store {
		return openStore(t, connect(t, shared), &Options{Prefix: fresh(), clock: clock, checkEvery: 5 * time.Millisecond})
	})
}

func TestRaces(t *testing.T) {
	t.Parallel()
	races.Run(t, openFresh, storetest.WithLossyClaims())
}

// TestSlowTransitions compares every transition of a message's life with memstore, because Lua
// repeats the rules, and does so twice: for the fast path and for the general one.
func TestSlowTransitions(t *testing.T) {
	t.Parallel()
	transitions.Run(t, openFresh)
}

func TestSlowTransitionsOfGeneralCases(t *testing.T) {
	t.Parallel()
	transitions.Run(t, func(t *testing.T, clock storekit.Clock) punctual.Store {
		return openStore(t, connect(t, shared), &Options{Prefix: fresh(), clock: clock, general: func() bool { return true }})
	})
}

// TestSlowWorkload does everything at once for a while.
func TestSlowWorkload(t *testing.T) {
	t.Parallel()
	ledger.RunWorkload(t, openFresh, 8*time.Second, 1)
}

func openFresh(t *testing.T, clock storekit.Clock) punctual.Store {
	t.Helper()
	return openStore(t, connect(t, shared), &Options{Prefix: fresh(), clock: clock})
}

func reopen(t *testing.T, old punctual.Store, clock storekit.Clock) punctual.Store {
	t.Helper()
	s := old.(*Store)
	if err := s.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	return openStore(t, s.client, &Options{Prefix: s.opt.Prefix, Partitions: s.opt.Partitions, clock: clock, slack: s.opt.slack})
}

// Random histories and races on topics of four partitions, and in make torture the suite. make test
// runs the suite with such topics on a cluster alone.
func TestSlowPartitions(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T, clock storekit.Clock) punctual.Store {
		return openStore(t, connect(t, shared), &Options{Prefix: fresh(), Partitions: 4, clock: clock})
	}
	of := storetest.WithPartitions(func(id string) int { return keys.Home(id, 4) })
	if ledger.Tortured() {
		t.Run("suite", func(t *testing.T) { storetest.Run(t, open, storetest.WithReopen(reopen), of) })
	}
	t.Run("random", func(t *testing.T) { random.Run(t, open, storetest.WithReopen(reopen), of) })
	t.Run("races", func(t *testing.T) { races.Run(t, open, storetest.WithLossyClaims()) })
}

// generalGroups matches the groups of the suite that make test runs on general paths: those with
// scripts that have a fast path, too.
var generalGroups = regexp.MustCompile("/(push|claim|settle|amend|duplicate|fencing|contract|then|events)/")

// The general path of a script does the same as the fast one, whether calls always take it or each
// third call does, so that both paths meet the same messages. make torture runs the suite and
// random histories both ways.
func TestSlowGeneralCases(t *testing.T) {
	t.Parallel()
	for name, every := range map[string]int64{"always": 1, "each third": 3} {
		var calls atomic.Int64
		general := func() bool { return calls.Add(1)%every == 0 }
		open := func(t *testing.T, clock storekit.Clock) punctual.Store {
			return openStore(t, connect(t, shared), &Options{Prefix: fresh(), clock: clock, general: general})
		}
		if every == 1 || ledger.Tortured() {
			t.Run(name+", suite", func(t *testing.T) {
				storetest.Run(t, func(t *testing.T, clock storekit.Clock) punctual.Store {
					if !ledger.Tortured() && !generalGroups.MatchString(t.Name()) {
						t.Skip("skipped: only in make torture")
					}
					return open(t, clock)
				})
			})
		}
		if every != 1 || ledger.Tortured() {
			t.Run(name+", random", func(t *testing.T) { random.Run(t, open) })
		}
	}
}
