package diskstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/database"
	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/diskstore/internal/writer"
	"github.com/punctualmq/punctual/storekit"
)

// sweepRig is a store whose sweeps tell how many keys each step passed.
type sweepRig struct {
	*Store
	clock  *storekit.ManualClock
	steps  atomic.Int64
	passed atomic.Int64

	mu     sync.Mutex
	during func()         // guarded by mu: called once in the middle of the next step over keys of the kind of
	of     database.Order // guarded by mu
}

func newSweepRig(t *testing.T) *sweepRig {
	r := &sweepRig{clock: storekit.NewManualClock(testStart)}
	r.Store = openAt(t, t.TempDir(), &Options{Clock: r.clock, swept: r.step})
	return r
}

func (r *sweepRig) step(kind database.Order, keys int) {
	r.steps.Add(1)
	r.passed.Add(int64(keys))
	var during func()
	r.mu.Lock()
	if r.of == kind {
		during, r.during = r.during, nil
	}
	r.mu.Unlock()
	if during != nil {
		during()
	}
}

// meanwhile has f called in the middle of the next step of a sweep over keys of a kind. It sweeps
// first, because the first sweep after opening has steps that find nothing to remove.
func (r *sweepRig) meanwhile(t *testing.T, kind database.Order, f func()) {
	t.Helper()
	r.sweepUp(t)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.during, r.of = f, kind
}

func (r *sweepRig) configure(t *testing.T, retention, remember time.Duration) {
	configure(t, r.Store, "o", punctual.SettingsPatch{DeadRetention: &retention, DedupeWindow: &remember})
}

// makeDead makes n dead messages, whose IDs are the numbers from first on.
func (r *sweepRig) makeDead(t *testing.T, first, n int) {
	t.Helper()
	for n > 0 {
		ms := make([]punctual.NewMessage, min(n, 1000))
		for i := range ms {
			ms[i] = punctual.NewMessage{Topic: "o", ID: fmt.Sprint(first + i)}
		}
		push(t, r.Store, ms...)
		finish(t, r.Store, "o", len(ms), punctual.SettleDiscard)
		first, n = first+len(ms), n-len(ms)
	}
}

// keepFinished has finished messages leave a finished record, and no remembered ID.
func (r *sweepRig) keepFinished(t *testing.T) {
	configure(t, r.Store, "o", punctual.SettingsPatch{FinishedRetention: ptr(time.Hour), DedupeWindow: ptr(time.Duration(0))})
}

// remember makes n messages, whose IDs are the numbers from 0 on, and cancels them, so that
// something is kept of each.
func (r *sweepRig) remember(t *testing.T, n int) {
	t.Helper()
	for first := 0; first < n; first += 1000 {
		ms := make([]punctual.NewMessage, min(n-first, 1000))
		as := make([]punctual.Amendment, len(ms))
		for i := range ms {
			ms[i] = punctual.NewMessage{Topic: "o", ID: fmt.Sprint(first + i)}
			as[i] = punctual.Amendment{Change: punctual.ChangeCancel, Topic: "o", ID: ms[i].ID}
		}
		push(t, r.Store, ms...)
		r.amend(t, as...)
	}
}

