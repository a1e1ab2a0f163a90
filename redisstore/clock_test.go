package redisstore

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/redisstore/internal/route"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/storekit"
)

// stepWithin is how long the store's clock may take to follow a server's that was set back:
// storekit.StepAfter, the second until the next reading on either side, and the partition's step.
const stepWithin = storekit.StepAfter + 5*time.Second

// state returns how the store's clock stands.
func state(t *testing.T, s *Store) storekit.ClockState {
	t.Helper()
	c, err := s.Clock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// wantOnTime pushes a message with a delay and wants it to come when the delay is over, by this
// machine's clock.
func wantOnTime(t *testing.T, s *Store, topic string) {
	t.Helper()
	const delay = 300 * time.Millisecond
	begun := time.Now()
	if rs, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: topic, Delay: delay}}); err != nil || rs[0].Err != nil {
		t.Fatalf("push: %v, %v", rs, err)
	}
	ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{topic}, Max: 1, Wait: time.Minute})
	if took := time.Since(begun); err != nil || len(ds) != 1 || took < delay || took > delay+2*time.Second {
		t.Fatalf("P8: after a step of the clock a delay of %v took %v: %v, %v", delay, took, ds, err)
	}
	ack(t, s, ds[0])
}

// P8: the server's clock is two hours ahead for a moment. Some seconds after it was set right the
// store is on time again, in every process: one that waits, one that was closed, and one that
// slept. One of those that watch makes the step and says so.
func TestServerAheadForAMoment(t *testing.T) {
	t.Parallel()
	server := redisrig.StartShifted(t)
	var mu sync.Mutex
	var log bytes.Buffer
	o := &Options{Logger: slog.New(slog.NewTextHandler(lockedWriter{&mu, &log}, nil))}
	s, other := openStore(t, connect(t, server), o), openStore(t, connect(t, server), o)
	push(t, s, punctual.NewMessage{ID: "noon", Delay: time.Hour}, punctual.NewMessage{ID: "leased", Due: time.Unix(1, 0)})
	held := claimOne(t, s, 0)
	if err := server.Shift(2 * time.Hour); err != nil {
		t.Fatal(err)
	}
	push(t, s, punctual.NewMessage{ID: "soon", Delay: 2 * time.Second}) // the partition sees the time that is ahead
	before := now(t, s)
	if ahead := time.Until(before); ahead < time.Hour {
		t.Fatalf("this test shows nothing: the store's clock is ahead by %v", ahead)
	}
	if err := server.Shift(0); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	d := claimOne(t, other, time.Minute)
	for d.ID != "soon" { // what was ready while the clock was ahead, and was not before
		ack(t, other, d)
		d = claimOne(t, other, time.Minute)
	}
	ack(t, other, d)
	if took := time.Since(back); took > stepWithin {
		t.Errorf("P8: a delay of 2 s that began while the clock was ahead took %v since the clock was set right", took)
	}
	for _, x := range []*Store{s, other} {
		if c := state(t, x); c.Steps != 1 || c.Ahead > storekit.StepBeyond || c.Last.From.Sub(c.Last.To) < time.Hour {
			t.Errorf("the state of the clock is %+v; want one step", c)
		}
		wantOnTime(t, x, "other")
	}
	if _, err := other.Settle(t.Context(), []punctual.Settlement{{Topic: "orders", ID: held.ID, Token: held.Token, Verb: punctual.SettleAck}}); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if n := strings.Count(log.String(), "has stepped back"); n != 1 {
		t.Errorf("two processes log the step %d times; want once:\n%s", n, &log)
	}
}

// lockedWriter lets several stores write one log.
type lockedWriter struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

// steppers opens n stores over one data set, each with the clock.
func steppers(t *testing.T, clock storekit.Clock, n int) []*Store {
	t.Helper()
	prefix := fresh()
	all := make([]*Store, n)
	for i := range all {
		all[i] = openStore(t, connect(t, shared), &Options{Prefix: prefix, clock: clock})
	}
	return all
}

func stepClock(t *testing.T, s *Store) storekit.ClockState {
	t.Helper()
	c, err := s.StepClock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// P8: of processes that step at once one makes the step.
func TestProcessesThatStepAtOnce(t *testing.T) {
	clock := storekit.NewManualClock(time.Unix(1_800_000_000, 0))
	all := steppers(t, clock, 8)
	clock.Advance(time.Hour)
	for _, s := range all {
		now(t, s)
	}
	clock.Advance(-time.Hour)
	var work sync.WaitGroup
	for _, s := range all {
		work.Go(func() {
			if c, err := s.StepClock(context.Background()); err != nil || c.Steps != 1 || c.Ahead != 0 {
				t.Errorf("a step at once with others = %+v, %v; want one step", c, err)
			}
		})
	}
	work.Wait()
	for _, s := range all {
		if c := state(t, s); c.Steps != 1 || c.Ahead != 0 {
			t.Errorf("P8: afterwards the state is %+v; want one step", c)
		}
	}
}

// P8: a process that has slept through steps still knows the time before. Its lower bound does not
// count in a partition that has made them, and does not come back into the store.
func TestProcessThatSleptThroughSteps(t *testing.T) {
	clock := storekit.NewManualClock(time.Unix(1_800_000_000, 0))
	all := steppers(t, clock, 2)
	awake, asleep := all[0], all[1]
	push(t, awake, punctual.NewMessage{ID: "x", Delay: time.Minute})
	for range 2 {
		clock.Advance(3 * time.Hour)
		now(t, awake)
		clock.Advance(-time.Hour)
		stepClock(t, awake)
	}
	if _, err := awake.Get(t.Context(), "orders", "x"); err != nil { // the partition makes the steps
		t.Fatal(err)
	}
	asleep.clock.Learn(0, clock.Now().Add(10*time.Hour).UnixMilli()) // as it was told before it slept
	if asleep.clock.Era() != 0 {
		t.Fatalf("this test shows nothing: the process knows of %d steps", asleep.clock.Era())
	}
	rs, err := asleep.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: "y", Delay: time.Minute}})
	if err != nil || rs[0].Err != nil || !rs[0].Due.Equal(clock.Now().Add(time.Minute)) {
		t.Errorf("P8: push = %+v, %v; want it due a minute after %v", rs, err, clock.Now())
	}
	for _, s := range all {
		if got := now(t, s); !got.Equal(clock.Now()) {
			t.Errorf("P8: the store's clock says %v; want %v", got, clock.Now())
		}
	}
}

