package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
)

// recording is a console over a store in memory, in a bubble.
func recording(t *testing.T) (*Console, *storekit.ManualClock) {
	t.Helper()
	clock := storekit.NewManualClock(noon)
	store := memstore.New(&memstore.Options{Clock: clock})
	c, err := New(store, &Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	})
	return c, clock
}

func amends(t *testing.T, c *Console, ch Change, n int64, failed error) {
	t.Helper()
	ch.Amends = true
	if got, err := c.Record(t.Context(), ch, func(context.Context) (int64, error) { return n, failed }); got != n || !errors.Is(err, failed) {
		t.Fatalf("recorded %d, %v; want what the change returned", got, err)
	}
}

// A change from elsewhere is recorded as one of a form is.
func TestRecordedBeforeItIsMade(t *testing.T) {
	c, clock := recording(t)
	_, err := c.Record(t.Context(), Change{Who: "ann", Verb: "purge", Topic: "x"}, func(context.Context) (int64, error) {
		if all := c.audit.all(t, clock); len(all) != 1 || all[0].Result != resultBegun {
			t.Errorf("while the change is made the log has %+v", all)
		}
		return 5, nil
	})
	if all := c.audit.all(t, clock); err != nil || len(all) != 1 || all[0].Result != resultDone || all[0].Changed != 5 || all[0].Who != "ann" {
		t.Errorf("%v: the log has %+v", err, all)
	}
}

// What a person amends has an entry at once. What a program goes on with becomes one more, with how many it was.
func TestAmendmentsAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, clock := recording(t)
		one := Change{Who: "shop", From: "10.0.0.1", Verb: "cancel", Topic: "orders", ID: "a-1", Detail: "x"}
		amends(t, c, one, 1, nil)
		if all := c.audit.all(t, clock); len(all) != 1 || all[0].ID != "a-1" || all[0].Result != resultDone || all[0].Changed != 1 || all[0].Who != "shop" {
			t.Fatalf("the first one: the log has %+v", all)
		}
		for i := range 7 {
			ch := one
			ch.ID = fmt.Sprint("a-", i)
			amends(t, c, ch, 2, nil)
		}
		other := one
		other.Who = "ann"
		amends(t, c, other, 1, nil)
		amends(t, c, other, 0, punctual.ErrNotFound) // nothing was changed
		if all := c.audit.all(t, clock); len(all) != 2 {
			t.Fatalf("before the time is over the log has %+v; want the first of each", all)
		}
		time.Sleep(gatherTime + time.Second)
		synctest.Wait()
		all := c.audit.all(t, clock)
		if len(all) != 3 {
			t.Fatalf("behind the time the log has %+v", all)
		}
		found := false
		for _, e := range all {
			if e.Changed == 14 {
				found = true
				if e.Who != "shop" || e.Verb != "cancel" || e.Topic != "orders" || e.ID != "" || e.From != "10.0.0.1" || e.Detail != "7 calls in 10s" || e.Result != resultDone {
					t.Errorf("seven calls became %+v", e)
				}
			}
		}
		if !found {
			t.Errorf("the log has %+v; want an entry with 14 messages", all)
		}
		amends(t, c, one, 1, nil)
		if all := c.audit.all(t, clock); len(all) != 4 {
			t.Errorf("a new time begins: the log has %d entries", len(all))
		}
	})
}

// A change whose result is not known is in the log, alone or among others.
func TestAmendmentInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, clock := recording(t)
		doubt := fmt.Errorf("the connection broke: %w", punctual.ErrIndeterminate)
		one := Change{Who: "shop", Verb: "cancel", Topic: "orders"}
		amends(t, c, one, 0, doubt)
		if all := c.audit.all(t, clock); len(all) != 1 || all[0].Result != resultUnknown || all[0].Error == "" {
			t.Errorf("the log has %+v", all)
		}
		amends(t, c, one, 1, nil)
		amends(t, c, one, 0, doubt)
		amends(t, c, one, 1, nil)
		if err := c.Close(); err != nil { // what was gathered is written
			t.Fatal(err)
		}
		all := c.audit.all(t, clock)
		if len(all) != 2 {
			t.Fatalf("when the console is closed the log has %+v", all)
		}
		for _, e := range all {
			if e.Changed == 2 && (e.Result != resultUnknown || e.Error == "") {
				t.Errorf("three calls, one of them in doubt, became %+v", e)
			}
		}
	})
}

// However many topics a program amends, what is gathered is bounded.
func TestGatheredIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, clock := recording(t)
		for range 2 {
			for i := range maxGathered + 50 {
				amends(t, c, Change{Who: "shop", Verb: "cancel", Topic: fmt.Sprint("t", i)}, 1, nil)
				clock.Advance(time.Millisecond)
			}
		}
		if n := len(c.gatherer.open); n > maxGathered+1 {
			t.Errorf("P10: %d are gathered apart", n)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		var changed int64
		for _, e := range c.audit.all(t, clock) {
			changed += e.Changed
		}
		if changed != 2*(maxGathered+50) {
			t.Errorf("the entries tell of %d changed messages, want %d", changed, 2*(maxGathered+50))
		}
	})
}
