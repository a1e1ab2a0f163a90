package diskstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/database"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// dueRig is a store with a large topic, whose due messages are not all counted anew for each
// answer.
type dueRig struct {
	*testing.T
	s     *Store
	clock *storekit.ManualClock
}

// holds compares what Stats, Topics and Forecast say with what List finds. It does so twice,
// because the second time they go on from the counts of the first.
func (r dueRig) holds(when string) {
	r.Helper()
	for range 2 {
		st, err := r.s.Stats(r.Context(), "t")
		if err != nil {
			r.Fatal(err)
		}
		all, err := r.s.Topics(r.Context())
		if err != nil || len(all) != 1 || all[0].Ready != st.Ready || all[0].Scheduled != st.Scheduled || !all[0].NextDue.Equal(st.NextDue) {
			r.Fatalf("%s: Topics says %+v, %v; Stats %+v", when, all, err, st)
		}
		f, err := r.s.Forecast(r.Context(), punctual.ForecastQuery{Step: time.Hour, Buckets: 1})
		if err != nil || f.Overdue != st.Ready+st.Leased {
			r.Fatalf("%s: the forecast has %d overdue, %v; Stats %+v", when, f.Overdue, err, st)
		}
		for state, got := range map[punctual.State]int64{punctual.StateReady: st.Ready, punctual.StateScheduled: st.Scheduled, punctual.StateLeased: st.Leased} {
			if want := r.listed(state); got != want {
				r.Fatalf("%s: %d messages are %v; the list has %d", when, got, state, want)
			}
		}
	}
}

// listed counts the messages of a state by reading them.
func (r dueRig) listed(state punctual.State) (n int64) {
	r.Helper()
	q := punctual.ListQuery{Topic: "t", State: state, Limit: limits.MaxBatch}
	for {
		page, err := r.s.List(r.Context(), q)
		if err != nil {
			r.Fatal(err)
		}
		n += int64(len(page.Messages))
		if q.After = page.Next; page.Next == "" {
			return n
		}
	}
}

func (r dueRig) push(n int, delay time.Duration, id string) {
	r.Helper()
	ms := make([]punctual.NewMessage, n)
	for i := range ms {
		ms[i] = punctual.NewMessage{Topic: "t", ID: fmt.Sprint(id, i), Delay: delay}
	}
	if _, err := r.s.Push(r.Context(), ms); err != nil {
		r.Fatal(err)
	}
}

func (r dueRig) amend(n int, id string, a punctual.Amendment) {
	r.Helper()
	as := make([]punctual.Amendment, n)
	for i := range as {
		as[i] = a
		as[i].Topic, as[i].ID = "t", fmt.Sprint(id, i)
	}
	if _, err := r.s.Amend(r.Context(), as); err != nil {
		r.Fatal(err)
	}
}

func (r dueRig) claim(n int) []punctual.Delivery {
	r.Helper()
	ds, err := r.s.Claim(r.Context(), punctual.Claim{Topics: []string{"t"}, Max: n})
	if err != nil || len(ds) != n {
		r.Fatalf("claimed %d, %v; want %d", len(ds), err, n)
	}
	return ds
}

// TestSlowCountsOfALargeTopic: the number of ready messages stays right whatever happens to
// messages between two counts.
func TestSlowCountsOfALargeTopic(t *testing.T) {
	clock := storekit.NewManualClock(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC))
	dir := t.TempDir()
	s, err := Open(dir, &Options{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	r := dueRig{t, s, clock}
	const n = database.LargeTopic
	r.push(n/2, 0, "now")
	r.holds("small")
	r.push(n, time.Minute, "soon")
	r.holds("large")
	clock.Advance(2 * time.Minute)
	r.holds("more became ready")
	ds := r.claim(90)
	r.holds("some are leased")
	settleAll(t, s, ds[:30], punctual.SettleAck)
	settleAll(t, s, ds[30:60], punctual.SettleDiscard)
	r.holds("some are finished and dead")
	r.amend(100, "soon", punctual.Amendment{Change: punctual.ChangeReschedule, Due: clock.Now().Add(time.Hour)})
	r.holds("some are later")
	r.amend(50, "soon", punctual.Amendment{Change: punctual.ChangeReschedule, Due: clock.Now().Add(-time.Hour)})
	r.amend(20, "soon", punctual.Amendment{Change: punctual.ChangeCancel})
	r.push(40, 0, "more")
	r.holds("some are earlier, cancelled and new")
	clock.Advance(30 * time.Minute) // leases run out
	r.holds("leases ran out")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(dir, &Options{Clock: clock}); err != nil {
		t.Fatal(err)
	}
	r.s = s
	r.holds("opened again")
	r.claim(n - 200)
	clock.Advance(time.Hour)
	r.holds("all are ready")
}