func (r *sweepRig) amend(t *testing.T, as ...punctual.Amendment) {
	t.Helper()
	out, err := r.Amend(t.Context(), as)
	for _, o := range out {
		err = errors.Join(err, o.Err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// await waits until done is closed, which maintenance does in the middle of a step; see meanwhile.
func await(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("nobody sweeps what is past its time")
	}
}

// sweepUp sweeps until nothing is left to do, and waits for a transaction of maintenance that may
// be under way.
func (r *sweepRig) sweepUp(t *testing.T) {
	t.Helper()
	for more := true; more; {
		var err error
		if more, err = r.sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	holdWriteLock(t, r.Store)()
}

// keys counts the keys of a kind.
func (r *sweepRig) keys(t *testing.T, kind database.Order) int {
	t.Helper()
	snap := r.db.Snapshot()
	keys, err := snap.Keys()
	if err := errors.Join(err, snap.Close()); err != nil {
		t.Fatal(err)
	}
	return keys[kind]
}

// TestSlowSweepGoesOnWhereItEnded: each key is passed about once, however many steps a sweep has.
// If a step began with the first key, it would pass all that the steps before it have deleted.
func TestSlowSweepGoesOnWhereItEnded(t *testing.T) {
	const n = 10 * sweepLimit
	for _, c := range []struct {
		name string
		fill func(r *sweepRig)
		kind database.Order
	}{
		{"dead", func(r *sweepRig) { r.makeDead(t, 0, n) }, database.Dead},
		{"finished", func(r *sweepRig) { r.remember(t, n) }, database.Forgotten},
		{"finished records", func(r *sweepRig) { r.keepFinished(t); r.remember(t, n) }, database.FinishedRecordEnds},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newSweepRig(t)
			r.configure(t, time.Hour, time.Hour)
			c.fill(r)
			r.clock.Advance(time.Hour)
			r.sweepUp(t)
			if steps := r.steps.Load(); r.keys(t, c.kind) != 0 || steps < n/sweepLimit {
				t.Fatalf("after %d steps %d of %d keys are left", steps, r.keys(t, c.kind), n)
			}
			if passed := r.passed.Load(); passed > 2*n {
				t.Errorf("a sweep of %d keys passed %d", n, passed)
			}
			before := r.passed.Load()
			for range 10 {
				r.sweepUp(t)
			}
			if idle := r.passed.Load() - before; idle > 10 {
				t.Errorf("ten sweeps with nothing to do passed %d keys", idle)
			}
			mustBeSound(t, r.Store)
		})
	}
}

// TestSweepLetsOthersIn: in the middle of a step other calls are served, and none of them shows
// what the step has yet to remove.
func TestSweepLetsOthersIn(t *testing.T) {
	r := newSweepRig(t)
	r.configure(t, time.Hour, 0)
	r.makeDead(t, 0, 2*sweepLimit)
	push(t, r.Store, punctual.NewMessage{Topic: "other", ID: "a", Delay: 100 * time.Hour})
	served := make(chan struct{})
	r.meanwhile(t, database.Dead, func() {
		defer close(served)
		if n := r.keys(t, database.Dead); n < sweepLimit {
			t.Errorf("only %d dead messages are left in the middle of a step", n)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if _, err := r.Get(ctx, "other", "a"); err != nil {
			t.Errorf("P14: Get in another topic during a sweep: %v", err)
		}
		if _, err := r.Push(ctx, []punctual.NewMessage{{Topic: "o", ID: "0", Delay: time.Hour}}); err != nil {
			t.Errorf("P14: Push during a sweep: %v", err)
		}
		if i, err := r.Get(ctx, "o", "0"); err != nil || i.State != punctual.StateScheduled {
			t.Errorf("P7: an ID whose dead message is past its retention was pushed: %+v, %v", i, err)
		}
		for _, id := range []string{"1", fmt.Sprint(2*sweepLimit - 1)} {
			if i, err := r.Get(ctx, "o", id); !errors.Is(err, punctual.ErrNotFound) {
				t.Errorf("P13: dead message %s is seen after its retention: %+v, %v", id, i, err)
			}
		}
		page, err := r.List(ctx, punctual.ListQuery{Topic: "o", State: punctual.StateDead})
		if err != nil || len(page.Messages) != 0 {
			t.Errorf("P13: %d dead messages are listed after their retention, %v", len(page.Messages), err)
		}
		if st, err := r.Stats(ctx, "o"); err != nil || st.Dead != 0 || st.Scheduled != 1 {
			t.Errorf("P13: after the retention of all dead: %+v, %v", st, err)
		}
		if all, err := r.Topics(ctx); err != nil || len(all) != 2 || all[0].Dead != 0 {
			t.Errorf("P13: after the retention of all dead: %+v, %v", all, err)
		}
		if n, err := r.Purge(ctx, punctual.PurgeQuery{Topic: "o", State: punctual.StateDead}); err != nil || n != 0 {
			t.Errorf("P13: a purge found %d dead messages after their retention, %v", n, err)
		}
		if rep := mustBeSound(t, r.Store); rep.Dead != 0 {
			t.Errorf("P13: Check counts %d dead messages after their retention", rep.Dead)
		}
	})
	r.clock.Advance(2 * time.Hour)
	await(t, served)
	r.sweepUp(t)
	if n := r.keys(t, database.Dead); n != 0 {
		t.Errorf("%d dead messages are left", n)
	}
	mustBeSound(t, r.Store)
}

// TestSweepMeetsChanges changes messages, their retention or their topic in the middle of a step
// that is about to remove the messages.
func TestSweepMeetsChanges(t *testing.T) {
	again := punctual.NewMessage{Topic: "o", ID: "5", Delay: time.Hour, IfExists: punctual.IfExistsReplace}
	for _, c := range []struct {
		name       string
		change     func(r *sweepRig)
		live, dead int64
	}{
		{"pushed again", func(r *sweepRig) { push(t, r.Store, again) }, 1, 0},
		{"requeued", func(r *sweepRig) {
			out, err := r.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeRequeue, Topic: "o", ID: "5"}})
			if err != nil || !errors.Is(out[0].Err, punctual.ErrNotFound) {
				t.Errorf("requeue of a message past its retention: %+v, %v; want ErrNotFound", out, err)
			}
		}, 0, 0},
		{"died again", func(r *sweepRig) {
			again.Delay = 0
			push(t, r.Store, again)
			finish(t, r.Store, "o", 1, punctual.SettleDiscard)
		}, 0, 1},
		{"longer retention", func(r *sweepRig) {
			r.makeDead(t, 100, 1)
			r.configure(t, 48*time.Hour, 0)
		}, 0, 1},
		{"topic deleted and made anew", func(r *sweepRig) {
			if n, err := r.DeleteTopic(t.Context(), "o"); err != nil || n != 0 {
				t.Errorf("P13: a topic of which all messages are past their retention had %d, %v", n, err)
			}
			push(t, r.Store, again)
		}, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newSweepRig(t)
			r.configure(t, time.Hour, 0)
			r.makeDead(t, 0, 10)
			done := make(chan struct{})
			r.meanwhile(t, database.Dead, func() {
				defer close(done)
				c.change(r)
			})
			r.clock.Advance(time.Hour)
			await(t, done)
			r.sweepUp(t)
			if rep := mustBeSound(t, r.Store); rep.Live != c.live || rep.Dead != c.dead {
				t.Errorf("P1: %d live and %d dead messages, want %d and %d", rep.Live, rep.Dead, c.live, c.dead)
			}
			r.clock.Advance(100 * time.Hour)
			r.sweepUp(t)
			mustBeSound(t, r.Store)
		})
	}
}

