package audit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

func amends(t *testing.T, l *Log, ch Change, n int64, failed error) {
	t.Helper()
	ch.Amends = true
	if got, err := l.Record(t.Context(), ch, func(context.Context) (int64, error) { return n, failed }); got != n || !errors.Is(err, failed) {
		t.Fatalf("recorded %d, %v; want what the change returned", got, err)
	}
}

// The first amendment has an entry at once. The amendments that follow share one more entry, which
// counts them.
func TestAmendmentsAreCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, clock := newLog(t, nil)
		one := Change{Who: "shop", From: "10.0.0.1", Verb: "cancel", Topic: "orders", ID: "a-1", Detail: "x"}
		amends(t, l, one, 1, nil)
		if all := l.all(t, clock); len(all) != 1 || all[0].ID != "a-1" || all[0].Result != Done || all[0].Changed != 1 || all[0].Who != "shop" {
			t.Fatalf("the first one: the log has %+v", all)
		}
		for i := range 7 {
			ch := one
			ch.ID = ""
			ch.IDs = func() []string { return []string{fmt.Sprint("a-", i), fmt.Sprint("b-", i)} }
			amends(t, l, ch, 2, nil)
		}
		other := one
		other.Who = "ann"
		amends(t, l, other, 1, nil)
		amends(t, l, other, 0, punctual.ErrNotFound) // nothing was changed
		if all := l.all(t, clock); len(all) != 2 {
			t.Fatalf("before the time is over the log has %+v; want the first of each", all)
		}
		time.Sleep(coalesceTime + time.Second)
		synctest.Wait()
		all := l.all(t, clock)
		if len(all) != 3 {
			t.Fatalf("behind the time the log has %+v", all)
		}
		found := false
		for _, e := range all {
			if e.Changed == 14 {
				found = true
				if e.Who != "shop" || e.Verb != "cancel" || e.Topic != "orders" || e.ID != "" || e.From != "10.0.0.1" || e.Detail != "7 calls in 10s" || e.Result != Done {
					t.Errorf("seven calls became %+v", e)
				}
			}
		}
		if !found {
			t.Errorf("the log has %+v; want an entry with 14 messages", all)
		}
		now := storekit.FromMillis(storekit.Millis(clock.Now()))
		for id, want := range map[string]bool{"a-2": true, "a-0": true, "b-6": true, "c-1": false} {
			f := punctual.Finished{Topic: "orders", ID: id, Outcome: punctual.OutcomeCancelled, At: now}
			if e, err := Canceller(t.Context(), l.inspector, &f); err != nil || (e != nil) != want || want && e.Who != "shop" {
				t.Errorf("who amended %s: %+v, %v", id, e, err)
			}
		}
		amends(t, l, one, 1, nil)
		if all := l.all(t, clock); len(all) != 4 {
			t.Errorf("a new time begins: the log has %d entries", len(all))
		}
	})
}

// An amendment with an unknown result is in the log, alone or counted among others.
func TestAmendmentWithUnknownResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, clock := newLog(t, nil)
		unknown := fmt.Errorf("the connection broke: %w", punctual.ErrIndeterminate)
		one := Change{Who: "shop", Verb: "cancel", Topic: "orders"}
		amends(t, l, one, 0, unknown)
		if all := l.all(t, clock); len(all) != 1 || all[0].Result != Unknown || all[0].Error == "" {
			t.Errorf("the log has %+v", all)
		}
		amends(t, l, one, 1, nil)
		amends(t, l, one, 0, unknown)
		amends(t, l, one, 1, nil)
		l.Close() // what was counted is entered
		all := l.all(t, clock)
		if len(all) != 2 {
			t.Fatalf("when the log is closed it has %+v", all)
		}
		for _, e := range all {
			if e.Changed == 2 && (e.Result != Unknown || e.Error == "") {
				t.Errorf("three calls, one with an unknown result, became %+v", e)
			}
		}
	})
}

// The number of entries is bounded, however many topics a program amends.
func TestCoalescedIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, clock := newLog(t, nil)
		for range 2 {
			for i := range maxCoalesced + 50 {
				amends(t, l, Change{Who: "shop", Verb: "cancel", Topic: fmt.Sprint("t", i)}, 1, nil)
				clock.Advance(time.Millisecond)
			}
		}
		if n := len(l.coalescer.open); n > maxCoalesced+1 {
			t.Errorf("P10: %d entries are counted", n)
		}
		l.Close()
		var changed int64
		for _, e := range l.all(t, clock) {
			changed += e.Changed
		}
		if changed != 2*(maxCoalesced+50) {
			t.Errorf("the entries tell of %d changed messages, want %d", changed, 2*(maxCoalesced+50))
		}
	})
}

// An entry has room for some IDs alone.
func TestIDsAreBounded(t *testing.T) {
	l, _, clock := newLog(t, nil)
	for _, length := range []int{1, 200} {
		ids := make([]string, 3*maxIDs)
		for i := range ids {
			ids[i] = strings.Repeat("x", length)
		}
		amends(t, l, Change{Who: fmt.Sprint("shop-", length), Verb: "cancel", Topic: "orders", IDs: func() []string { return ids }}, int64(len(ids)), nil)
	}
	for _, e := range l.all(t, clock) {
		if want := map[string]int{"shop-1": maxIDs, "shop-200": maxIDBytes / 200}[e.Who]; len(e.IDs) != want || e.Changed != 3*maxIDs {
			t.Errorf("%s: the entry has %d IDs of %d messages; want %d", e.Who, len(e.IDs), e.Changed, want)
		}
	}
	l.Close()
}
