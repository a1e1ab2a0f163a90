package bulk_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/bulk"
	seedrig "github.com/punctualmq/punctual/internal/rigs/seed"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/memstore"
)

// bulkQueue returns a queue on a store in memory that goes by the program's clock, which in a
// synctest bubble is that of the bubble.
func bulkQueue(t *testing.T) *punctual.Queue {
	s := memstore.New(nil)
	t.Cleanup(func() { _ = s.Close() })
	return punctual.NewQueue(s, nil)
}

func pushAll(t *testing.T, q *punctual.Queue, ms ...punctual.NewMessage) {
	t.Helper()
	for i := range ms {
		if ms[i].Topic == "" {
			ms[i].Topic = "visits"
		}
	}
	if _, err := q.PushMany(t.Context(), ms); err != nil {
		t.Fatal(err)
	}
}

// dues returns the due times of the messages of the topic visits by ID, as the time since begin.
func dues(t *testing.T, q *punctual.Queue, begin time.Time) map[string]time.Duration {
	t.Helper()
	out := make(map[string]time.Duration)
	for _, state := range []punctual.State{punctual.StateScheduled, punctual.StateReady, punctual.StateLeased, punctual.StateDead} {
		for m, err := range q.List(t.Context(), punctual.ListQuery{Topic: "visits", State: state}) {
			if err != nil {
				t.Fatal(err)
			}
			out[m.ID] = m.Due.Sub(begin)
		}
	}
	return out
}

func change(t *testing.T, q *punctual.Queue, b bulk.Job) bulk.Report {
	t.Helper()
	b.Select.Topic = "visits"
	r, err := bulk.Run(t.Context(), q, b)
	if err != nil {
		t.Fatalf("bulk %s: %v", b.Do, err)
	}
	return r
}

// More messages than a page has, at one instant and spread out, are each shifted once, later and
// earlier.
func TestBulkShift(t *testing.T) {
	for _, by := range []time.Duration{time.Millisecond, time.Minute, 100 * time.Hour, -time.Millisecond, -time.Minute, -100 * time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := bulkQueue(t)
				begin := time.Now()
				var ms []punctual.NewMessage
				want := make(map[string]time.Duration)
				for i := range 2500 {
					delay := time.Hour
					if i%2 == 0 {
						delay += time.Duration(i) * time.Second
					}
					id := fmt.Sprint("v-", i)
					ms = append(ms, punctual.NewMessage{ID: id, Delay: delay})
					want[id] = delay + by
				}
				pushAll(t, q, ms...)
				r := change(t, q, bulk.Job{Do: bulk.Shift, By: by})
				if r.Matched != 2500 || r.Done != 2500 {
					t.Errorf("%+v, want 2500 matched and done", r)
				}
				if got := dues(t, q, begin); !maps.Equal(got, want) {
					t.Errorf("due times differ, for example v-0 %v, want %v", got["v-0"], want["v-0"])
				}
			})
		})
	}
}

