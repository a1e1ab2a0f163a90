package storetest

import (
	"flag"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

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
	for _, name := range slices.Sorted(maps.Keys(mutants)) {
		mut := mutants[name]
		if !mut.random {
			continue
		}
		t.Run(name, func(t *testing.T) {
			reported := record(t.Name(), func(r *recorder) {
				rapid.Check(r, func(rt *rapid.T) { compareHistory(rt, mut.bug.opener()) })
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
	want := `go test github.com/punctualmq/punctual/storetest -run '^TestStore$/^a b$/^c\.d$' -rapid.failfile='testdata/rapid/x/x-1.fail'`
	if got != want {
		t.Errorf("the command is\n%s\nwant\n%s", got, want)
	}
}
