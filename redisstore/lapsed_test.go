package redisstore

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/storekit"
)

// lease pushes and claims n messages, script.Items at a time, and returns the last lease.
func lease(t *testing.T, s *Store, n int) punctual.Delivery {
	t.Helper()
	var last punctual.Delivery
	for done := 0; done < n; {
		ms := make([]punctual.NewMessage, min(script.Items, n-done))
		for i := range ms {
			ms[i] = punctual.NewMessage{Topic: "orders"}
		}
		push(t, s, ms...)
		ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: len(ms), Lease: time.Minute})
		if err != nil || len(ds) != len(ms) {
			t.Fatalf("claimed %d, %v; want %d", len(ds), err, len(ms))
		}
		done += len(ms)
		last = ds[len(ds)-1]
	}
	return last
}

// scripted returns how many scripts the server has run by now, and how long they took.
func scripted(t *testing.T, server *redisrig.Server) (n, micros int64) {
	t.Helper()
	for _, m := range regexp.MustCompile(`cmdstat_eval(?:sha)?:calls=([0-9]+),usec=([0-9]+)`).FindAllStringSubmatch(do(t, server, "INFO", "commandstats"), -1) {
		calls, err := strconv.ParseInt(m[1], 10, 64)
		usec, err2 := strconv.ParseInt(m[2], 10, 64)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		n, micros = n+calls, micros+usec
	}
	return n, micros
}

// perScript returns how long the server took for each script of a call, on average, and how many
// these were.
func perScript(t *testing.T, server *redisrig.Server, call func() error) (took time.Duration, scripts int64) {
	t.Helper()
	n, micros := scripted(t, server)
	if err := call(); err != nil {
		t.Fatal(err)
	}
	n2, micros2 := scripted(t, server)
	return time.Duration(micros2-micros) * time.Microsecond / time.Duration(n2-n), n2 - n
}

// P14: no script takes much longer than one that pushes or leases as many messages as a script may,
// however many leases have run out.
func TestSlowManyLapsedLeases(t *testing.T) {
	const lapsed = 60_000
	server := redisrig.Start(t, "--appendonly", "no")
	clock := storekit.NewManualClock(time.Unix(1_800_000_000, 0))
	s := openStore(t, connect(t, server), &Options{clock: clock})
	single, _ := perScript(t, server, func() error { lease(t, s, lapsed); return nil })
	clock.Advance(time.Hour)
	// A script that went through all leases would take a hundred times as long as one that leases
	// script.Items messages, or longer.
	most := 10 * single
	inspect := func(f func() error) func() error {
		return func() error {
			for range 10 {
				if err := f(); err != nil {
					return err
				}
			}
			return nil
		}
	}
	for _, x := range []struct {
		name    string
		call    func() error
		scripts int64 // at least; no script puts more than script.Items leases into x, or leases or purges more
	}{
		{"claim", inspect(func() error { _, err := s.Claim(t.Context(), orders(0)); return err }), 10},
		{"count", func() error { _, err := s.Stats(t.Context(), "orders"); return err }, (lapsed - 10) / script.Items},
		{"list", inspect(func() error {
			_, err := s.List(t.Context(), punctual.ListQuery{Topic: "orders", State: punctual.StateReady, Limit: 500})
			return err
		}), 10},
		{"forecast", inspect(func() error {
			_, err := s.Forecast(t.Context(), punctual.ForecastQuery{Topic: "orders", Step: time.Minute, Buckets: 60})
			return err
		}), 10},
		{"large claim", inspect(func() error {
			_, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 500})
			return err
		}), 10 * (500 / script.Items)},
		{"purge", func() error {
			n, err := s.Purge(t.Context(), punctual.PurgeQuery{Topic: "orders", State: punctual.StateReady})
			if want := int64(lapsed - 10 - 10*500); n != want {
				t.Errorf("purged %d; want %d", n, want)
			}
			return err
		}, (lapsed - 10 - 10*500) / script.Items},
	} {
		took, scripts := perScript(t, server, x.call)
		t.Logf("%s: %d scripts of %v; one that pushes or leases %d takes %v", x.name, scripts, took, script.Items, single)
		if scripts < x.scripts {
			t.Errorf("this test shows nothing: %s ran %d scripts; want %d or more", x.name, scripts, x.scripts)
		}
		if took > most {
			t.Errorf("P14: %s with %d leases that have run out had scripts of %v; want at most %v", x.name, lapsed, took, most)
		}
	}
	wantSound(t, s)
}

