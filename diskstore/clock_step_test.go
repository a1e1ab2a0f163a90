package diskstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/memory"
	"github.com/punctualmq/punctual/storekit"
)

// stepClock steps the clock of a store and moves all that the step moves.
func stepClock(t *testing.T, s *Store) storekit.ClockState {
	t.Helper()
	if _, err := s.StepClock(t.Context()); err != nil {
		t.Fatal(err)
	}
	state, err := s.StepClock(t.Context()) // has moved the rest before
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// TestKillAtAStep copies the files before each change of a file while the clock steps, as a kill
// and as a power cut would leave them. Opened again, the store has stepped or it has not, and steps
// then; leases and delays are as after one whole step.
func TestKillAtAStep(t *testing.T) {
	type left struct {
		mem *vfs.MemFS
		op  fsOp
		cut bool
	}
	const ahead = 2 * time.Hour
	clock, mem := storekit.NewManualClock(testStart), vfs.NewCrashableMem()
	var mu sync.Mutex
	var copies []left
	copying := false
	hook := func(op fsOp) error {
		mu.Lock()
		defer mu.Unlock()
		if copying {
			copies = append(copies, left{afterKill(mem), op, false}, left{afterPowerCut(mem), op, true})
		}
		return nil
	}
	s := openAt(t, "store", &Options{fs: hookFS{mem, hook}, Clock: clock, Logger: quiet, byHand: true})
	configure(t, s, "kept", punctual.SettingsPatch{DedupeWindow: ptr(time.Hour), DeadRetention: ptr(time.Hour)})
	push(t, s, punctual.NewMessage{Topic: "before", ID: "before"})
	before, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"before"}, Max: 1, Lease: 4 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	clock.Advance(ahead)
	push(t, s, punctual.NewMessage{Topic: "leased", ID: "leased"}, punctual.NewMessage{Topic: "delayed", ID: "delayed", Delay: 10 * time.Minute},
		punctual.NewMessage{Topic: "named", ID: "named", Due: testStart.Add(time.Hour)}, punctual.NewMessage{Topic: "kept", ID: "acked"}, punctual.NewMessage{Topic: "kept", ID: "dead"})
	leased, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"leased"}, Max: 1, Lease: 20 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range claim(t, s, "kept", 2) {
		if err := settle(t, s, d, []punctual.Verb{punctual.SettleAck, punctual.SettleDiscard}[i]); err != nil {
			t.Fatal(err)
		}
	}
	clock.Set(testStart.Add(time.Second))
	mu.Lock()
	copying = true
	mu.Unlock()
	if state := stepClock(t, s); state.Steps != 1 || s.stepping.carry != nil {
		t.Fatalf("after a step: %+v, and something is left to move: %v", state, s.stepping.carry != nil)
	}
	mu.Lock()
	copying = false
	mu.Unlock()

	var none, whole, half int
	for i, c := range copies {
		what := fmt.Sprintf("copy %d, before %v (power cut: %v)", i, c.op, c.cut)
		clock.Set(testStart.Add(2 * time.Second))
		s, err := Open("store", &Options{fs: c.mem, Clock: clock, Logger: quiet, byHand: true})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		switch last := s.stepping.last.Load(); {
		case last.Count == 0:
			none++
		case s.stepping.carry != nil:
			half++
		default:
			whole++
		}
		state := stepClock(t, s)
		if state.Steps != 1 || state.Ahead != 0 || state.Last.From.Before(testStart.Add(ahead)) || state.Last.To.After(clock.Now()) {
			t.Errorf("P8: %s: the clock is %+v", what, state)
		}
		for _, x := range []struct {
			d          punctual.Delivery
			from, upTo time.Time
		}{
			{before[0], testStart.Add(4 * time.Hour), testStart.Add(4 * time.Hour)},
			{leased[0], testStart.Add(20 * time.Minute), testStart.Add(20*time.Minute + 2*time.Second)},
		} {
			i, err := s.Get(t.Context(), x.d.Topic, x.d.ID)
			if c.cut && i.State == punctual.StateReady { // a power cut may take leases, and the message comes at once
				continue
			}
			if err != nil || i.State != punctual.StateLeased || i.LeaseUntil.Before(x.from) || i.LeaseUntil.After(x.upTo) || i.Due.After(clock.Now()) {
				t.Errorf("P3 one holder: %s: %s is %+v, %v; want a lease until %v or %v", what, x.d.ID, i, err, x.from, x.upTo)
			}
			if err := settle(t, s, x.d, punctual.SettleExtend); err != nil {
				t.Errorf("P4: %s: the holder cannot extend: %v", what, err)
			}
		}
		if ds := claim(t, s, "delayed", 1); len(ds) != 0 {
			t.Errorf("P2 never early: %s: claimed %+v", what, ds)
		}
		if i, err := s.Get(t.Context(), "kept", "dead"); err != nil || i.Died.After(clock.Now()) {
			t.Errorf("%s: the dead message is %+v, %v", what, i, err)
		}
		if rs, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "kept", ID: "acked"}}); err != nil || rs[0].Status != punctual.PushDuplicate {
			t.Errorf("P7: %s: push of a remembered ID: %+v, %v", what, rs, err)
		}
		clock.Set(testStart.Add(10*time.Minute + 2*time.Second))
		if ds := claim(t, s, "delayed", 1); len(ds) != 1 {
			t.Errorf("P1: %s: after its delay the message does not come", what)
		}
		clock.Set(testStart.Add(time.Hour))
		if ds := claim(t, s, "named", 1); len(ds) != 1 {
			t.Errorf("P1: %s: at its time the message does not come", what)
		}
		clock.Set(testStart.Add(time.Hour + 2*time.Second))
		if rs := push(t, s, punctual.NewMessage{Topic: "kept", ID: "acked"}); rs[0].Status != punctual.PushStored {
			t.Errorf("P7: %s: an ID is remembered for longer than an hour: %+v", what, rs)
		}
		if _, err := s.Get(t.Context(), "kept", "dead"); !errors.Is(err, punctual.ErrNotFound) {
			t.Errorf("%s: a dead message is kept for longer than an hour: %v", what, err)
		}
		mustBeSound(t, s)
		closeStore(t, s)
	}
	if none == 0 || half == 0 {
		t.Errorf("of %d copies %d had not stepped, %d had something left to move, %d had not; want some of the first two kinds", len(copies), none, half, whole)
	}
}