// P8: a failover of the store's hash loses the step. Processes that know of it write it down again,
// and one that does not learns of it from a partition.
func TestFailoverThatLosesAStep(t *testing.T) {
	clock := storekit.NewManualClock(time.Unix(1_800_000_000, 0))
	all := steppers(t, clock, 2)
	clock.Advance(time.Hour)
	push(t, all[0], punctual.NewMessage{ID: "ahead", Delay: time.Minute})
	ahead := now(t, all[0])
	clock.Advance(-time.Hour)
	stepClock(t, all[0])
	push(t, all[0], punctual.NewMessage{ID: "x", Delay: time.Minute}) // the partition has made the step
	key := all[0].names.Store()
	do(t, shared, "HDEL", key, "steps", "step:1")
	do(t, shared, "HSET", key, "clock", fmt.Sprint(ahead.UnixMilli()))
	late := openStore(t, connect(t, shared), &Options{Prefix: all[0].opt.Prefix, clock: clock})
	if got := now(t, late); !got.Equal(ahead) {
		t.Fatalf("this test shows nothing: the store that was opened now has the time %v", got)
	}
	for _, id := range []string{"ahead", "x"} {
		if m, err := late.Get(t.Context(), "orders", id); err != nil || !m.Due.Equal(clock.Now().Add(time.Minute)) {
			t.Errorf("%s: %v, %v; want it due a minute after %v", id, m.Due, err, clock.Now())
		}
	}
	if got := now(t, late); !got.Equal(clock.Now()) {
		t.Errorf("P8: the store's clock says %v; want %v", got, clock.Now())
	}
	late.writeClock()
	if c := state(t, openStore(t, connect(t, shared), &Options{Prefix: all[0].opt.Prefix, clock: clock})); c.Steps != 1 || c.Ahead != 0 {
		t.Errorf("P8: the next process finds %+v; want the step", c)
	}
}

// P3, P5: a late copy of a call from before a step gets the answer of the call, and changes nothing
// if there was none. A call that was not carried out before the step is not carried out after it by
// such a copy.
func TestLateCopyFromBeforeAStep(t *testing.T) {
	for _, back := range []time.Duration{3 * time.Second, 70 * time.Second, 2 * time.Hour} {
		clock := storekit.NewManualClock(time.Unix(1_800_000_000, 0))
		s := steppers(t, clock, 1)[0]
		clock.Advance(back)
		push(t, s, punctual.NewMessage{ID: "a", Due: time.Unix(1, 0)}, punctual.NewMessage{ID: "b", Due: time.Unix(2, 0)})
		claim := claimCopies(t, s)
		first := claim(1)
		if first != "a" {
			t.Fatalf("the first copy claimed %q", first)
		}
		clock.Advance(-back)
		stepClock(t, s)
		for i := range 4 {
			push(t, s, punctual.NewMessage{Delay: time.Hour}) // the partition makes the step, and others leave records
			clock.Advance(20 * time.Second)
			switch got := claim(1); {
			case got == "a", i > 0 && (got == "" || strings.Contains(got, "PUNCTUAL_LATE")): // from i = 1 on the lease has run out
			default:
				t.Errorf("P3: %v back: copy %d claimed %q; want the same message, or nothing when its lease is over", back, i, got)
			}
			if got := claim(2); !strings.Contains(got, "PUNCTUAL_LATE") {
				t.Errorf("P3: %v back: the first copy of a call from before the step claimed %q; want it refused", back, got)
			}
		}
	}
}

// claimCopies returns a function that sends a copy of a claim from before the next step, with that
// number, and returns the IDs that the answer has, or the text of the error.
func claimCopies(t *testing.T, s *Store) func(number int64) string {
	p := s.names.Partition("orders", 0)
	var h script.Header
	h.LowerBound, h.Era, h.Seconds, h.Micros = s.clock.Args()
	h.Deadline = s.clock.Deadline(t.Context(), route.CallTime)
	var names []any
	for _, key := range append(p.Keys(), p.Records(0), p.Records(1)) {
		names = append(names, key)
	}
	once := &script.Script{Name: "claim", Text: script.Claim.Text, SHA: script.Claim.SHA}
	return func(number int64) string {
		h.Number = number
		_, _, h.Seconds, h.Micros = s.clock.Args() // what the server's clock says
		items, err := s.route.Send(t.Context(), once, names, []any{h.Pack(number == 1), "somebody", 1, 0, script.Bytes, "0"})
		if err != nil {
			return err.Error()
		}
		const before = 7 // what stands before the IDs
		r := script.Reader{Items: items[min(before, len(items)):]}
		return strings.Join(r.List(), " ")
	}
}
