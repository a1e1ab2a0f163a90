package storetest

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest/internal/mutants"
)

// The tests of this file show that the cases fail on stores with a bug, and pass on right ones.

// openMutant returns an opener of stores with the bug. Its waitLimit is short, so that a case soon
// takes a claim that does not return for a hang.
func openMutant(b mutants.Bug) opener {
	return opener{waitLimit: 100 * time.Millisecond, open: b.Open}
}

// beginsWithPromise is what every failure of the suite must match.
var beginsWithPromise = regexp.MustCompile(`^P([1-9]|1[0-4]) [a-z]`)

func TestSuiteKillsMutants(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(mutants.All)) {
		mut := mutants.All[name]
		t.Run(name, func(t *testing.T) {
			killers := make(map[string]int)
			// A bug that shows only when calls meet may need another try on a busy machine.
			for try := 0; try < 20 && killers[mut.Promise] == 0; try++ {
				for _, g := range groups() {
					if !slices.Contains(mut.Groups, g.name) {
						continue
					}
					for _, c := range g.cases {
						for _, f := range mutants.Record(c.name, func(r *mutants.Recorder) { runCase(r, c, openMutant(mut.Bug)) }) {
							if !beginsWithPromise.MatchString(f) {
								t.Errorf("case %q reported %q; want it to begin with a promise", c.name, f)
							}
							killers[strings.SplitN(f, ":", 2)[0]]++
						}
					}
				}
			}
			if killers[mut.Promise] == 0 {
				t.Errorf("the store %s, and the suite reported %v; want %s broken", name, killers, mut.Promise)
			}
		})
	}
}

// plain is memstore with Inspector as its only optional interface, so it shows no finished records
// and tells of no events. It refuses the settings for both with ErrUnsupported, but if lossy is set
// it accepts FinishedRetention.
type plain struct {
	punctual.Store
	punctual.Inspector
	lossy bool
}

func (p plain) Configure(ctx context.Context, topic string, patch punctual.SettingsPatch) (punctual.Settings, error) {
	set, err := p.Settings(ctx, topic)
	if err != nil {
		return set, err
	}
	if _, err := storekit.ApplySettings(set, patch, storekit.CanSet{Partitions: 1, KeepsFinished: p.lossy}); err != nil {
		return set, err
	}
	return p.Inspector.Configure(ctx, topic, patch)
}

// TestStoreWithoutRecords shows that a store without finished records passes the groups finished,
// topics and close, and that one fails which accepts FinishedRetention all the same.
func TestStoreWithoutRecords(t *testing.T) {
	for _, lossy := range []bool{false, true} {
		failed := 0
		for _, g := range groups() {
			if g.name != "finished" && g.name != "topics" && g.name != "close" {
				continue
			}
			for _, c := range g.cases {
				f := mutants.Record(c.name, func(r *mutants.Recorder) {
					runCase(r, c, opener{open: func(clock storekit.Clock) punctual.Store {
						s := memstore.New(&memstore.Options{Clock: clock})
						return plain{s, s, lossy}
					}})
				})
				if failed += len(f); !lossy && len(f) > 0 {
					t.Errorf("%s/%s: %v", g.name, c.name, f)
				}
			}
		}
		if lossy && failed == 0 {
			t.Error("a store that keeps no finished records took the setting, and the suite did not show it")
		}
	}
}

// TestRecorderPassesTheRightStore shows that a mutant fails because of its bug, not because of the
// way in which the cases are run here.
func TestRecorderPassesTheRightStore(t *testing.T) {
	var right mutants.Bug
	for _, g := range groups() {
		for _, c := range g.cases {
			o := openMutant(right)
			o.waitLimit = 0
			if f := mutants.Record(c.name, func(r *mutants.Recorder) { runCase(r, c, o) }); len(f) > 0 {
				t.Errorf("%s/%s: the right store failed: %v", g.name, c.name, f)
			}
		}
	}
}

// bare is a store without any optional interface.
type bare struct{ punctual.Store }

// Settle refuses follow-ups, because a store that is no storekit.AbilityReporter is taken to store
// none.
func (b bare) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	if !slices.ContainsFunc(ss, func(x punctual.Settlement) bool { return len(x.Then) > 0 }) {
		return b.Store.Settle(ctx, ss)
	}
	out := make([]error, len(ss))
	for i := range ss {
		if out[i] = storekit.CheckSettlement(&ss[i], limits.DefaultMaxBody); out[i] == nil && len(ss[i].Then) > 0 {
			out[i] = storekit.FollowUpError(0, punctual.ErrUnsupported)
			continue
		}
		errs, err := b.Store.Settle(ctx, ss[i:i+1])
		if err != nil {
			return nil, err
		}
		out[i] = errs[0]
	}
	return out, nil
}

func TestCasesWithoutInspector(t *testing.T) {
	o := opener{open: func(clock storekit.Clock) punctual.Store { return bare{openMemory(clock)} }}
	for _, g := range groups() {
		for _, c := range g.cases {
			if f := mutants.Record(c.name, func(r *mutants.Recorder) { runCase(r, c, o) }); len(f) > 0 {
				t.Errorf("%s/%s failed a right store without an Inspector: %v", g.name, c.name, f)
			}
		}
	}
}
