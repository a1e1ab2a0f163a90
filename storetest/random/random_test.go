package random

import (
	"flag"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest"
	"github.com/punctualmq/punctual/storetest/internal/mutants"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// setFlag sets a flag of package rapid for one test.
func setFlag(t *testing.T, name, value string) {
	t.Helper()
	f := flag.Lookup(name)
	if f == nil {
		t.Fatalf("package rapid has no flag -%s any more", name)
	}
	old := f.Value.String()
	if err := flag.Set(name, value); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := flag.Set(name, old); err != nil {
			t.Error(err)
		}
	})
}

func TestSlowRandomKillsMutants(t *testing.T) {
	setFlag(t, "rapid.nofailfile", "true")
	setFlag(t, "rapid.shrinktime", "0s")
	setFlag(t, "rapid.checks", "400") // with 100 one run in twelve missed a mutant
	for _, name := range slices.Sorted(maps.Keys(mutants.All)) {
		mut := mutants.All[name]
		if !mut.Random {
			continue
		}
		t.Run(name, func(t *testing.T) {
			reported := mutants.Record(t.Name(), func(r *mutants.Recorder) {
				rapid.Check(r, func(rt *rapid.T) { compareHistory(rt, opener{open: mut.Bug.Open}) })
			})
			if len(reported) == 0 {
				t.Fatalf("the store %s, and random histories did not show it", name)
			}
			if !strings.Contains(strings.Join(reported, "\n"), ": P") {
				t.Errorf("random histories reported %.400q; want a broken promise", reported)
			}
			t.Logf("%.300s", reported[0])
		})
	}
}

func TestRepeatCommand(t *testing.T) {
	got := repeatCommand("TestStore/a b/c.d", "testdata/rapid/x/x-1.fail")
	want := `go test github.com/punctualmq/punctual/storetest/random -run '^TestStore$/^a b$/^c\.d$' -rapid.failfile='testdata/rapid/x/x-1.fail'`
	if got != want {
		t.Errorf("the command is\n%s\nwant\n%s", got, want)
	}
}

func TestRandomTellsDurableFromForgetful(t *testing.T) {
	setFlag(t, "rapid.nofailfile", "true")
	setFlag(t, "rapid.shrinktime", "0s")
	run := func(o opener) []string {
		return mutants.Record(t.Name(), func(r *mutants.Recorder) { rapid.Check(r, func(rt *rapid.T) { compareHistory(rt, o) }) })
	}
	openMemory := func(clock storekit.Clock) punctual.Store { return memstore.New(&memstore.Options{Clock: clock}) }
	same := func(old punctual.Store, _ storekit.Clock) punctual.Store { return old }
	if f := run(opener{open: openMemory, reopen: same}); len(f) > 0 {
		t.Errorf("random histories failed a store that keeps everything: %v", f)
	}
	empty := func(_ punctual.Store, clock storekit.Clock) punctual.Store { return openMemory(clock) }
	if f := run(opener{open: openMemory, reopen: empty}); len(f) == 0 {
		t.Error("random histories passed a store that forgets everything")
	}
}

func open(t *testing.T, clock storekit.Clock) punctual.Store {
	s := memstore.New(&memstore.Options{Clock: clock})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestMemstoreRandom(t *testing.T) { Run(t, open) }

// TestRunReopens: the histories of a store that can be reopened have it reopened.
func TestRunReopens(t *testing.T) {
	reopened := false
	Run(t, open, storetest.WithReopen(func(_ *testing.T, old punctual.Store, _ storekit.Clock) punctual.Store {
		reopened = true
		return old
	}))
	if !reopened {
		t.Error("no history reopened the store")
	}
}
