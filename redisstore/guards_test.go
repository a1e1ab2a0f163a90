package redisstore

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/storekit"
)

// Tests of guards in the scripts whose loss no other test would notice. Most of these tests need a
// clock that stands still, or more messages than one script sweeps.

// openStill opens a store whose clock is moved by the test.
func openStill(t *testing.T, o Options) (*Store, *storekit.ManualClock) {
	t.Helper()
	clock := storekit.NewManualClock(time.Unix(1_800_000_000, 0))
	o.Prefix, o.clock = fresh(), clock
	return openStore(t, connect(t, shared), &o), clock
}

// A longer retention does not bring back messages that were past the old one, also where more are
// dead than one script sweeps away.
func TestLongerRetentionBringsNothingBack(t *testing.T) {
	const dead = 2*512 + 100 // SWEEP of lua/prelude.lua is 512
	s, clock := openStill(t, Options{})
	short, long := time.Hour, 10*time.Hour
	if _, err := s.Configure(t.Context(), "orders", punctual.SettingsPatch{DeadRetention: &short}); err != nil {
		t.Fatal(err)
	}
	var ms []punctual.NewMessage
	for i := range dead {
		ms = append(ms, punctual.NewMessage{Topic: "orders", ID: fmt.Sprint(i)})
	}
	push(t, s, ms...)
	ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: dead})
	if err != nil || len(ds) != dead {
		t.Fatalf("claimed %d, %v; want %d", len(ds), err, dead)
	}
	var ss []punctual.Settlement
	for _, d := range ds {
		ss = append(ss, punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleDiscard})
	}
	if _, err := s.Settle(t.Context(), ss); err != nil {
		t.Fatal(err)
	}
	clock.Advance(2 * short)
	if _, err := s.Configure(t.Context(), "orders", punctual.SettingsPatch{DeadRetention: &long}); err != nil {
		t.Fatal(err)
	}
	key := s.names.Partition("orders", 0).Keys()[2]
	if n := do(t, shared, "ZCARD", key); n == "0" {
		t.Fatal("this test shows nothing: all dead messages were swept away at once")
	}
	if st, err := s.Stats(t.Context(), "orders"); err != nil || st.Dead != 0 {
		t.Errorf("after a longer retention %d messages are dead, %v; want none, the shorter one has ended", st.Dead, err)
	}
	last := fmt.Sprint(dead - 1)
	if _, err := s.Get(t.Context(), "orders", last); !errors.Is(err, punctual.ErrNotFound) {
		t.Errorf("get = %v; want ErrNotFound", err)
	}
	out, err := s.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeRequeue, Topic: "orders", ID: last}})
	if err != nil || !errors.Is(out[0].Err, punctual.ErrNotFound) {
		t.Errorf("requeue = %+v, %v; want not found", out, err)
	}
	rs, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: last}})
	if err != nil || rs[0].Status != punctual.PushStored {
		t.Errorf("P7: push of the ID of one that is gone = %+v, %v; want stored", rs, err)
	}
}

// tokensGrow is a message whose tokens must grow whatever becomes of it.
type tokensGrow struct {
	t      *testing.T
	id     string
	tokens []int64
}

// use pushes the message, claims and releases it n times, and cancels it. The clock stands still,
// so nothing but the counters of its partitions makes a token greater.
func (x *tokensGrow) use(s *Store, n int) {
	x.t.Helper()
	push(x.t, s, punctual.NewMessage{ID: x.id, Due: time.Unix(1, 0)})
	for range n {
		d := claimOne(x.t, s, 0)
		if d.ID != x.id {
			x.t.Fatalf("claimed %s; want %s", d.ID, x.id)
		}
		for _, old := range x.tokens {
			if d.Token <= old {
				x.t.Errorf("P4: token %d after %v", d.Token, x.tokens)
			}
		}
		x.tokens = append(x.tokens, d.Token)
		errs, err := s.Settle(x.t.Context(), []punctual.Settlement{{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleRelease}})
		if err != nil || errs[0] != nil {
			x.t.Fatalf("P4: release with token %d: %v, %v", d.Token, errs, err)
		}
	}
	out, err := s.Amend(x.t.Context(), []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: "orders", ID: x.id}})
	if err != nil || out[0].Err != nil {
		x.t.Fatalf("cancel = %+v, %v", out, err)
	}
}

// P4: the tokens of an ID grow although the clock stands still, and the topic is deleted and comes
// again. It comes with fewer partitions, or more, so that the ID is in one with a counter of its
// own.
func TestTokensGrowAcrossDeletions(t *testing.T) {
	s, clock := openStill(t, Options{})
	x := &tokensGrow{t: t, id: wanderer()}
	for _, size := range []int{8, 1, 4, 1, 8} {
		s := openStore(t, s.client, &Options{Prefix: s.opt.Prefix, Partitions: size, clock: clock})
		x.use(s, 5)
		if _, err := s.DeleteTopic(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
	}
}

// P8: an answer that is given again has the time at which it is given again, not that of the first
// copy.
func TestAnswerGivenAgainTellsTheTime(t *testing.T) {
	server := redisrig.Start(t)
	s, p := openBehind(t, server, nil)
	sure := openStore(t, connect(t, server), nil)
	lost := p.Lose(1, runs(script.Push)).Paused()
	got := begin(func() (string, error) {
		rs, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: "x"}})
		return fmt.Sprint(rs), err
	})
	lost.Await()
	before := now(t, sure)
	later := before
	for !later.After(before) {
		later = now(t, sure)
	}
	lost.Resume()
	if a := <-got; a.err != nil {
		t.Fatal(a.err)
	}
	if got := s.clock.LowerBound(); got < later.UnixMilli() {
		t.Errorf("P8: the store knows of time %d; want %d or later", got, later.UnixMilli())
	}
}

// P8: a partition's clock goes on for a process that was never told of it, though the server's was
// set back meanwhile. A time that a process has heard from one partition also holds for it in all
// others.
func TestClockOfPartitionAndOfProcess(t *testing.T) {
	old, clock := openStill(t, Options{})
	start := clock.Now()
	clock.Advance(time.Hour)
	push(t, old, punctual.NewMessage{ID: "x", Due: start.Add(30 * time.Minute)})
	clock.Set(start)
	young := openStore(t, connect(t, shared), &Options{Prefix: old.opt.Prefix, clock: clock})
	if d := claimOne(t, young, 0); d.ID != "x" || d.Delivered.Before(start.Add(time.Hour)) {
		t.Errorf("P8: %s was delivered at %v; want x, not before the time at which it was pushed", d.ID, d.Delivered)
	}
	for name, s := range map[string]*Store{"that has pushed": old, "that has claimed": young} {
		rs, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "other", ID: name}})
		if err != nil || rs[0].Due.Before(start.Add(time.Hour)) {
			t.Errorf("P8: the process %s pushed %+v, %v; want it due when that was, or later", name, rs, err)
		}
	}
}