// TestStepBetweenReservedAndLeased: the clock steps while a claim is between its steps. A message
// that is not due any more is not delivered, and a lease that was granted has its length by the new
// time (P2, P3).
func TestStepBetweenReservedAndLeased(t *testing.T) {
	clock := storekit.NewManualClock(testStart)
	s := openAt(t, t.TempDir(), &Options{Clock: clock, Logger: quiet, byHand: true})
	push(t, s, punctual.NewMessage{Topic: "o", ID: "a", Due: testStart.Add(time.Hour)})
	reserve := func() *attempt {
		clock.Advance(2 * time.Hour)
		k := &attempt{s: s, c: &punctual.Claim{Max: 10, Lease: 10 * time.Minute}, now: s.clock.ms(), stop: func() {}}
		if _, err := k.reserveFrom(t.Context(), "o"); err != nil || len(k.got) != 1 {
			t.Fatalf("reserved %d messages, %v, want 1", len(k.got), err)
		}
		return k
	}
	k := reserve()
	clock.Advance(-2 * time.Hour)
	stepClock(t, s)
	if granted, _ := s.index.Grant(k.got, k.c.Lease, s.clock.ms); len(granted) != 0 {
		t.Errorf("P2 never early: a claim that had read the time before the step granted %d leases", len(granted))
	}
	if i, err := s.Get(t.Context(), "o", "a"); err != nil || i.State != punctual.StateScheduled {
		t.Errorf("the message is %+v, %v, want it scheduled", i, err)
	}

	k = reserve()
	granted, leases := s.index.Grant(k.got, k.c.Lease, s.clock.ms)
	if len(granted) != 1 {
		t.Fatalf("granted %d leases, want 1", len(granted))
	}
	clock.Advance(-2 * time.Hour)
	stepClock(t, s)
	ds, err := s.deliver(granted, leases) // writes the lease of before the step to the claim log
	if err != nil || len(ds) != 1 || !ds[0].LeaseUntil.Equal(testStart.Add(10*time.Minute)) || !ds[0].Delivered.Equal(testStart) {
		t.Fatalf("P3 one holder: delivered %+v, %v; want a lease of ten minutes", ds, err)
	}
	closeStore(t, s)
	s = openAt(t, s.dir, &Options{Clock: clock, Logger: quiet, byHand: true})
	i, err := s.Get(t.Context(), "o", "a")
	if err != nil || i.State != punctual.StateLeased || !i.LeaseUntil.Equal(ds[0].LeaseUntil) {
		t.Errorf("P3 one holder: opened again the message is %+v, %v; want a lease until %v", i, err, ds[0].LeaseUntil)
	}
	clock.Advance(10 * time.Minute)
	if i, err = s.Get(t.Context(), "o", "a"); err != nil || i.State != punctual.StateReady {
		t.Errorf("after its lease the message is %+v, %v; want it ready", i, err)
	}
	if st, err := s.Stats(t.Context(), "o"); err != nil || st.Ready != 1 || st.Scheduled+st.Leased != 0 {
		t.Errorf("the statistics are %+v, %v; want one ready message", st, err)
	}
	if page, err := s.List(t.Context(), punctual.ListQuery{Topic: "o", State: punctual.StateReady}); err != nil || len(page.Messages) != 1 {
		t.Errorf("the list of ready messages is %+v, %v", page, err)
	}
	if ds := claim(t, s, "o", 1); len(ds) != 1 || ds[0].Attempt != 2 || ds[0].Due.After(clock.Now()) {
		t.Errorf("claimed %+v, want attempt 2", ds)
	}
}

