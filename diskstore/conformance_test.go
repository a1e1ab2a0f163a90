package diskstore

import (
	"regexp"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest"
	"github.com/punctualmq/punctual/storetest/ledger"
	"github.com/punctualmq/punctual/storetest/races"
	"github.com/punctualmq/punctual/storetest/random"
	"github.com/punctualmq/punctual/storetest/transitions"
)

func TestSlowConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, openFresh, storetest.WithReopen(reopen))
}

// TestSlowWorkload has a ledger judge a workload without faults.
func TestSlowWorkload(t *testing.T) { ledger.RunWorkload(t, openFresh, 6*time.Second, 0) }

func TestSlowRandomHistories(t *testing.T) {
	t.Parallel()
	random.Run(t, openFresh, storetest.WithReopen(reopen))
}

// TestSweptByItself: the store itself removes events that nobody has read in time.
func TestSweptByItself(t *testing.T) {
	t.Parallel()
	storetest.RunSweeps(t, func(t *testing.T, clock storekit.Clock) punctual.Store {
		return openAt(t, t.TempDir(), &Options{Clock: clock, sweepEvery: 5 * time.Millisecond})
	})
}

func TestRaces(t *testing.T) {
	t.Parallel()
	races.Run(t, openFresh)
}

// TestSlowTransitions compares every transition of a message's life with memstore.
func TestSlowTransitions(t *testing.T) {
	t.Parallel()
	transitions.Run(t, openFresh)
}

func openFresh(t *testing.T, clock storekit.Clock) punctual.Store {
	t.Helper()
	return openAt(t, t.TempDir(), &Options{Clock: clock})
}

func reopen(t *testing.T, old punctual.Store, clock storekit.Clock) punctual.Store {
	t.Helper()
	closeStore(t, old)
	return openAt(t, old.(*Store).dir, &Options{Clock: clock})
}

// The cases of the suite that open a store again hold also when the process is killed instead of
// closing the store.
func TestConformanceAfterKill(t *testing.T) {
	t.Parallel()
	storetest.RunReopen(t, openInMemory, kill)
}

func TestSlowRandomHistoriesAfterKill(t *testing.T) {
	t.Parallel()
	random.Run(t, openInMemory, storetest.WithReopen(kill))
}

// openInMemory opens a store whose files are in memory, so that they can be copied at one instant.
// Its purges clear topics however few messages these have.
func openInMemory(t *testing.T, clock storekit.Clock) punctual.Store {
	t.Helper()
	return openAt(t, "store", &Options{Clock: clock, fs: vfs.NewCrashableMem(), clearFrom: 1})
}

// kill opens a copy of the files as they are. The old store stays open on its own files until the
// end of the test, which stands for the process that was killed.
func kill(t *testing.T, old punctual.Store, clock storekit.Clock) punctual.Store {
	t.Helper()
	return openAt(t, "store", &Options{Clock: clock, fs: afterKill(old.(*Store).opt.fs.(*vfs.MemFS)), clearFrom: 1})
}

// memoryGroups selects the groups of the suite that make test runs with little memory: those about
// the order and the number of messages, and about what becomes of a message that may be on disk
// alone.
var memoryGroups = regexp.MustCompile("/(claim|wait|then|amend|attempts|fencing|clock|large|isolation|contract|reopen)/")

// TestSlowWithLittleMemory: nearly every message has to leave memory and to be loaded again, and
// the store keeps the contract all the same. All groups of the suite run in make torture.
func TestSlowWithLittleMemory(t *testing.T) {
	open := func(t *testing.T, clock storekit.Clock) punctual.Store {
		return openAt(t, "store", &Options{fs: vfs.NewMem(), Clock: clock, MemoryBytes: 1})
	}
	again := func(t *testing.T, old punctual.Store, clock storekit.Clock) punctual.Store {
		t.Helper()
		closeStore(t, old)
		return openAt(t, "store", &Options{fs: old.(*Store).opt.fs, Clock: clock, MemoryBytes: 1})
	}
	t.Run("conformance", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T, clock storekit.Clock) punctual.Store {
			if !ledger.Tortured() && !memoryGroups.MatchString(t.Name()) {
				t.Skip("skipped: only in make torture")
			}
			return open(t, clock)
		}, storetest.WithReopen(again))
	})
	t.Run("random", func(t *testing.T) { random.Run(t, open, storetest.WithReopen(again)) })
	t.Run("races", func(t *testing.T) { races.Run(t, open) })
}