// A shift that is stopped at any of the calls of Amend that move messages, and called again, moves
// no message twice and misses none. The same shift later is a new one. A shift with an ID is made
// once, and another shift with that ID is refused.
func TestSlowBulkShiftContinues(t *testing.T) {
	for by, calls := range map[time.Duration]int{time.Hour: 3, 90 * time.Second: 7, -90 * time.Second: 7} {
		for stop := 1; stop <= calls; stop++ {
			t.Run(fmt.Sprint(by, " stopped at call ", stop), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := &stoppingStore{Store: memstore.New(nil)}
					defer s.Close()
					q := punctual.NewQueue(s, nil)
					begin := time.Now()
					var ms []punctual.NewMessage
					want := make(map[string]time.Duration)
					for i := range 3000 {
						id := fmt.Sprint("v-", i)
						delay := time.Hour + time.Duration(i/50)*10*time.Second
						ms = append(ms, punctual.NewMessage{ID: id, Delay: delay})
						want[id] = delay + by
					}
					pushAll(t, q, ms...)
					b := bulk.Job{Do: bulk.Shift, By: by, Select: bulk.Selection{Topic: "visits"}}
					s.left = stop
					r, err := bulk.Run(t.Context(), q, b)
					if !errors.Is(err, errStopped) {
						t.Fatalf("the bulk ended with %v after %+v: it was to be stopped", err, r)
					}
					s.left = 1 << 30
					time.Sleep(time.Minute)
					if r, err = bulk.Run(t.Context(), q, b); err != nil || !r.Continued.Equal(begin) {
						t.Fatalf("continued: %+v, %v; want it to know that it began at %v", r, err, begin)
					}
					if got := dues(t, q, begin); !maps.Equal(got, want) {
						t.Errorf("due times differ, for example v-0 %v, want %v, v-2999 %v, want %v", got["v-0"], want["v-0"], got["v-2999"], want["v-2999"])
					}
					if r, err = bulk.Run(t.Context(), q, b); err != nil || !r.Continued.IsZero() || r.Done != 3000 {
						t.Errorf("the same shift once more: %+v, %v; want a new one", r, err)
					}
					for i := range 2 {
						b.ID = "night"
						if r, err = bulk.Run(t.Context(), q, b); err != nil || r.Continued.IsZero() != (i == 0) || r.Done != int64(3000*(1-i)) {
							t.Errorf("a shift with an ID, call %d: %+v, %v; want it to be made once", i+1, r, err)
						}
					}
					b.By *= 2
					if _, err = bulk.Run(t.Context(), q, b); !errors.Is(err, punctual.ErrInvalid) {
						t.Errorf("another shift with the same ID: %v, want ErrInvalid", err)
					}
				})
			})
		}
	}
}

var errStopped = errors.New("stopped")

// stoppingStore carries out each Amend. In place of the answer to the left-th one it returns
// errStopped, as if the process had been killed before the answer came.
type stoppingStore struct {
	*memstore.Store
	left int
}

func (s *stoppingStore) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	out, err := s.Store.Amend(ctx, as)
	if s.left--; s.left == 0 {
		return nil, errStopped
	}
	return out, err
}

func TestBulkSelects(t *testing.T) {
	autumn := map[string]string{"campaign": "autumn"}
	for _, c := range []struct {
		name string
		sel  bulk.Selection
		want []string
	}{
		{"all that wait", bulk.Selection{}, []string{"a-1", "a-2", "b-1", "r-1"}},
		{"scheduled", bulk.Selection{State: punctual.StateScheduled}, []string{"a-1", "a-2", "b-1"}},
		{"ready", bulk.Selection{State: punctual.StateReady}, []string{"r-1"}},
		{"key", bulk.Selection{Key: "c7"}, []string{"b-1"}},
		{"prefix", bulk.Selection{IDPrefix: "a-"}, []string{"a-1", "a-2"}},
		{"header", bulk.Selection{Headers: autumn}, []string{"a-2", "b-1"}},
		{"header that few have", bulk.Selection{Headers: map[string]string{"campaign": "autumn", "city": "Bonn"}}, []string{"b-1"}},
		{"header with another value", bulk.Selection{Headers: map[string]string{"campaign": ""}}, nil},
		{"time", bulk.Selection{From: time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC), To: time.Date(2000, 1, 1, 2, 0, 0, 0, time.UTC)}, []string{"a-1"}},
		{"prefix and header", bulk.Selection{IDPrefix: "a-", Headers: autumn}, []string{"a-2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // the clock of a bubble begins at 2000-01-01 00:00 UTC
				q := bulkQueue(t)
				if _, err := q.Configure(t.Context(), "visits", func(s *punctual.Settings) { s.Keyed = true }); err != nil {
					t.Fatal(err)
				}
				pushAll(t, q,
					punctual.NewMessage{ID: "a-1", Delay: time.Hour},
					punctual.NewMessage{ID: "a-2", Delay: 2 * time.Hour, Headers: autumn},
					punctual.NewMessage{ID: "b-1", Key: "c7", Delay: 3 * time.Hour, Headers: map[string]string{"campaign": "autumn", "city": "Bonn", "x": "y"}},
					punctual.NewMessage{ID: "r-1"},
				)
				before := dues(t, q, time.Now())
				dry := change(t, q, bulk.Job{Do: bulk.Cancel, Select: c.sel, DryRun: true})
				if got := dues(t, q, time.Now()); !maps.Equal(got, before) || dry.Done != 0 || dry.Matched != int64(len(c.want)) {
					t.Errorf("a dry run left %v of %v, and reports %+v; want %d matched", got, before, dry, len(c.want))
				}
				r := change(t, q, bulk.Job{Do: bulk.Cancel, Select: c.sel})
				var gone, first []string
				left := dues(t, q, time.Now())
				for id := range before {
					if _, ok := left[id]; !ok {
						gone = append(gone, id)
					}
				}
				for _, m := range r.First {
					first = append(first, m.ID)
				}
				slices.Sort(gone)
				slices.Sort(first)
				if !slices.Equal(gone, c.want) || !slices.Equal(first, c.want) || r.Done != int64(len(c.want)) {
					t.Errorf("cancelled %v, reported %+v, want %v", gone, r, c.want)
				}
			})
		})
	}
}

