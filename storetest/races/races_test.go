package races

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest/internal/mutants"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shortRace lets clients race on a store for a moment and returns the promises that
// checkHistory finds broken, with one text each.
func shortRace(t *testing.T, store punctual.Store) map[string]string {
	t.Helper()
	r := &race{ctx: t.Context(), store: store, lasts: 500 * time.Millisecond}
	history, err := r.run()
	if err != nil {
		t.Fatal(err)
	}
	broken := make(map[string]string)
	for _, v := range checkHistory(history, false) {
		broken[v.Promise] = v.Text
	}
	return broken
}

func TestSlowRacesKillMutants(t *testing.T) {
	for _, name := range []string{
		"acks by ID, whatever the token", "says cancelled and does nothing", "does not honour leases",
		"starts tokens anew with each message", "loses one push in seven", "does not count retried attempts",
	} {
		t.Run(name, func(t *testing.T) {
			mut := mutants.All[name]
			var got map[string]string
			for range 10 { // the scheduler decides how much meets in one race
				if got = shortRace(t, mut.Bug.Open(storekit.SystemClock{})); got[mut.Promise] != "" {
					return
				}
			}
			t.Errorf("the store %s, and the last of ten races reported %.600v; want %s broken", name, got, mut.Promise)
		})
	}
}

// TestRacesSeeLateWorkers: it happens in races that a delivery comes to a worker after its lease
// has ended, and no promise is broken then.
func TestRacesSeeLateWorkers(t *testing.T) {
	for range 20 { // the scheduler decides how much meets in one race
		r := &race{ctx: t.Context(), store: memstore.New(nil), lasts: 500 * time.Millisecond}
		history, err := r.run()
		if err != nil {
			t.Fatal(err)
		}
		if found := checkHistory(history, false); len(found) > 0 {
			t.Fatalf("%.2000v", found)
		}
		if r.lapsed() > 0 {
			return
		}
	}
	t.Error("in 20 races no delivery came to a worker after its lease")
}

// bare is a store without any optional interface.
type bare struct{ punctual.Store }

func TestRacesWithoutInspector(t *testing.T) {
	if got := shortRace(t, bare{memstore.New(nil)}); len(got) > 0 {
		t.Errorf("a race on a right store without an Inspector reported %v", got)
	}
}

func TestMemstoreRaces(t *testing.T) {
	Run(t, func(t *testing.T, clock storekit.Clock) punctual.Store {
		s := memstore.New(&memstore.Options{Clock: clock})
		t.Cleanup(func() { _ = s.Close() })
		return s
	})
}
