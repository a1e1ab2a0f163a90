package redisstore

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/storekit"
)

// members returns how many members a sorted set of partition 0 of orders has.
func members(t *testing.T, server *redisrig.Server, set string) int {
	t.Helper()
	n, err := strconv.Atoi(do(t, server, "ZCARD", "punctual:{orders#0}:"+set))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Dead messages and finished IDs that are past their retention are deleted, also in a topic that
// nobody changes but consumers claim from.
func TestIdleTopicIsSwept(t *testing.T) {
	server := redisrig.Start(t)
	clock := storekit.NewManualClock(time.Unix(1_800_000_000, 0))
	s := openStore(t, connect(t, server), &Options{clock: clock})
	held := situations(t, s) // one message is dead, one finished ID is remembered
	ack(t, s, held)
	if members(t, server, "d") != 1 || members(t, server, "f") != 2 {
		t.Fatalf("%d dead, %d finished; want 1 and 2", members(t, server, "d"), members(t, server, "f"))
	}
	keep, all := time.Minute, time.Hour
	if _, err := s.Configure(t.Context(), "orders", punctual.SettingsPatch{DeadRetention: &keep}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: "orders", ID: "ready"}, {Change: punctual.ChangeCancel, Topic: "orders", ID: "scheduled"}}); err != nil {
		t.Fatal(err)
	}
	clock.Advance(2 * all)
	for claims := 0; members(t, server, "d")+members(t, server, "f") > 0; claims++ {
		if claims == 20 {
			t.Fatalf("after %d claims %d dead and %d finished are left", claims, members(t, server, "d"), members(t, server, "f"))
		}
		clock.Advance(time.Millisecond)
		if ds, err := s.Claim(t.Context(), orders(0)); err != nil || len(ds) > 0 {
			t.Fatalf("claimed %v, %v; want nothing", ds, err)
		}
	}
	if r, err := s.Check(t.Context(), nil); err != nil || len(r.Problems) > 0 {
		t.Errorf("after the sweep: %q, %v", r.Problems, err)
	}
}

// P10: finished IDs whose time is over are deleted as fast as large batches bring new ones.
func TestFinishedDoNotPileUp(t *testing.T) {
	server := redisrig.Start(t)
	clock := storekit.NewManualClock(time.Unix(1_800_000_000, 0))
	s := openStore(t, connect(t, server), &Options{clock: clock})
	remember := time.Millisecond
	if _, err := s.Configure(t.Context(), "orders", punctual.SettingsPatch{DedupeWindow: &remember}); err != nil {
		t.Fatal(err)
	}
	for round := range 8 {
		var ms []punctual.NewMessage
		for i := range script.Items {
			ms = append(ms, punctual.NewMessage{Topic: "orders", ID: fmt.Sprint(round, "-", i)})
		}
		if _, err := s.Push(t.Context(), ms); err != nil {
			t.Fatal(err)
		}
		clock.Advance(10 * time.Millisecond)
		ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: script.Items})
		if err != nil || len(ds) != script.Items {
			t.Fatalf("claimed %d, %v; want %d", len(ds), err, script.Items)
		}
		var ss []punctual.Settlement
		for _, d := range ds {
			ss = append(ss, punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck})
		}
		if _, err := s.Settle(t.Context(), ss); err != nil {
			t.Fatal(err)
		}
	}
	if n := members(t, server, "f"); n > 2*script.Items {
		t.Errorf("P10: %d finished IDs are still there; want those of the last rounds", n)
	}
}