// P1, P4, P12: messages whose lease has run out are ready. A list has them by due time, and a claim
// gets all of them. Their late holders can still settle them, whether or not a script has put them
// into x.
func TestLapsedLeasesAreReady(t *testing.T) {
	const leased = 450
	for _, seen := range []bool{false, true} {
		s, clock := openStill(t, Options{})
		first := now(t, s)
		var held []punctual.Delivery
		for i := range leased {
			push(t, s, punctual.NewMessage{ID: fmt.Sprintf("%03d", i), Due: first.Add(-time.Duration(i) * time.Second)})
			held = append(held, claimOne(t, s, 0))
			clock.Advance(time.Millisecond)
		}
		clock.Advance(time.Hour)
		push(t, s, punctual.NewMessage{ID: "waits", Due: first.Add(-10500 * time.Millisecond)})
		if seen {
			if st, err := s.Stats(t.Context(), "orders"); err != nil || st.Ready != leased+1 || st.Leased != 0 || !st.NextDue.Equal(first.Add(-(leased-1)*time.Second)) {
				t.Fatalf("stats: %+v, %v", st, err)
			}
		}
		// The holders of six messages do something, each with another verb.
		left := leased
		for i, v := range []punctual.Verb{punctual.SettleAck, punctual.SettleRetry, punctual.SettleSnooze, punctual.SettleDiscard, punctual.SettleRelease, punctual.SettleExtend} {
			d := held[10*i]
			errs, err := s.Settle(t.Context(), []punctual.Settlement{{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: v, Delay: map[bool]time.Duration{true: time.Hour}[v == punctual.SettleRetry || v == punctual.SettleSnooze || v == punctual.SettleExtend]}})
			if err != nil || errs[0] != nil {
				t.Fatalf("P4: a late %v: %v, %v", v, errs, err)
			}
			if v != punctual.SettleRelease {
				left--
			}
		}
		push(t, s, punctual.NewMessage{ID: held[5].ID, Delay: time.Hour, IfExists: punctual.IfExistsReplace})
		out, err := s.Amend(t.Context(), []punctual.Amendment{
			{Change: punctual.ChangeCancel, Topic: "orders", ID: held[15].ID},
			{Change: punctual.ChangeReschedule, Topic: "orders", ID: held[25].ID, Delay: time.Hour},
		})
		if err != nil || out[0].Err != nil || out[1].Err != nil {
			t.Fatalf("amend: %+v, %v", out, err)
		}
		left -= 3
		var listed []string
		for q := (punctual.ListQuery{Topic: "orders", State: punctual.StateReady, Limit: 100}); ; {
			page, err := s.List(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range page.Messages {
				listed = append(listed, m.ID)
			}
			if q.After = page.Next; q.After == "" {
				break
			}
		}
		want := slices.Clone(listed)
		slices.Sort(want)
		slices.Reverse(want)
		if i := slices.Index(listed, "waits"); i < 0 || i+1 < len(listed) && listed[i+1] > "010" || i > 0 && listed[i-1] < "011" {
			t.Errorf("P12: %q is at place %d of the list; want it between 011 and 010", "waits", i)
		}
		if got := slices.DeleteFunc(slices.Clone(listed), func(id string) bool { return id == "waits" }); len(got) != left || !slices.Equal(got, want[1:]) {
			t.Errorf("P1: %d are listed, in the order %v; want %d by due time", len(got), got, left)
		}
		ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 500})
		if err != nil || len(ds) != left+1 {
			t.Errorf("P1: claimed %d, %v; want %d", len(ds), err, left+1)
		}
		if st, err := s.Stats(t.Context(), "orders"); err != nil || st.Ready != 0 {
			t.Errorf("after all were claimed: %+v, %v", st, err)
		}
		wantSound(t, s)
	}
}

// TestExpiredEndInBatches: a claim of one message behind 1,000 that have expired takes a number of
// scripts that is far below theirs.
func TestExpiredEndInBatches(t *testing.T) {
	t.Parallel()
	const expired = 1000
	server := redisrig.Start(t)
	clock := storekit.NewManualClock(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC))
	s := openStore(t, connect(t, server), &Options{clock: clock})
	for from := 0; from <= expired; from += script.Items {
		ms := make([]punctual.NewMessage, min(script.Items, expired+1-from))
		for i := range ms {
			ms[i] = punctual.NewMessage{Topic: "orders", ID: strconv.Itoa(from + i), Delay: time.Duration(from+i) * time.Millisecond, ExpireAfter: time.Second, DropExpired: i%2 == 0}
		}
		if from+len(ms) > expired {
			ms[len(ms)-1].ExpireAfter = 0
		}
		push(t, s, ms...)
	}
	clock.Advance(time.Minute)
	before, _ := scripted(t, server)
	ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 1})
	if err != nil || len(ds) != 1 || ds[0].ID != strconv.Itoa(expired) {
		t.Fatalf("behind %d expired messages a claim of one returned %v, %v", expired, ds, err)
	}
	after, _ := scripted(t, server)
	if n := after - before; n > expired/50 {
		t.Errorf("P14: a claim of one message behind %d that have expired ran %d scripts; want at most %d", expired, n, expired/50)
	}
	st, err := s.Stats(t.Context(), "orders")
	if err != nil || st.Dead != expired/2 || st.Live() != 1 {
		t.Errorf("%d messages are dead and %d live, %v; want %d and 1", st.Dead, st.Live(), err, expired/2)
	}
}