// TestStepWithALargeBacklog: more messages than memory holds were set while the clock was ahead,
// beside as many that were not. Each comes at its time, by the work of maintenance.
func TestStepWithALargeBacklog(t *testing.T) {
	const n, size = 6000, 100
	clock := storekit.NewManualClock(testStart)
	s := openAt(t, t.TempDir(), &Options{Clock: clock, Logger: quiet, MemoryBytes: 1 << 20, byHand: true})
	topics := []string{"a", "b", "c"}
	fill := func(what string, due func(i int) punctual.NewMessage) {
		for from := 0; from < n; from += 1000 {
			ms := make([]punctual.NewMessage, 1000)
			for i := range ms {
				ms[i] = due(from + i)
				ms[i].Topic, ms[i].ID, ms[i].Body = topics[(from+i)%len(topics)], fmt.Sprint(what, from+i), make([]byte, size)
			}
			push(t, s, ms...)
		}
	}
	fill("before", func(i int) punctual.NewMessage {
		return punctual.NewMessage{Delay: time.Hour + time.Duration(i)*time.Second}
	})
	clock.Advance(24 * time.Hour)
	s.clock.Now()
	fill("ahead", func(i int) punctual.NewMessage {
		return punctual.NewMessage{Delay: time.Minute + time.Duration(i)*time.Millisecond}
	})
	clock.Advance(-24 * time.Hour)
	s.clock.Now()
	clock.Advance(storekit.StepAfter)
	s.clock.Now()
	if !s.clock.StepDue() {
		t.Fatal("no step is due")
	}
	rounds := 0
	for ; rounds == 0 || s.stepping.carry != nil; rounds++ {
		if err := s.maintain(false); err != nil {
			t.Fatal(err)
		}
		if in := s.index.Stats(); in.Bytes > in.Bound {
			t.Fatalf("P10 bounded: messages in memory cost %d of %d bytes", in.Bytes, in.Bound)
		}
	}
	if rounds < 2 {
		t.Fatalf("all moved with the step; the backlog is too small")
	}
	state, err := s.Clock(t.Context())
	if err != nil || state.Steps != 1 {
		t.Fatalf("the clock is %+v, %v", state, err)
	}
	seen := make(map[string]bool)
	drain := func() {
		for {
			ds, err := s.Claim(t.Context(), punctual.Claim{Topics: topics, Max: 1000})
			if err != nil {
				t.Fatal(err)
			}
			if len(ds) == 0 {
				return
			}
			ss := make([]punctual.Settlement, len(ds))
			for i, d := range ds {
				if seen[d.ID] || d.Due.After(clock.Now()) {
					t.Fatalf("P2, P3: delivered %s, due %v, at %v; seen before: %v", d.ID, d.Due, clock.Now(), seen[d.ID])
				}
				seen[d.ID] = true
				ss[i] = punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck}
			}
			if errs, err := s.Settle(t.Context(), ss); errors.Join(append(errs, err)...) != nil {
				t.Fatal(errs, err)
			}
		}
	}
	clock.Set(state.Last.To.Add(50 * time.Second))
	if drain(); len(seen) != 0 {
		t.Errorf("P2 never early: %d messages were delivered before their delay was over", len(seen))
	}
	clock.Set(state.Last.To.Add(time.Minute + n*time.Millisecond))
	if drain(); len(seen) != n {
		t.Errorf("P1: %d of %d messages that were set while the clock was ahead came after their delay", len(seen), n)
	}
	clock.Set(testStart.Add(time.Hour + n*time.Second))
	if drain(); len(seen) != 2*n {
		t.Errorf("P1: in the end %d of %d messages came", len(seen), 2*n)
	}
	mustBeSound(t, s)
}

