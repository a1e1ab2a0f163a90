package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The stored form of an entry never changes, because programs read entries of older programs for 90
// days.
func TestStoredEntry(t *testing.T) {
	l, store, _ := newLog(t, nil)
	ch := Change{Who: "ann", From: "10.0.0.1", Verb: "delete", Topic: "orders", ID: "a-1", Detail: "x"}
	if _, err := l.Record(t.Context(), ch, func(context.Context) (int64, error) { return 0, punctual.ErrNotFound }); !errors.Is(err, punctual.ErrNotFound) {
		t.Fatal(err)
	}
	page, err := store.List(t.Context(), punctual.ListQuery{Topic: access.AuditTopic, State: punctual.StateScheduled})
	if err != nil || len(page.Messages) != 1 {
		t.Fatalf("%d entries, %v", len(page.Messages), err)
	}
	m := page.Messages[0]
	const want = `{"at":"2026-11-22T12:00:00Z","who":"ann","from":"10.0.0.1","verb":"delete","topic":"orders","id":"a-1","detail":"x",` +
		`"result":"refused","changed":0,"error":"not found"}`
	if string(m.Body) != want || !m.Due.Equal(noon.Add(90*24*time.Hour)) {
		t.Errorf("due %v: %s\nwant %s", m.Due, m.Body, want)
	}
}

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// newLog returns an audit log over a store in memory, or over the store that over makes of it.
func newLog(t *testing.T, over func(*memstore.Store) punctual.Store) (*Log, *memstore.Store, *storekit.ManualClock) {
	t.Helper()
	clock := storekit.NewManualClock(noon)
	store := memstore.New(&memstore.Options{Clock: clock})
	var under punctual.Store = store
	if over != nil {
		under = over(store)
	}
	l := New(under, slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		l.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return l, store, clock
}

func (l *Log) all(t *testing.T, clock *storekit.ManualClock) []Entry {
	t.Helper()
	all, _, err := l.Before(t.Context(), clock.Now().Add(Grain), clock.Now(), 10_000)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// The entry exists before the change is made, and has the result afterwards.
func TestResults(t *testing.T) {
	for _, c := range []struct {
		n    int64
		err  error
		want Result
	}{
		{3, nil, Done},
		{0, punctual.ErrNotFound, Refused},
		{2, errors.New("the connection broke"), Unknown},
		{2, punctual.ErrNotFound, Unknown},
		{0, punctual.ErrIndeterminate, Unknown},
		{0, errors.New("the connection broke"), Unknown},
		{0, context.DeadlineExceeded, Refused},
	} {
		l, _, clock := newLog(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		n, err := l.Record(ctx, Change{Who: "ann", Verb: "purge", Topic: "x"}, func(context.Context) (int64, error) {
			if all := l.all(t, clock); len(all) != 1 || all[0].Result != Begun || all[0].Who != "ann" {
				t.Errorf("%v: while the change is made the log has %+v", c.err, all)
			}
			cancel() // the browser goes: the result is recorded all the same
			return c.n, c.err
		})
		if n != c.n || !errors.Is(err, c.err) {
			t.Errorf("%v: carried out %d, %v", c.err, n, err)
		}
		all := l.all(t, clock)
		if len(all) != 1 || all[0].Result != c.want || all[0].Changed != c.n || (c.err != nil) != (all[0].Error != "") {
			t.Errorf("%v: the log has %+v, want %s", c.err, all, c.want)
		}
	}
}

// failing is a store whose pushes fail from the one with the number from on, counted from 1.
type failing struct {
	*memstore.Store
	pushes, from int
}

func (f *failing) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	if f.pushes++; f.pushes >= f.from {
		return nil, fmt.Errorf("the disk is full: %w", punctual.ErrNoSpace)
	}
	return f.Store.Push(ctx, ms)
}

// A change that cannot be entered is not made. A change whose result cannot be entered is made and
// stays in the log as begun.
func TestChangeThatCannotBeRecorded(t *testing.T) {
	for from, made := range map[int]bool{1: false, 2: true} {
		l, _, clock := newLog(t, func(s *memstore.Store) punctual.Store { return &failing{Store: s, from: from} })
		called := false
		n, err := l.Record(t.Context(), Change{Verb: "requeue"}, func(context.Context) (int64, error) {
			called = true
			return 7, nil
		})
		if called != made || (err == nil) != made || made && n != 7 {
			t.Errorf("push %d fails: called %v, %d, %v", from, called, n, err)
		}
		if err != nil && (!punctual.Definite(err) || !errors.Is(err, punctual.ErrNoSpace)) {
			t.Errorf("push %d fails: %v", from, err)
		}
		if all := l.all(t, clock); made && (len(all) != 1 || all[0].Result != Begun) || !made && len(all) != 0 {
			t.Errorf("push %d fails: the log has %+v", from, all)
		}
	}
}

// On a full disk a change that makes room is made although it cannot be entered.
func TestPurgeOnAFullDisk(t *testing.T) {
	for _, verb := range []string{"purge", "delete topic", "delete", "cancel", "amend", "configure", "bulk delete", "bulk cancel", "delete schedule"} {
		l, _, _ := newLog(t, func(s *memstore.Store) punctual.Store { return &failing{Store: s, from: 1} })
		n, err := l.Record(t.Context(), Change{Verb: verb}, func(context.Context) (int64, error) { return 7, nil })
		if n != 7 || err != nil || l.store.(*failing).pushes != 2 {
			t.Errorf("%s: %d, %v, with %d attempts to record it; want it made", verb, n, err, l.store.(*failing).pushes)
		}
	}
}

// Entries are never delivered. They are kept for 90 days, and removed with the next change after
// that.
func TestRetention(t *testing.T) {
	l, store, clock := newLog(t, nil)
	record := func(verb string) {
		t.Helper()
		if _, err := l.Record(t.Context(), Change{Verb: verb}, func(context.Context) (int64, error) { return 1, nil }); err != nil {
			t.Fatal(err)
		}
	}
	record("first")
	clock.Advance(Retention - time.Hour)
	record("second")
	if all := l.all(t, clock); len(all) != 2 || all[0].Verb != "second" || all[1].Verb != "first" {
		t.Errorf("within 90 days the log has %+v", all)
	}
	clock.Advance(2 * time.Hour)
	ds, err := store.Claim(t.Context(), punctual.Claim{Topics: []string{access.AuditTopic}, Max: 10})
	if err != nil || len(ds) != 0 {
		t.Errorf("an entry was delivered: %+v, %v", ds, err)
	}
	record("third")
	stats, err := store.Stats(t.Context(), access.AuditTopic)
	if err != nil || stats.Live() != 2 || stats.Ready != 0 {
		t.Errorf("behind 90 days the topic has %+v, %v; want two entries", stats, err)
	}
}

// Entries past their retention are removed also while the store's clock is where it was before the
// log last removed some, because it has stepped back since.
func TestRetentionAfterAStep(t *testing.T) {
	l, store, clock := newLog(t, nil)
	record := func() {
		t.Helper()
		if _, err := l.Record(t.Context(), Change{Verb: "v"}, func(context.Context) (int64, error) { return 1, nil }); err != nil {
			t.Fatal(err)
		}
	}
	const ahead = 1000 * 24 * time.Hour
	clock.Advance(ahead)
	record()
	clock.Advance(-ahead)
	if c, err := store.StepClock(t.Context()); err != nil || c.Steps != 1 {
		t.Fatal(c, err)
	}
	record()
	clock.Advance(Retention + time.Hour)
	record()
	stats, err := store.Stats(t.Context(), access.AuditTopic)
	if err != nil || stats.Live() != 2 {
		t.Errorf("behind 90 days the topic has %+v, %v; want the entry of the time ahead and the last one", stats, err)
	}
}

// Pages of the log go back in time without a gap or a repetition, through bursts and through empty
// weeks. They take a bounded number of calls.
func TestBefore(t *testing.T) {
	l, _, clock := newLog(t, nil)
	var want []string
	record := func() {
		id := fmt.Sprint("e", len(want))
		want = append(want, id)
		if err := l.write(t.Context(), []string{id}, []Entry{{At: clock.Now(), ID: id}}); err != nil {
			t.Fatal(err)
		}
	}
	for range 30 {
		record()
		clock.Advance(17 * time.Minute)
	}
	clock.Advance(40 * 24 * time.Hour)
	for i := range 1500 { // more in a second than one call of the store returns, and several in each instant
		record()
		if i%7 == 0 {
			clock.Advance(time.Millisecond)
		}
	}
	clock.Advance(20 * 24 * time.Hour)
	for range 2*maxWindow + 100 { // more in one instant than one call of the store returns
		record()
	}
	clock.Advance(time.Minute)
	for range 3 {
		record()
	}
	now := clock.Now()
	var got []string
	pages := 0
	for to := now.Add(Grain); !to.IsZero(); pages++ {
		entries, next, err := l.Before(t.Context(), to, now, 200)
		if err != nil || pages > 200 || !next.IsZero() && !next.Before(to) {
			t.Fatalf("page %d: %v, next %v behind %v", pages, err, next, to)
		}
		for _, e := range entries {
			got = append(got, e.ID)
		}
		to = next
	}
	if len(got) != len(want) {
		t.Fatalf("%d entries in %d pages, want %d", len(got), pages, len(want))
	}
	seen := make(map[string]bool)
	for _, id := range got {
		seen[id] = true
	}
	if len(seen) != len(want) || got[len(got)-1] != "e0" {
		t.Errorf("%d different entries, the oldest %s", len(seen), got[len(got)-1])
	}
}

// Canceller finds the cancel that ended a message, also one that was asked for early in a long
// lease, and no push of the same message. It finds none where the message ended in another way,
// nobody has entered the cancel, or the log may not be read.
func TestCanceller(t *testing.T) {
	l, store, clock := newLog(t, nil)
	record := func(who, verb, topic, id string, failed error) {
		t.Helper()
		_, err := l.Record(t.Context(), Change{Who: who, Verb: verb, Topic: topic, ID: id}, func(context.Context) (int64, error) {
			if failed != nil {
				return 0, failed
			}
			return 1, nil
		})
		if !errors.Is(err, failed) {
			t.Fatal(err)
		}
		clock.Advance(time.Second)
	}
	record("ann", "push", "orders", "a", nil)
	record("bob", "cancel", "orders", "a", nil)
	record("cid", "cancel", "other", "a", nil)
	record("dan", "push", "orders", "a", nil)
	record("eva", "cancel", "orders", "a", punctual.ErrNotFound)
	ended := punctual.Finished{Topic: "orders", ID: "a", Outcome: punctual.OutcomeCancelled, At: noon.Add(time.Second)}
	leased, acked, another := ended, ended, ended
	leased.Delivered, leased.At = noon, noon.Add(2*time.Hour)
	acked.Outcome, another.ID = punctual.OutcomeAcked, "b"
	for what, c := range map[string]struct {
		f    punctual.Finished
		want string
	}{"waiting": {ended, "bob"}, "leased for long": {leased, "bob"}, "acked": {acked, ""}, "another message": {another, ""}} {
		e, err := Canceller(t.Context(), store, &c.f)
		if err != nil || (e != nil) != (c.want != "") || e != nil && e.Who != c.want {
			t.Errorf("%s: %+v, %v; want %q", what, e, err, c.want)
		}
	}
	if e, err := Canceller(t.Context(), unreadable{store}, &ended); e != nil || err != nil {
		t.Errorf("the log may not be read: %+v, %v", e, err)
	}
}

type unreadable struct{ *memstore.Store }

func (unreadable) List(context.Context, punctual.ListQuery) (punctual.Page, error) {
	return punctual.Page{}, fmt.Errorf("the token may not inspect: %w", punctual.ErrForbidden)
}