// Dead messages are selected by the text of their latest failure, by the reason of their death, and
// by their state alone.
func TestBulkRequeue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := bulkQueue(t)
		pushAll(t, q, punctual.NewMessage{ID: "a"}, punctual.NewMessage{ID: "b"}, punctual.NewMessage{ID: "c", ExpireAfter: time.Millisecond})
		time.Sleep(time.Second)
		s := q.Store()
		ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"visits"}, Max: 3})
		if err != nil || len(ds) != 2 {
			t.Fatalf("claimed %v, %v; want a and b, because c has expired", ds, err)
		}
		for i, text := range []string{"HTTP 503", "no such patient"} {
			x := punctual.Settlement{Topic: "visits", ID: ds[i].ID, Token: ds[i].Token, Verb: punctual.SettleDiscard, Error: text}
			if _, err := s.Settle(t.Context(), []punctual.Settlement{x}); err != nil {
				t.Fatal(err)
			}
		}
		if r := change(t, q, bulk.Job{Do: bulk.Requeue, Select: bulk.Selection{Error: "503"}, When: punctual.In(time.Hour)}); r.Done != 1 || r.Looked != 3 || r.First[0].ID != "a" {
			t.Errorf("by error: %+v, want a alone of 3", r)
		}
		if r := change(t, q, bulk.Job{Do: bulk.Requeue, Select: bulk.Selection{Reason: punctual.ReasonExpired}}); r.Done != 1 || r.First[0].ID != "c" {
			t.Errorf("by reason: %+v, want c alone", r)
		}
		if r := change(t, q, bulk.Job{Do: bulk.Delete, Select: bulk.Selection{State: punctual.StateDead}}); r.Done != 1 || r.First[0].ID != "b" {
			t.Errorf("delete: %+v, want b alone", r)
		}
	})
}

// A requeue leaves alone what was requeued and has died again since it began, also where the
// Selection ends in the future.
func TestBulkRequeueEnds(t *testing.T) {
	for _, end := range []time.Duration{0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			s := &dyingStore{Store: memstore.New(nil)}
			defer s.Close()
			q := punctual.NewQueue(s, nil)
			const n = 1001 // more than a page of the list
			for i := range n {
				pushAll(t, q, punctual.NewMessage{ID: fmt.Sprint(i), MaxAttempts: 1})
			}
			time.Sleep(time.Second)
			s.die(t.Context(), n)
			time.Sleep(time.Second)
			b := bulk.Job{Do: bulk.Requeue, Select: bulk.Selection{Topic: "visits"}}
			if end > 0 {
				b.Select.To = time.Now().Add(end)
			}
			r, err := bulk.Run(t.Context(), q, b)
			if err != nil || s.again == 0 {
				t.Fatalf("%v; %d messages died again, so this test shows nothing", err, s.again)
			}
			if r.Done != n {
				t.Errorf("with an end in %v: %+v; want each of %d messages requeued once, and none of the %d that died again", end, r, n, s.again)
			}
		})
	}
}

// dyingStore has what it requeues die again a second later.
type dyingStore struct {
	*memstore.Store
	again int
}

// die claims up to n messages and discards them.
func (s *dyingStore) die(ctx context.Context, n int) (died int, err error) {
	for died < n {
		ds, err := s.Store.Claim(ctx, punctual.Claim{Topics: []string{"visits"}, Max: 1000})
		if err != nil || len(ds) == 0 {
			return died, err
		}
		var ss []punctual.Settlement
		for _, d := range ds {
			ss = append(ss, punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleDiscard, Error: "again"})
		}
		if _, err := s.Store.Settle(ctx, ss); err != nil {
			return died, err
		}
		died += len(ds)
	}
	return died, nil
}