// TestStepsBesideEverything steps the clock again and again while others push, claim, extend and
// ack. As long as the clock is never ahead for as long as a lease lasts, each message has one
// holder only.
func TestStepsBesideEverything(t *testing.T) {
	const n, ahead, lease = 200, 30 * time.Minute, 4 * time.Hour
	clock := storekit.NewManualClock(testStart)
	s := openAt(t, t.TempDir(), &Options{Clock: clock, Logger: quiet, MemoryBytes: 200 * memory.MessageBytes})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	held, acked := make(map[string]int64), 0
	done := func() int {
		mu.Lock()
		defer mu.Unlock()
		return acked
	}
	var all, steps sync.WaitGroup
	all.Go(func() {
		for i := range n {
			if rs, err := s.Push(ctx, []punctual.NewMessage{{Topic: "o", ID: fmt.Sprint(i)}}); err != nil || rs[0].Err != nil {
				t.Error(rs, err)
				return
			}
		}
	})
	steps.Go(func() {
		for ctx.Err() == nil {
			clock.Advance(ahead)
			if _, err := s.Now(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			clock.Advance(50*time.Millisecond - ahead)
			if _, err := s.StepClock(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			for before := done(); done() == before && ctx.Err() == nil; time.Sleep(time.Millisecond) { // so that the steps leave time for the rest
			}
		}
	})
	for range 4 {
		all.Go(func() {
			for {
				if done() == n || t.Failed() {
					return
				}
				ds, err := s.Claim(ctx, punctual.Claim{Topics: []string{"o"}, Max: 7, Lease: lease})
				if err != nil {
					t.Error(err)
					return
				}
				for _, d := range ds {
					mu.Lock()
					if other := held[d.ID]; other != 0 {
						t.Errorf("P3 one holder: %s has token %d, and %d came", d.ID, other, d.Token)
					}
					held[d.ID] = d.Token
					mu.Unlock()
					if d.LeaseUntil.Sub(d.Delivered) > lease {
						t.Errorf("a lease of %v lasts from %v to %v", lease, d.Delivered, d.LeaseUntil)
					}
					for _, v := range []punctual.Verb{punctual.SettleExtend, punctual.SettleAck} {
						st := punctual.Settlement{Topic: "o", ID: d.ID, Token: d.Token, Verb: v}
						if v == punctual.SettleExtend {
							st.Delay = lease
						}
						if errs, err := s.Settle(ctx, []punctual.Settlement{st}); errors.Join(append(errs, err)...) != nil {
							t.Error(errs, err)
						}
					}
					mu.Lock()
					acked++
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	cancel()
	steps.Wait()
	if state, err := s.Clock(t.Context()); err != nil || state.Steps < 3 {
		t.Errorf("the clock is %+v, %v; want some steps", state, err)
	}
	mustBeSound(t, s)
}
