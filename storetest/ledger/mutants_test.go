package ledger

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storetest/internal/mutants"
	"github.com/punctualmq/punctual/storetest/promise"
)

// unseenByLedger has the bugs of package mutants that callers of a workload cannot see, with the
// reason.
var unseenByLedger = map[string]string{
	"sleeps through wake-ups":                                         "how long a claim waits is for the cases of group wait",
	"has one claim at a time, however long it waits":                  "how long a claim waits is for the cases of group wait",
	"has paused topics stop the others":                               "who waits for whom is for the cases of group wait",
	"holds claims for longer than their leases":                       "how late an answer arrives is for the cases of group claim; a machine may be as slow",
	"claims the latest first":                                         "order is for the cases of group claim and for random histories",
	"claims more of a topic than PerTopic":                            "how many a claim asked for is not written down; it is for the cases of group claim and for random histories",
	"sorts the IDs of a claim":                                        noIDs,
	"takes the earliest in place of those named":                      noIDs,
	"follows its clock backwards":                                     "the workload's clock does not go backwards",
	"shortens what is due too far away":                               "the workload asks for nothing malformed",
	"delivers at once what has a negative delay":                      "the workload asks for nothing malformed",
	"lets one bad item stop the others":                               "the workload asks for nothing malformed",
	"pushes although the context has ended":                           notEnded,
	"claims although the context has ended":                           notEnded,
	"settles although the context has ended":                          notEnded,
	"amends although the context has ended":                           notEnded,
	"rounds due times down":                                           "the workload asks for whole milliseconds",
	"keeps no record of what is cancelled":                            noRecords,
	"forgets when a lease began":                                      noRecords,
	"tells what was long forgotten":                                   noRecords,
	"keeps a record only of those that remember IDs":                  noRecords,
	"lists finished messages of any outcome":                          noRecords,
	"loses a finished record between two pages":                       noRecords,
	"lists finished messages from the other end":                      noRecords,
	"deletes as a cancel does":                                        "the workload deletes nothing; it is for the cases of group amend and for random histories",
	"remembers as the topic asks when that is longer":                 noRemember,
	"remembers as the message asks only where the topic has a window": noRemember,
	"does not wake claims for follow-ups":                             "how long a claim waits is for the cases of groups wait and then",
	"compares a condition with the millisecond that it lies in":       "the workload asks for whole milliseconds",
	"rounds the due time of a settlement down":                        "the workload asks for whole milliseconds",
	"leaves companions behind":                                        "the workload deletes no topic that has companions; it is for the cases of group companions",
	"tells of nothing that a claim ends":                              "when a claim ends a message is not known; it is for the cases of group events and for random histories",
}

const noRemember = "the workload's messages ask for no window of their own; that is for the cases of group duplicate and for random histories"

const noIDs = "which IDs a claim asked for is not written down; it is for the cases of group ids and for random histories"

const noRecords = "the workload keeps no finished records"

const notEnded = "the contexts of the workload's calls end while the calls are under way; it is for the cases of groups badinput and claim"

// seenAs has another promise that a bug may break for the callers. For example, where a message was
// lost, a push of its ID finds the ID free, which breaks P7.
var seenAs = map[string]string{
	"loses the dead": promise.P7, "says cancelled and does nothing": promise.P7, "loses one push in seven": promise.P7,
	"stores follow-ups although the lease was lost": promise.P13, "stores one follow-up of several": promise.P1,
	"takes a follow-up for one that was pushed long before": promise.P13,
}

// mutantWorkload runs workloads on a store with a bug until the ledger reports something, eight at
// most, and an audit if it has reported nothing. It returns what the ledger reported.
func mutantWorkload(t *testing.T, s punctual.Store, clock *ShiftedClock) (problems []string) {
	l := New(KeepsAll)
	l.Grace, l.Expected = 1000, []string{"deadline", "canceled"}
	var mu sync.Mutex
	emit := func(e Line) {
		mu.Lock()
		defer mu.Unlock()
		l.Add(e)
	}
	began := time.Now()
	for i := range int64(8) {
		ctx, end := context.WithTimeout(t.Context(), 400*time.Millisecond)
		w := Workload{Store: s, Process: i + 1, Seed: uint64(i), Pause: 2 * time.Millisecond, Deadlines: true, Emit: emit, Clock: clock.Now}
		w.Run(ctx)
		end()
		if p := l.Problems(); len(p) > 0 {
			t.Logf("caught after %v: %s", time.Since(began).Round(time.Millisecond), l)
			return p
		}
	}
	if err := l.Audit(t.Context(), s, 1000, clock); err != nil {
		t.Errorf("audit: %v", err)
	}
	return l.Problems()
}

func TestSlowLedgerCatchesMutants(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(mutants.All)) {
		if unseenByLedger[name] != "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			mut := mutants.All[name]
			named := func(p string) bool {
				return strings.Contains(p, mut.Promise) || seenAs[name] != "" && strings.Contains(p, seenAs[name])
			}
			var problems []string
			// A busy machine may do too little in the time of a workload to meet the bug.
			for try := 0; try < 20 && !slices.ContainsFunc(problems, named); try++ {
				clock := &ShiftedClock{}
				problems = mutantWorkload(t, mut.Bug.Open(clock), clock)
			}
			if !slices.ContainsFunc(problems, named) {
				t.Errorf("the ledger says %.3000q; want %s broken", problems, mut.Promise)
			}
		})
	}
}