func (s *dyingStore) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	out, err := s.Store.Amend(ctx, as)
	if err != nil || s.again > 0 { // once is enough, and without an end it would go on for ever
		return out, err
	}
	time.Sleep(time.Second)
	s.again, err = s.die(ctx, len(as))
	return out, err
}

// All messages of a reschedule get one due time, and none is counted twice although the list meets
// some at their new place.
func TestBulkReschedule(t *testing.T) {
	for _, to := range []time.Duration{-time.Hour, 0, 90 * time.Minute, 100 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			q := bulkQueue(t)
			begin := time.Now()
			var ms []punctual.NewMessage
			for i := range 1500 {
				ms = append(ms, punctual.NewMessage{ID: fmt.Sprint(i), Delay: time.Hour + time.Duration(i)*time.Second})
			}
			pushAll(t, q, ms...)
			r := change(t, q, bulk.Job{Do: bulk.Reschedule, When: punctual.At(begin.Add(to))})
			if r.Done < 1499 || r.Done > 1500 { // one may be due there already
				t.Errorf("to %v: %+v, want 1500 done", to, r)
			}
			for id, due := range dues(t, q, begin) {
				if due != to {
					t.Fatalf("%s is due at %v, want %v", id, due, to)
				}
			}
		})
	}
}

// Messages that others change while a bulk runs stay as the others have left them. The report
// counts a message that was moved as Changed, one that was cancelled as Gone, and one that the
// store refuses to move as Failed.
func TestBulkBesideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &meddlingStore{Store: memstore.New(nil)}
		defer s.Close()
		q := punctual.NewQueue(s, nil)
		begin := time.Now()
		for _, id := range []string{"kept", "moved", "cancelled", "far"} {
			due := begin.Add(time.Hour)
			if id == "far" {
				due = limits.MaxDue.Add(-time.Second)
			}
			pushAll(t, q, punctual.NewMessage{ID: id, Due: due})
		}
		pushAll(t, q, punctual.NewMessage{ID: "leased"})
		s.meddle = func() {
			if _, err := s.Store.Amend(t.Context(), []punctual.Amendment{
				{Change: punctual.ChangeReschedule, Topic: "visits", ID: "moved", Delay: 5 * time.Hour},
				{Change: punctual.ChangeCancel, Topic: "visits", ID: "cancelled"},
			}); err != nil {
				t.Error(err)
			}
			if ds, err := s.Store.Claim(t.Context(), punctual.Claim{Topics: []string{"visits"}, Max: 9}); err != nil || len(ds) != 1 {
				t.Errorf("claimed %v, %v; want the one that is ready", ds, err)
			}
			if _, err := s.Store.Push(t.Context(), []punctual.NewMessage{{Topic: "visits", ID: "late", Delay: time.Minute}}); err != nil {
				t.Error(err)
			}
		}
		r, err := bulk.Run(t.Context(), q, bulk.Job{Do: bulk.Shift, By: time.Minute, Select: bulk.Selection{Topic: "visits"}})
		if err != nil || r.Done != 1 || r.Changed != 1 || r.Gone != 1 || r.Failed != 1 || !errors.Is(r.Failure, punctual.ErrInvalid) {
			t.Errorf("%+v, %v; want 1 done, 1 changed, 1 gone, 1 failed", r, err)
		}
		got := dues(t, q, begin)
		if got["kept"] != time.Hour+time.Minute || got["moved"] != 5*time.Hour || got["leased"] != 0 {
			t.Errorf("due times %v", got)
		}
	})
}

// meddlingStore calls meddle once, before the first Amend is carried out.
type meddlingStore struct {
	*memstore.Store
	meddle func()
}

func (s *meddlingStore) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	if f := s.meddle; f != nil {
		s.meddle = nil
		f()
	}
	return s.Store.Amend(ctx, as)
}

func TestBulkRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := bulkQueue(t)
		var ms []punctual.NewMessage
		for i := range 50 {
			ms = append(ms, punctual.NewMessage{ID: fmt.Sprint(i), Delay: time.Hour})
		}
		pushAll(t, q, ms...)
		begin := time.Now()
		r := change(t, q, bulk.Job{Do: bulk.Cancel, Rate: 10})
		if took := time.Since(begin); r.Done != 50 || took != 4*time.Second {
			t.Errorf("%d cancelled in %v; want 50, ten at once and then ten each second", r.Done, took)
		}
		pushAll(t, q, ms...)
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		r, err := bulk.Run(ctx, q, bulk.Job{Do: bulk.Cancel, Rate: 10, Select: bulk.Selection{Topic: "visits"}})
		if !errors.Is(err, context.DeadlineExceeded) || r.Done != 20 {
			t.Errorf("ended early: %+v, %v; want 20 done", r, err)
		}
	})
}

// A requeue that is spread makes as many messages due in each part of the time, of those alone that
// Only selects.
func TestBulkRequeueIsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := bulkQueue(t)
		ms := make([]punctual.NewMessage, 1000)
		for i := range ms {
			ms[i].ID = fmt.Sprint(i)
		}
		pushAll(t, q, ms...)
		ds, err := q.Store().Claim(t.Context(), punctual.Claim{Topics: []string{"visits"}, Max: len(ms)})
		if err != nil || len(ds) != len(ms) {
			t.Fatal(len(ds), err)
		}
		for _, d := range ds {
			if _, err := q.Store().Settle(t.Context(), []punctual.Settlement{{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleDiscard}}); err != nil {
				t.Fatal(err)
			}
		}
		begin := time.Now()
		even := func(m *punctual.Info) bool { return (m.ID[len(m.ID)-1]-'0')%2 == 0 }
		r := change(t, q, bulk.Job{Do: bulk.Requeue, When: punctual.In(time.Hour), Spread: 10 * time.Minute, Select: bulk.Selection{Only: even}})
		if r.Done != 500 || r.Looked != 1000 {
			t.Fatalf("%+v, want 500 of 1000", r)
		}
		perMinute := make([]int, 10)
		for id, due := range dues(t, q, begin) {
			if even(&punctual.Info{Message: punctual.Message{ID: id}}) {
				perMinute[(due-time.Hour)/time.Minute]++
			}
		}
		if slices.Min(perMinute) < 48 || slices.Max(perMinute) > 52 {
			t.Errorf("in each of ten minutes %v are due, want 50", perMinute)
		}
	})
}

func TestBulkRefuses(t *testing.T) {
	q := bulkQueue(t)
	sel := bulk.Selection{Topic: "visits"}
	dead, leased := sel, sel
	dead.State, leased.State = punctual.StateDead, punctual.StateLeased
	for _, c := range []struct {
		name string
		b    bulk.Job
		text string
	}{
		{"nothing to do", bulk.Job{Select: sel}, "unknown bulk change"},
		{"no topic", bulk.Job{Do: bulk.Cancel}, "topic is empty"},
		{"delete without a state", bulk.Job{Do: bulk.Delete, Select: sel}, "name scheduled"},
		{"cancel of the dead", bulk.Job{Do: bulk.Cancel, Select: dead}, "not possible"},
		{"shift of the leased", bulk.Job{Do: bulk.Shift, By: 1e9, Select: leased}, "not possible"},
		{"shift by nothing", bulk.Job{Do: bulk.Shift, Select: sel}, "whole milliseconds"},
		{"shift by a fraction", bulk.Job{Do: bulk.Shift, By: 1500 * time.Microsecond, Select: sel}, "whole milliseconds"},
		{"cancel by an hour", bulk.Job{Do: bulk.Cancel, By: time.Hour, Select: sel}, "only a shift"},
		{"cancel at a time", bulk.Job{Do: bulk.Cancel, When: punctual.In(1), Select: sel}, "due time"},
		{"requeue in the past", bulk.Job{Do: bulk.Requeue, When: punctual.In(-1), Select: sel}, "negative"},
		{"reason of the living", bulk.Job{Do: bulk.Cancel, Select: bulk.Selection{Topic: "visits", Reason: punctual.ReasonExpired}}, "only dead"},
		{"cancel with an ID", bulk.Job{Do: bulk.Cancel, ID: "a", Select: sel}, "only a shift"},
		{"reschedule that is spread", bulk.Job{Do: bulk.Reschedule, Spread: time.Hour, Select: sel}, "only a requeue is spread"},
		{"negative spread", bulk.Job{Do: bulk.Requeue, Spread: -1, Select: sel}, "only a requeue is spread"},
		{"shift with Only", bulk.Job{Do: bulk.Shift, By: time.Hour, Select: bulk.Selection{Topic: "visits", Only: func(*punctual.Info) bool { return true }}}, "with Only"},
		{"negative rate", bulk.Job{Do: bulk.Cancel, Rate: -1, Select: sel}, "changes a second"},
	} {
		if _, err := bulk.Run(t.Context(), q, c.b); !errors.Is(err, punctual.ErrInvalid) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v; want ErrInvalid with %q", c.name, err, c.text)
		}
	}
}