// TestSweepOfFinishedMeetsChanges finishes a message with the same ID in the middle of a step that
// forgets the ID.
func TestSweepOfFinishedMeetsChanges(t *testing.T) {
	r := newSweepRig(t)
	r.configure(t, 0, time.Hour)
	r.remember(t, 10)
	done := make(chan struct{})
	r.meanwhile(t, database.Forgotten, func() {
		defer close(done)
		r.remember(t, 1)
	})
	r.clock.Advance(time.Hour)
	await(t, done)
	r.sweepUp(t)
	if f, x := r.keys(t, database.Remembered), r.keys(t, database.Forgotten); f != 1 || x != 1 {
		t.Errorf("%d IDs are remembered, of which %d will be forgotten; want 1", f, x)
	}
	if rs := push(t, r.Store, punctual.NewMessage{Topic: "o", ID: "0"}); rs[0].Status != punctual.PushDuplicate {
		t.Errorf("P7: an ID that was finished again is not remembered: %+v", rs[0])
	}
	r.clock.Advance(time.Hour)
	r.sweepUp(t)
	if f, x := r.keys(t, database.Remembered), r.keys(t, database.Forgotten); f != 0 || x != 0 {
		t.Errorf("%d IDs are remembered, of which %d will be forgotten; want none", f, x)
	}
	mustBeSound(t, r.Store)
}

// TestSweepOfFinishedRecordsDuringChanges finishes a second message with an ID in the middle of a
// step that deletes the finished record of the first one.
func TestSweepOfFinishedRecordsDuringChanges(t *testing.T) {
	r := newSweepRig(t)
	r.keepFinished(t)
	r.remember(t, 10)
	done := make(chan struct{})
	r.meanwhile(t, database.FinishedRecordEnds, func() {
		defer close(done)
		r.remember(t, 1)
	})
	r.clock.Advance(time.Hour)
	await(t, done)
	r.sweepUp(t)
	if s, u := r.keys(t, database.FinishedRecords), r.keys(t, database.FinishedRecordEnds); s != 1 || u != 1 {
		t.Errorf("%d finished records are kept, of which %d will be deleted; want 1", s, u)
	}
	if f, err := r.Finished(t.Context(), "o", "0"); err != nil || !f.At.Equal(testStart.Add(time.Hour)) {
		t.Errorf("the finished record of an ID that was finished again: %+v, %v", f, err)
	}
	r.clock.Advance(time.Hour)
	r.sweepUp(t)
	if s, u := r.keys(t, database.FinishedRecords), r.keys(t, database.FinishedRecordEnds); s != 0 || u != 0 {
		t.Errorf("%d finished records are kept, of which %d will be deleted; want none", s, u)
	}
	mustBeSound(t, r.Store)
}

