package duties

import (
	"testing"
	"time"

	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest/internal/mutants"
)

// TestOccurrencesCatchMutants: ledger.Occurrences finds stores in which a tick is no atomic step
// under its lease.
func TestOccurrencesCatchMutants(t *testing.T) {
	for _, name := range []string{"stores follow-ups although the lease was lost", "stores one follow-up of several"} {
		t.Run(name, func(t *testing.T) {
			mutant, ok := mutants.All[name]
			if !ok {
				t.Fatal("there is no such mutant")
			}
			for range 5 {
				clock := storekit.NewManualClock(time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC))
				if problems := randomHours(newCronBench(t, mutant.Bug.Open(clock), clock, "hours")); len(problems) > 0 {
					t.Logf("caught: %.300s", problems[0])
					return
				}
			}
			t.Error("the rule has found nothing")
		})
	}
}