// Random shifts of random messages are stopped at random calls and continued. In the end each
// message has been moved once.
func TestBulkRandomShifts(t *testing.T) {
	r := rand.New(rand.NewPCG(seedrig.Of(t), 0))
	for range 15 {
		synctest.Test(t, func(t *testing.T) {
			s := &stoppingStore{Store: memstore.New(nil)}
			defer s.Close()
			q := punctual.NewQueue(s, nil)
			begin := time.Now()
			want := make(map[string]time.Duration)
			var ms []punctual.NewMessage
			for i := range r.IntN(3000) {
				delay := time.Hour + time.Duration(r.IntN(1+r.IntN(10_000)))*time.Second
				ms = append(ms, punctual.NewMessage{ID: fmt.Sprint(i), Delay: delay})
				want[fmt.Sprint(i)] = delay
			}
			pushAll(t, q, ms...)
			by := time.Duration(1+r.IntN(3_000_000)) * time.Millisecond
			if r.IntN(2) == 0 {
				by = -by
			}
			// The shift has an ID, so that it may also be stopped at the last of its calls of
			// Amend.
			b := bulk.Job{Do: bulk.Shift, By: by, ID: "a", Select: bulk.Selection{Topic: "visits"}}
			for {
				s.left = 1 + r.IntN(6)
				if _, err := bulk.Run(t.Context(), q, b); err == nil {
					break
				} else if !errors.Is(err, errStopped) {
					t.Fatal(err)
				}
			}
			got := dues(t, q, begin)
			for id, due := range want {
				if got[id] != due+by {
					t.Fatalf("shift by %v: %s is due at %v, want %v", by, id, got[id], due+by)
				}
			}
		})
	}
}

// Of two calls with the same shift at the same time one stops, and no message is moved twice.
func TestBulkShiftTwiceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &meddlingStore{Store: memstore.New(nil)}
		defer s.Close()
		q := punctual.NewQueue(s, nil)
		begin := time.Now()
		var ms []punctual.NewMessage
		want := make(map[string]time.Duration)
		for i := range 100 {
			id := fmt.Sprint("v-", i)
			ms = append(ms, punctual.NewMessage{ID: id, Delay: time.Duration(i+1) * time.Hour})
			want[id] = time.Duration(i+1)*time.Hour + 90*time.Minute
		}
		pushAll(t, q, ms...)
		b := bulk.Job{Do: bulk.Shift, By: 90 * time.Minute, Select: bulk.Selection{Topic: "visits"}}
		var second bulk.Report
		var secondErr error
		s.meddle = func() { second, secondErr = bulk.Run(t.Context(), q, b) }
		first, err := bulk.Run(t.Context(), q, b)
		if !errors.Is(err, punctual.ErrChanged) || secondErr != nil || !second.Continued.Equal(begin) {
			t.Errorf("the first call ended with %v after %+v, and the second, which began meanwhile, with %v after %+v; want the first to stop and the second to continue", err, first, secondErr, second)
		}
		if got := dues(t, q, begin); !maps.Equal(got, want) {
			t.Errorf("due times %v", got)
		}
	})
}