// TestCheckOfFinishedRecords: Check finds a finished record that cannot be read, or that no sweep
// would ever delete, and nothing wrong with one that is as it was written. The deletion of the
// topic deletes it.
func TestCheckOfFinishedRecords(t *testing.T) {
	kept := func(t *testing.T) *sweepRig {
		r := newSweepRig(t)
		r.keepFinished(t)
		r.remember(t, 1)
		if r.keys(t, database.FinishedRecords) != 1 {
			t.Fatal("no finished record is kept")
		}
		mustBeSound(t, r.Store)
		return r
	}
	for _, c := range []struct {
		name  string
		kind  database.Order // of the key that is damaged
		value func(v []byte) []byte
		want  string
	}{
		{"cut short", database.FinishedRecords, func(v []byte) []byte { return v[:len(v)-1] }, `finished record of "0": finished record of`},
		{"of an unknown version", database.FinishedRecords, func(v []byte) []byte { v[8] = 99; return v }, `finished record of "0": finished record has version 99`},
		{"never deleted", database.FinishedRecordEnds, func([]byte) []byte { return nil }, `finished record of "0" would never be forgotten`},
	} {
		r := kept(t)
		r.damageKey(t, c.kind, c.value)
		rep, err := r.Check(t.Context(), nil)
		if err != nil || len(rep.Problems) != 1 || !strings.Contains(rep.Problems[0], c.want) {
			t.Errorf("P13: a finished record that is %s: Check finds %q, %v; want %q", c.name, rep.Problems, err, c.want)
		}
	}
	r := kept(t)
	if _, err := r.DeleteTopic(t.Context(), "o"); err != nil {
		t.Fatal(err)
	}
	if s := r.keys(t, database.FinishedRecords); s != 0 {
		t.Errorf("%d finished records of a deleted topic are kept", s)
	}
	mustBeSound(t, r.Store)
}

// damageKey closes the store, changes the value of the only key of a kind, and opens the store
// again. A nil value deletes the key.
func (r *sweepRig) damageKey(t *testing.T, kind database.Order, change func(v []byte) []byte) {
	t.Helper()
	closeStore(t, r.Store)
	db, err := pebble.Open(r.dir, &pebble.Options{Logger: noLog{}})
	if err != nil {
		t.Fatal(err)
	}
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{byte(kind)}, UpperBound: []byte{byte(kind) + 1}})
	if err != nil || !it.First() {
		t.Fatalf("there is no key of the kind %c: %v", kind, err)
	}
	key, value := slices.Clone(it.Key()), change(slices.Clone(it.Value()))
	if err = it.Close(); value == nil {
		err = errors.Join(err, db.Delete(key, pebble.Sync))
	} else {
		err = errors.Join(err, db.Set(key, value, pebble.Sync))
	}
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	r.Store = openAt(t, r.dir, &Options{Clock: r.clock, swept: r.step})
}

// TestSweepBoundary: nothing is swept a millisecond before the end of its retention, and everything
// at the end.
func TestSweepBoundary(t *testing.T) {
	r := newSweepRig(t)
	r.configure(t, time.Hour, time.Hour)
	r.makeDead(t, 0, 1)
	push(t, r.Store, punctual.NewMessage{Topic: "o", ID: "done"})
	r.amend(t, punctual.Amendment{Change: punctual.ChangeCancel, Topic: "o", ID: "done"})
	look := func(want int) {
		t.Helper()
		for _, err := range []error{first2(r.sweepDead(t.Context(), r.topics.Get("o"))), first2(r.sweepFinished(t.Context(), database.Remembered))} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if d, f, x := r.keys(t, database.Dead), r.keys(t, database.Remembered), r.keys(t, database.Forgotten); d != want || f != want || x != want {
			t.Errorf("at %v there are %d dead, %d finished IDs and %d to be forgotten; want %d each", r.clock.Now().Sub(testStart), d, f, x, want)
		}
		st, err := r.Stats(t.Context(), "o")
		if err != nil || st.Dead != int64(want) {
			t.Errorf("at %v: %+v, %v; want %d dead", r.clock.Now().Sub(testStart), st, err, want)
		}
	}
	r.clock.Advance(time.Hour - time.Millisecond)
	look(1)
	if i, err := r.Get(t.Context(), "o", "0"); err != nil || i.State != punctual.StateDead {
		t.Errorf("P13: in the last millisecond of its retention: %+v, %v", i, err)
	}
	if rs := push(t, r.Store, punctual.NewMessage{Topic: "o", ID: "done"}); rs[0].Status != punctual.PushDuplicate {
		t.Errorf("P7: in the last millisecond of its memory: %+v", rs[0])
	}
	r.clock.Advance(time.Millisecond)
	look(0)
	if rs := push(t, r.Store, punctual.NewMessage{Topic: "o", ID: "done"}); rs[0].Status != punctual.PushStored {
		t.Errorf("P7: after its time: %+v", rs[0])
	}
}

