package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
)

// entries are those of the audit log, the newest first.
func (r *rig) entries() []entry {
	r.t.Helper()
	now, err := r.store.Now(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	all, _, err := r.console.audit.before(r.t.Context(), now.Add(grain), now, 10_000)
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

// Every form that changes something leaves an entry that says who, what and how many, and the page shows it.
func TestEveryChangeIsInTheAuditLog(t *testing.T) {
	for _, rt := range routes() {
		if rt.method != "POST" || rt.action == 0 {
			continue
		}
		r := newRig(t, &Options{Authenticate: who(access.Everything())})
		r.push("order.close", "order-001", time.Hour)
		r.kill("order.close", "declined", "dead-1")
		id := "order-001"
		if rt.path == pathMessage+"/delete" {
			id = "dead-1"
		}
		path := strings.NewReplacer("{topic}", "order.close", "{id}", id).Replace(rt.path)
		a := r.post(path, fields()[rt.path])
		if a.Code != 303 {
			t.Errorf("POST %s: %d %s", path, a.Code, a.text)
			continue
		}
		all := r.entries()
		if len(all) != 1 {
			t.Errorf("POST %s: %d entries", path, len(all))
			continue
		}
		e := all[0]
		if e.Who != "ann" || e.From != "127.0.0.1" || e.Verb == "" || e.Topic != "order.close" || e.Result != resultDone || e.Changed < 1 || e.Error != "" || !e.At.Equal(noon) {
			t.Errorf("POST %s: %+v", path, e)
		}
		page := r.page("/audit")
		for _, want := range []string{"ann", e.Verb, "order.close", e.ID} {
			if !strings.Contains(page, want) {
				t.Errorf("POST %s: the page does not show %q", path, want)
			}
		}
	}
}

// recorder is an audit log over a store in memory.
func recorder(t *testing.T, over func(*memstore.Store) punctual.Store) (*auditLog, *memstore.Store, *storekit.ManualClock) {
	t.Helper()
	clock := storekit.NewManualClock(noon)
	store := memstore.New(&memstore.Options{Clock: clock})
	t.Cleanup(func() { store.Close() })
	l := &auditLog{store: store, inspector: store, log: slog.New(slog.DiscardHandler)}
	if over != nil {
		l.store = over(store)
	}
	return l, store, clock
}

func (l *auditLog) all(t *testing.T, clock *storekit.ManualClock) []entry {
	t.Helper()
	all, _, err := l.before(t.Context(), clock.Now().Add(grain), clock.Now(), 10_000)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// The entry is there before the change is made, and says afterwards what became of it.
func TestAuditResults(t *testing.T) {
	for _, c := range []struct {
		n    int64
		err  error
		want result
	}{
		{3, nil, resultDone},
		{0, punctual.ErrNotFound, resultRefused},
		{2, errors.New("the connection broke"), resultUnknown},
		{2, punctual.ErrNotFound, resultUnknown},
		{0, punctual.ErrIndeterminate, resultUnknown},
		{0, errors.New("the connection broke"), resultUnknown},
		{0, context.DeadlineExceeded, resultRefused},
	} {
		l, _, clock := recorder(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		n, err := l.carryOut(ctx, entry{Who: "ann", Verb: "purge", Topic: "x"}, func(context.Context) (int64, error) {
			if all := l.all(t, clock); len(all) != 1 || all[0].Result != resultBegun || all[0].Who != "ann" {
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

// failing is a store whose pushes fail from the n-th on.
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

// A change that cannot be recorded is not made. One whose result cannot be recorded is made, and stays in the log as begun.
func TestChangeThatCannotBeRecorded(t *testing.T) {
	for from, made := range map[int]bool{1: false, 2: true} {
		l, _, clock := recorder(t, func(s *memstore.Store) punctual.Store { return &failing{Store: s, from: from} })
		called := false
		n, err := l.carryOut(t.Context(), entry{Verb: "requeue"}, func(context.Context) (int64, error) {
			called = true
			return 7, nil
		})
		if called != made || (err == nil) != made || made && n != 7 {
			t.Errorf("push %d fails: called %v, %d, %v", from, called, n, err)
		}
		if err != nil && (!punctual.Definite(err) || !errors.Is(err, punctual.ErrNoSpace)) {
			t.Errorf("push %d fails: %v", from, err)
		}
		if all := l.all(t, clock); made && (len(all) != 1 || all[0].Result != resultBegun) || !made && len(all) != 0 {
			t.Errorf("push %d fails: the log has %+v", from, all)
		}
	}
}

// On a full disk the log does not stand in the way of what makes room.
func TestPurgeOnAFullDisk(t *testing.T) {
	for _, verb := range []string{"purge", "delete topic", "cancel", "configure"} {
		l, _, _ := recorder(t, func(s *memstore.Store) punctual.Store { return &failing{Store: s, from: 1} })
		n, err := l.carryOut(t.Context(), entry{Verb: verb}, func(context.Context) (int64, error) { return 7, nil })
		if n != 7 || err != nil || l.store.(*failing).pushes != 2 {
			t.Errorf("%s: %d, %v, with %d attempts to record it; want it made", verb, n, err, l.store.(*failing).pushes)
		}
	}
}

// Entries are never delivered. They are kept for 90 days, and removed with the next change after that.
func TestAuditIsKept(t *testing.T) {
	l, store, clock := recorder(t, nil)
	record := func(verb string) {
		t.Helper()
		if _, err := l.carryOut(t.Context(), entry{Verb: verb}, func(context.Context) (int64, error) { return 1, nil }); err != nil {
			t.Fatal(err)
		}
	}
	record("first")
	clock.Advance(auditRetention - time.Hour)
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

// Pages of the log go back in time without a gap or a repetition, through bursts and through empty weeks. They take a
// bounded number of calls.
func TestAuditGoesBack(t *testing.T) {
	l, _, clock := recorder(t, nil)
	var want []string
	record := func() {
		id := fmt.Sprint("e", len(want))
		want = append(want, id)
		if err := l.write(t.Context(), []string{id}, []entry{{At: clock.Now(), ID: id}}); err != nil {
			t.Fatal(err)
		}
	}
	for range 30 {
		record()
		clock.Advance(17 * time.Minute)
	}
	clock.Advance(40 * 24 * time.Hour)
	for i := range 1500 { // more in a stretch than one look reads, and several in each instant
		record()
		if i%7 == 0 {
			clock.Advance(time.Millisecond)
		}
	}
	clock.Advance(20 * 24 * time.Hour)
	for range 3 {
		record()
	}
	now := clock.Now()
	var got []string
	pages := 0
	for to := now.Add(grain); !to.IsZero(); pages++ {
		entries, next, err := l.before(t.Context(), to, now, 200)
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

// What stands in an entry is shown as text, also what somebody else wrote into the topic.
func TestAuditPage(t *testing.T) {
	r := newRig(t, nil)
	if text := r.page("/audit"); !strings.Contains(text, "Nothing was changed") {
		t.Error("an empty log does not say so")
	}
	r.push(access.AuditTopic, "forged", auditRetention-time.Second, func(m *punctual.NewMessage) { m.Body = []byte("{<script>") })
	r.push(access.AuditTopic, "odd", auditRetention-time.Minute, func(m *punctual.NewMessage) {
		m.Body = []byte(`{"who":"<script>","verb":"\u202e","topic":"..","id":"a/b","result":"<b>"}`)
	})
	for range 60 {
		r.clock.Advance(time.Second)
		r.post("/topics/x/pause", url.Values{"what": {"push"}, "pause": {"true"}})
	}
	first := r.page("/audit")
	_, older, found := strings.Cut(first, `rel="next" href="`)
	if !found || strings.Count(first, `<td class="n">`) != auditRows {
		t.Fatalf("the first page has %d rows and links to older ones: %v", strings.Count(first, `<td class="n">`), found)
	}
	older, _, _ = strings.Cut(older, `"`)
	second := r.page(strings.ReplaceAll(older, "&amp;", "&"))
	if !strings.Contains(second, "cannot be read") || strings.Contains(second, "<script>\"") || strings.Contains(second, "{<script>") || strings.Contains(second, "\u202e") {
		t.Errorf("the second page: %s", second)
	}
	if a := r.get("/audit?before=yesterday"); a.Code != 400 {
		t.Errorf("a time that is none: %d", a.Code)
	}
}