// A shift with an ID that met no message is made all the same: a repetition does not move a message
// that was pushed since.
func TestBulkShiftOfNothingIsMadeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := bulkQueue(t)
		begin := time.Now()
		b := bulk.Job{Do: bulk.Shift, By: time.Hour, ID: "night"}
		if r := change(t, q, b); r.Matched != 0 || !r.Continued.IsZero() {
			t.Fatalf("%+v; want a new shift of no message", r)
		}
		time.Sleep(time.Minute)
		pushAll(t, q, punctual.NewMessage{ID: "a", Delay: time.Hour})
		if r := change(t, q, b); r.Matched != 0 || !r.Continued.Equal(begin) {
			t.Errorf("the same shift again: %+v; want it to be complete since %v", r, begin)
		}
		if got := dues(t, q, begin)["a"]; got != time.Hour+time.Minute {
			t.Errorf("a is due %v after the begin, want %v", got, time.Hour+time.Minute)
		}
	})
}

// halfStore carries out each Amend, and in place of the answer for b says that nobody knows it.
type halfStore struct {
	*memstore.Store
}

func (s *halfStore) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	out, err := s.Store.Amend(ctx, as)
	for i := range out {
		if as[i].ID == "b" {
			out[i].Err = fmt.Errorf("b: %w", punctual.ErrIndeterminate)
		}
	}
	return out, err
}

// An answer that stops a bulk does not hide the answers behind it: they are counted, and the
// Observer is told of them.
func TestBulkCountsBehindTheAnswerThatStopsIt(t *testing.T) {
	s := &halfStore{memstore.New(nil)}
	defer s.Close()
	told := make(map[string]bool)
	q := punctual.NewQueue(s, &punctual.QueueConfig{Observer: &punctual.Observer{
		OnAmend: func(_ context.Context, a punctual.Amendment, _ punctual.Amended, _ time.Duration) { told[a.ID] = true },
	}})
	pushAll(t, q, punctual.NewMessage{ID: "a", Delay: time.Hour}, punctual.NewMessage{ID: "b", Delay: 2 * time.Hour}, punctual.NewMessage{ID: "c", Delay: 3 * time.Hour})
	r, err := bulk.Run(t.Context(), q, bulk.Job{Do: bulk.Cancel, Select: bulk.Selection{Topic: "visits"}})
	if !errors.Is(err, punctual.ErrIndeterminate) || r.Done != 2 || len(told) != 3 {
		t.Errorf("%+v, %v, told of %v; want a and c done, b unknown, and all three told", r, err, told)
	}
}

// A place that is a day old is not continued: the shift begins anew. A place that cannot be read is
// an error that says what to do.
func TestBulkShiftAfterADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stoppingStore{Store: memstore.New(nil)}
		defer s.Close()
		q := punctual.NewQueue(s, nil)
		pushAll(t, q, punctual.NewMessage{ID: "a", Delay: 100 * time.Hour}, punctual.NewMessage{ID: "b", Delay: 200 * time.Hour})
		b := bulk.Job{Do: bulk.Shift, By: time.Hour, Select: bulk.Selection{Topic: "visits"}}
		stop := func() {
			s.left = 1
			if _, err := bulk.Run(t.Context(), q, b); !errors.Is(err, errStopped) {
				t.Fatalf("the bulk ended with %v: it was to be stopped", err)
			}
			s.left = 1 << 30
		}
		stop()
		time.Sleep(bulk.Memory)
		if r, err := bulk.Run(t.Context(), q, b); err != nil || !r.Continued.IsZero() || r.Done != 2 {
			t.Errorf("after a day: %+v, %v; want a new shift of both", r, err)
		}
		stop()
		places, err := s.List(t.Context(), punctual.ListQuery{Topic: "visits@bulk", State: punctual.StateScheduled})
		if err != nil || len(places.Messages) != 1 {
			t.Fatalf("places %+v, %v; want one", places, err)
		}
		pushAll(t, q, punctual.NewMessage{Topic: "visits@bulk", ID: places.Messages[0].ID, Body: []byte("?"), Delay: time.Hour, IfExists: punctual.IfExistsReplace})
		if _, err := bulk.Run(t.Context(), q, b); !errors.Is(err, punctual.ErrCorrupt) || !strings.Contains(err.Error(), "cancel that message") {
			t.Errorf("a place that cannot be read: %v; want ErrCorrupt with a remedy", err)
		}
	})
}