func first2(_ bool, err error) error { return err }

// TestSweepAfterReopen: dead messages and remembered IDs that passed their retention while the
// store was closed are swept afterwards.
func TestSweepAfterReopen(t *testing.T) {
	r := newSweepRig(t)
	r.configure(t, time.Hour, time.Hour)
	r.makeDead(t, 0, 3)
	push(t, r.Store, punctual.NewMessage{Topic: "o", ID: "done"})
	r.amend(t, punctual.Amendment{Change: punctual.ChangeCancel, Topic: "o", ID: "done"})
	closeStore(t, r.Store)
	r.clock.Advance(time.Hour)
	r.Store = openAt(t, r.dir, &Options{Clock: r.clock, swept: r.step})
	r.sweepUp(t)
	if d, f, x := r.keys(t, database.Dead), r.keys(t, database.Remembered), r.keys(t, database.Forgotten); d+f+x != 0 {
		t.Errorf("there are %d dead, %d finished IDs and %d to be forgotten; want none", d, f, x)
	}
	mustBeSound(t, r.Store)
}

// TestPurgeGoesOnUntilNothingIsLeft claims messages in the middle of a purge of everything, after
// its pass through the leased ones. They are purged all the same.
func TestPurgeGoesOnUntilNothingIsLeft(t *testing.T) {
	const n, taken = purgeStep + 500, 10
	f := &faults{}
	s := openAt(t, "store", &Options{fs: hookFS{vfs.NewMem(), f.hook}, Clock: storekit.NewManualClock(testStart), Logger: quiet, clearFrom: n + 1})
	ms := make([]punctual.NewMessage, n)
	for i := range ms {
		ms[i] = punctual.NewMessage{Topic: "o", ID: fmt.Sprint(i), Due: testStart.Add(-time.Hour)}
	}
	push(t, s, ms...)
	var claims sync.WaitGroup
	var ds []punctual.Delivery
	var once sync.Once
	claimed := make(chan struct{})
	f.hang(func(op fsOp) chan struct{} {
		if op.kind != "sync" || !isLog(op) {
			return nil
		}
		once.Do(func() {
			claims.Go(func() {
				defer close(claimed)
				ds = claim(t, s, "o", taken)
			})
		})
		return claimed
	})
	got, err := s.Purge(t.Context(), punctual.PurgeQuery{Topic: "o"})
	claims.Wait()
	if len(ds) != taken {
		t.Fatalf("%d messages were claimed during the purge, want %d", len(ds), taken)
	}
	if err != nil || got != n {
		t.Errorf("P13: a purge of %d messages, of which %d were claimed meanwhile, removed %d, %v", n, taken, got, err)
	}
	if err := settle(t, s, ds[0], punctual.SettleAck); !errors.Is(err, punctual.ErrLeaseLost) {
		t.Errorf("P4: ack of a message that was purged: %v", err)
	}
	mustBeSound(t, s)
}

