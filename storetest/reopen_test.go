package storetest

import (
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest/internal/mutants"
)

func openMemory(clock storekit.Clock) punctual.Store {
	return memstore.New(&memstore.Options{Clock: clock})
}

// surviving returns an opener that stands in for a durable store: what a store held is still there
// when it was reopened.
func surviving() opener {
	return opener{open: openMemory, reopen: func(old punctual.Store, _ storekit.Clock) punctual.Store { return old }}
}

// forgetful returns an opener whose stores are empty when they were reopened.
func forgetful() opener {
	return opener{open: openMemory, reopen: func(_ punctual.Store, clock storekit.Clock) punctual.Store { return openMemory(clock) }}
}

func TestReopenCasesTellDurableFromForgetful(t *testing.T) {
	for _, c := range reopenCases() {
		if f := mutants.Record(c.name, func(r *mutants.Recorder) { runCase(r, c, surviving()) }); len(f) > 0 {
			t.Errorf("case %q failed a store that keeps everything: %v", c.name, f)
		}
		f := mutants.Record(c.name, func(r *mutants.Recorder) { runCase(r, c, forgetful()) })
		if len(f) == 0 && c.name != "finished stay finished" {
			t.Errorf("case %q passed a store that forgets everything", c.name)
		}
	}
}
