package storetest

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
)

func openMemory(clock storekit.Clock) punctual.Store {
	return memstore.New(&memstore.Options{Clock: clock})
}

// surviving stands in for a durable store: what it holds is still there.
func surviving() opener {
	return opener{open: openMemory, reopen: func(old punctual.Store, _ storekit.Clock) punctual.Store { return old }}
}

// forgetful comes back empty.
func forgetful() opener {
	return opener{open: openMemory, reopen: func(_ punctual.Store, clock storekit.Clock) punctual.Store { return openMemory(clock) }}
}

func TestReopenCasesTellDurableFromForgetful(t *testing.T) {
	for _, c := range reopenCases() {
		if f := record(c.name, func(r *recorder) { runCase(r, c, surviving()) }); len(f) > 0 {
			t.Errorf("case %q failed a store that keeps everything: %v", c.name, f)
		}
		f := record(c.name, func(r *recorder) { runCase(r, c, forgetful()) })
		if len(f) == 0 && c.name != "finished stay finished" {
			t.Errorf("case %q passed a store that forgets everything", c.name)
		}
	}
}

func TestRandomTellsDurableFromForgetful(t *testing.T) {
	setFlag(t, "rapid.nofailfile", "true")
	setFlag(t, "rapid.shrinktime", "0s")
	run := func(o opener) []string {
		return record(t.Name(), func(r *recorder) { rapid.Check(r, func(rt *rapid.T) { compareHistory(rt, o) }) })
	}
	if f := run(surviving()); len(f) > 0 {
		t.Errorf("random histories failed a store that keeps everything: %v", f)
	}
	if f := run(forgetful()); len(f) == 0 {
		t.Error("random histories passed a store that forgets everything")
	}
}