// TestPurgeMeetsAMessageBetweenItsPasses: a message that is ready while the leased ones are purged,
// and leased while the others are, is in neither pass, and is purged all the same.
func TestPurgeMeetsAMessageBetweenItsPasses(t *testing.T) {
	var s *Store
	var ds []punctual.Delivery
	s = openAt(t, "store", &Options{fs: vfs.NewMem(), Clock: storekit.NewManualClock(testStart), Logger: quiet, purging: func(state punctual.State) {
		if state == punctual.StateNone && ds == nil {
			ds = claim(t, s, "o", 1)
		}
	}})
	push(t, s, punctual.NewMessage{Topic: "o", ID: "a"})
	n, err := s.Purge(t.Context(), punctual.PurgeQuery{Topic: "o"})
	if len(ds) != 1 {
		t.Fatalf("%d messages were claimed between the passes, want 1", len(ds))
	}
	if err != nil || n != 1 {
		t.Errorf("P13: a purge of everything removed %d, %v; want the message that was claimed meanwhile", n, err)
	}
	if err := settle(t, s, ds[0], punctual.SettleAck); !errors.Is(err, punctual.ErrLeaseLost) {
		t.Errorf("P4: ack of a message that was purged: %v", err)
	}
	mustBeSound(t, s)
}

// TestTopicNumbersAreNotUsedAgain: a new topic does not get the number of a deleted one, because
// keys that the deleted topic has left would belong to the new one.
func TestTopicNumbersAreNotUsedAgain(t *testing.T) {
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprintf("crash %v", crash), func(t *testing.T) {
			mem := vfs.NewCrashableMem()
			open := func() *Store { return openAt(t, "store", &Options{fs: mem, Logger: quiet}) }
			s := open()
			var last uint32
			for range 3 {
				for _, name := range []string{"a", "b"} {
					push(t, s, punctual.NewMessage{Topic: name})
					num := s.topics.Get(name).Disk.Num()
					if name == "b" && num <= last {
						t.Errorf("a topic has number %d, and a deleted one had %d", num, last)
					}
					last = max(last, num)
				}
				if _, err := s.DeleteTopic(t.Context(), "b"); err != nil {
					t.Fatal(err)
				}
				if crash {
					mem = mem.CrashClone(vfs.CrashCloneCfg{})
				} else {
					closeStore(t, s)
				}
				s = open()
			}
			mustBeSound(t, s)
		})
	}
}

// TestDeleteTopicLeavesNothing deletes topics of few and of many messages, and checks that ranges
// are deleted only where there are many, because each deleted range costs later reads.
func TestDeleteTopicLeavesNothing(t *testing.T) {
	for _, n := range []int{0, 10, database.DeleteSingly, database.DeleteSingly + 1} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := newSweepRig(t)
			r.configure(t, 0, time.Hour)
			if n > 0 {
				r.makeDead(t, 0, n/2)
				for i := n / 2; i < n; i++ {
					push(t, r.Store, punctual.NewMessage{Topic: "o", ID: fmt.Sprint(i), Delay: time.Hour})
				}
			}
			if got, err := r.DeleteTopic(t.Context(), "o"); err != nil || got != int64(n) {
				t.Errorf("a topic of %d messages had %d, %v", n, got, err)
			}
			if rep := mustBeSound(t, r.Store); rep.Live+rep.Dead+rep.Topics != 0 {
				t.Errorf("after the deletion of the only topic: %+v", rep)
			}
			if ranges := r.db.DeletedRanges(); (ranges == 0) != (n <= database.DeleteSingly) {
				t.Errorf("%d ranges were deleted for %d messages", ranges, n)
			}
		})
	}
}

// TestDeleteTopicMeetsChanges: a message that is pushed after the keys of a topic were read is
// deleted with the topic.
func TestDeleteTopicMeetsChanges(t *testing.T) {
	r := newSweepRig(t)
	push(t, r.Store, punctual.NewMessage{Topic: "o", ID: "first", Delay: time.Hour})
	keys, err := r.readTopicKeys(t.Context(), r.topics.Get("o"))
	if err != nil || keys.Len() != 2 {
		t.Fatalf("a topic of one message has %d keys, %v", keys.Len(), err)
	}
	push(t, r.Store, punctual.NewMessage{Topic: "o", ID: "second", Delay: time.Hour})
	err = r.writer.Do(t.Context(), func(tx *writer.Tx) error {
		tx.DeleteTopic(r.topics.Get("o"), keys)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if rep := mustBeSound(t, r.Store); rep.Live+rep.Topics != 0 {
		t.Errorf("after the deletion of the only topic: %+v", rep)
	}
}

// TestManyDeletedRangesAreFlushed: the deletion of many topics of many messages flushes the
// database's buffer from time to time, so that deleted ranges do not make later reads slower and
// slower.
func TestManyDeletedRangesAreFlushed(t *testing.T) {
	r := newSweepRig(t)
	before := r.db.Stats().Flushes
	for range 2 * database.DeleteRanges {
		ms := make([]punctual.NewMessage, database.DeleteSingly+1)
		for i := range ms {
			ms[i] = punctual.NewMessage{Topic: "o", Delay: time.Hour}
		}
		push(t, r.Store, ms...)
		if _, err := r.DeleteTopic(t.Context(), "o"); err != nil {
			t.Fatal(err)
		}
		if n := r.db.DeletedRanges(); n >= database.DeleteRanges {
			t.Fatalf("%d deleted ranges wait for a flush", n)
		}
		if r.db.Stats().Flushes > before {
			return
		}
	}
	t.Error("no flush after many deleted ranges")
}

// TestMarksOfWhatChanged: the watermarks of topics in which nothing happened are not written again.
func TestMarksOfWhatChanged(t *testing.T) {
	r := newSweepRig(t)
	const topics = 100
	for i := range topics {
		push(t, r.Store, punctual.NewMessage{Topic: fmt.Sprint("t", i), ID: "a", Delay: time.Hour})
	}
	marks := func() (n int) {
		t.Helper()
		err := r.writer.Do(t.Context(), func(tx *writer.Tx) error {
			tx.Maintenance().SetClock()
			before := tx.Maintenance().Size()
			r.saveWatermarks(tx, watermarksLimit)
			n = (tx.Maintenance().Size() - before) / 24 // a watermark takes 24 bytes, and the clock fewer, so it does not count
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	marks()
	if n := marks(); n != 0 {
		t.Errorf("%d watermarks were written though nothing had happened", n)
	}
	r.amend(t, punctual.Amendment{Change: punctual.ChangeCancel, Topic: "t7", ID: "a"})
	if n := marks(); n != 1 {
		t.Errorf("%d watermarks were written after a change in one of %d topics", n, topics)
	}
	mustBeSound(t, r.Store)
}

// TestWatermarkWaitsForWhatIsNotSynced: a watermark must not pass a message whose push waits for
// its fsync, because the next opener would not find the message, although the push is reported as
// done later.
func TestWatermarkWaitsForWhatIsNotSynced(t *testing.T) {
	mem, f := vfs.NewCrashableMem(), &faults{}
	clock := storekit.NewManualClock(testStart)
	s := openAt(t, "store", &Options{fs: hookFS{mem, f.hook}, Clock: clock, Logger: quiet})
	push(t, s, punctual.NewMessage{Topic: "o", ID: "first", Due: testStart.Add(-time.Hour)})
	finish(t, s, "o", 1, punctual.SettleAck) // so that the watermark may be raised
	if err := s.writer.DeleteAcked(t.Context()); err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	f.hang(func(op fsOp) chan struct{} {
		if op.kind == "sync" && isLog(op) {
			return release
		}
		return nil
	})
	var calls sync.WaitGroup
	calls.Go(func() { push(t, s, punctual.NewMessage{Topic: "o", ID: "late", Due: testStart.Add(-time.Minute)}) })
	waitUntil(t, "the push is applied and its fsync hangs", func() bool {
		n := s.index.Stats().Pending
		_, hits, _ := f.state()
		return n == 1 && hits > 0
	})
	calls.Go(func() {
		if err := s.writeWatermarks(context.Background()); err != nil {
			t.Errorf("write marks: %v", err)
		}
	})
	waitUntil(t, "the watermark is written behind it", func() bool {
		defer holdWriteLock(t, s)()
		return !s.db.HasStale() && s.topics.Get("o").Disk.Lowest() != record.MinPosition
	})
	f.hang(nil)
	close(release)
	calls.Wait()
	clone := mem.CrashClone(vfs.CrashCloneCfg{})
	after := openAt(t, "store", &Options{fs: clone, Clock: clock, Logger: quiet})
	if ds := claim(t, after, "o", 10); len(ds) != 1 || ds[0].ID != "late" {
		t.Errorf("P1 no loss: after a power cut %d messages came, want the one whose push was reported as done", len(ds))
	}
	mustBeSound(t, after)
}

// waitUntil waits until a condition holds. It fails the test after a minute, so that the test does
// not hang.
func waitUntil(t testing.TB, what string, met func() bool) {
	t.Helper()
	for giveUp := time.Now().Add(time.Minute); !met(); time.Sleep(time.Millisecond) {
		if time.Now().After(giveUp) {
			t.Fatalf("it did not come to it that %s", what)
		}
	}
}
