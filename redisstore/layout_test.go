package redisstore

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
)

// P12: a message that was rescheduled before its first claim is due at the time to which it was
// rescheduled, not at the time in its record.
func TestRescheduledBeforeFirstClaim(t *testing.T) {
	s := openStore(t, connect(t, shared), &Options{Prefix: fresh()})
	push(t, s, punctual.NewMessage{ID: "moved", Delay: time.Hour}, punctual.NewMessage{ID: "other", Due: time.Unix(2, 0)})
	due := time.Unix(1, 0).UTC()
	if _, err := s.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeReschedule, Topic: "orders", ID: "moved", Due: due}}); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []punctual.Verb{punctual.SettleRelease, punctual.SettleAck} {
		wantSound(t, s)
		d := claimOne(t, s, 0)
		if d.ID != "moved" || !d.Due.Equal(due) || !d.FirstDue.Equal(due) {
			t.Fatalf("P12: claimed %s, due %v, first %v; want moved, due %v", d.ID, d.Due, d.FirstDue, due)
		}
		if _, err := s.Settle(t.Context(), []punctual.Settlement{{Topic: "orders", ID: d.ID, Token: d.Token, Verb: verb}}); err != nil {
			t.Fatal(err)
		}
	}
	if d := claimOne(t, s, 0); d.ID != "other" {
		t.Fatalf("claimed %s; want other", d.ID)
	}
	wantSound(t, s)
}

// withoutState reports whether a lease is compact, so without a state, as the fast path of claims
// gives it.
func withoutState(t *testing.T, s *Store, d punctual.Delivery) bool {
	t.Helper()
	score, err := s.client.ZScore(t.Context(), s.names.Partition("orders", 0).Keys()[1], d.ID).Result()
	if err != nil {
		t.Fatal(err)
	}
	return score != math.Trunc(score)
}

// A message that was rescheduled and waits does not keep others off the fast path of claims.
func TestFastPathBesideARescheduledMessage(t *testing.T) {
	s, clock := openStill(t, Options{})
	clock.Advance(time.Millisecond) // at a multiple of 256 ms claims take the general path, because they tidy
	push(t, s, punctual.NewMessage{ID: "moved", Delay: time.Hour}, punctual.NewMessage{ID: "other", Due: time.Unix(1, 0)})
	out, err := s.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeReschedule, Topic: "orders", ID: "moved", Delay: 2 * time.Hour}})
	if err != nil || out[0].Err != nil {
		t.Fatal(out, err)
	}
	if d := claimOne(t, s, 0); d.ID != "other" || !withoutState(t, s, d) {
		t.Errorf("%s was leased with a state; want other, without", d.ID)
	}
	wantSound(t, s)
}

// P14: a call that reschedules many large messages is several scripts, none of which reads much
// more than 1 MiB.
func TestRescheduleOfLargeMessages(t *testing.T) {
	const many, kib = 20, 512 << 10
	s := openStore(t, connect(t, shared), &Options{Prefix: fresh()})
	as := make([]punctual.Amendment, many)
	for i := range many {
		id := fmt.Sprint(i)
		push(t, s, punctual.NewMessage{ID: id, Delay: time.Hour, Body: make([]byte, kib)})
		as[i] = punctual.Amendment{Change: punctual.ChangeReschedule, Topic: "orders", ID: id, Due: time.Unix(int64(i), 0)}
	}
	before := calls(t, shared)
	out, err := s.Amend(t.Context(), as)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range out {
		if a.Err != nil || !a.Due.Equal(as[i].Due) {
			t.Errorf("%d is due %v, %v; want %v", i, a.Due, a.Err, as[i].Due)
		}
	}
	if n := calls(t, shared) - before; n < many/2 {
		t.Errorf("P14: %d messages of %d bytes were rescheduled by %d scripts", many, kib, n)
	}
	wantSound(t, s)
	if d := claimOne(t, s, 0); d.ID != "0" || len(d.Body) != kib {
		t.Errorf("P12: claimed %s with %d bytes; want the earliest", d.ID, len(d.Body))
	}
}

// Redis keeps states in a table, however few and short they are.
func TestStatesAreATable(t *testing.T) {
	server := redisrig.Start(t)
	s := openStore(t, connect(t, server), nil)
	push(t, s, punctual.NewMessage{ID: "x", Due: time.Unix(1, 0)})
	d := claimOne(t, s, 0)
	if _, err := s.Settle(t.Context(), []punctual.Settlement{{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleRetry}}); err != nil {
		t.Fatal(err)
	}
	states := s.names.Partition("orders", 0).Keys()[5]
	if got := do(t, server, "OBJECT", "ENCODING", states); got != "hashtable" {
		t.Errorf("%s is a %s; want a hashtable", states, got)
	}
	wantSound(t, s)
}

// Redis keeps leased messages, and those that are due soon, in tables from the eighth on, so that
// scripts need not go through all of them for each one. The member that makes a set a table is not
// left behind. Fewer messages are in lists.
func TestSetsOfManyAreTables(t *testing.T) {
	const few = 8 // large.FEW of lua/large_sets.lua
	onBothPaths(t, func(t *testing.T, o Options) {
		s, clock := openStill(t, o)
		fast := o.general == nil
		want := func(key, what, encoding string, n int) {
			t.Helper()
			got, has := do(t, shared, "OBJECT", "ENCODING", key), do(t, shared, "ZCARD", key)
			if got != encoding || has != strconv.Itoa(n) {
				t.Errorf("%d %s messages are %s members of a %s; want a %s", n, what, has, got, encoding)
			}
		}
		add := func(n int) {
			t.Helper()
			ms := make([]punctual.NewMessage, n)
			for i := range ms {
				ms[i].Due = time.Unix(1, 0)
			}
			push(t, s, ms...)
		}
		keys := s.names.Partition("orders", 0).Keys()
		waiting, leased := keys[0], keys[1]
		claim := func(n int) []punctual.Delivery {
			t.Helper()
			clock.Advance(time.Millisecond)
			ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: n, Lease: time.Hour})
			if err != nil || len(ds) != n {
				t.Fatalf("claimed %d of %d, %v", len(ds), n, err)
			}
			if withoutState(t, s, ds[0]) != fast {
				t.Fatalf("this test shows nothing: the claim took the fast path: %t", !fast)
			}
			return ds
		}
		for _, first := range []int{few, 1, few - 1} { // so many are claimed at once, and the others up to few one by one
			add(few - 1)
			want(waiting, "waiting", "listpack", few-1)
			add(few + 1)
			wantSound(t, s)
			ds := claim(first)
			for len(ds) < few {
				want(leased, "leased", "listpack", len(ds))
				ds = append(ds, claim(1)...)
			}
			want(leased, "leased", "skiplist", few)
			wantSound(t, s)
			ds = append(ds, claim(few)...)
			settled(t, s, acks(ds))
			add(few)
			want(waiting, "waiting", "skiplist", few)
			settled(t, s, acks(claim(few)))
			if do(t, shared, "EXISTS", waiting, leased) != "0" {
				t.Errorf("members are left when no message is")
			}
		}
		ms := make([]punctual.NewMessage, 2*few)
		for i := range ms {
			ms[i].Delay = time.Hour // a table would take more memory for all that time
		}
		push(t, s, ms...)
		want(waiting, "waiting", "listpack", 2*few)
	})
}

// A push of many to a partition whose waiting messages are of a wrong type stores nothing, also on
// the fast path.
func TestPushOfManyToWrongType(t *testing.T) {
	onBothPaths(t, func(t *testing.T, o Options) {
		s, _ := openStill(t, o)
		push(t, s, punctual.NewMessage{ID: "first"})
		keys := s.names.Partition("orders", 0).Keys()
		do(t, shared, "DEL", keys[0])
		do(t, shared, "SET", keys[0], "no set")
		for _, delay := range []time.Duration{0, time.Hour} {
			ms := make([]punctual.NewMessage, 100)
			for i := range ms {
				ms[i] = punctual.NewMessage{Topic: "orders", Delay: delay}
			}
			if rs, err := s.Push(t.Context(), ms); err == nil || !punctual.Definite(err) {
				t.Errorf("P13: pushed for %v: %v, %v; want an error that is definite", delay, rs, err)
			}
			if got := do(t, shared, "HLEN", keys[4]); got != "1" {
				t.Errorf("a push for %v that failed left %s messages; want the first one alone", delay, got)
			}
		}
	})
}

// Check finds a message that waits for another time than its record has.
func TestCheckFindsWrongTime(t *testing.T) {
	server := redisrig.Start(t)
	s := openStore(t, connect(t, server), nil)
	push(t, s, punctual.NewMessage{ID: "x", Delay: time.Hour})
	do(t, server, "ZADD", s.names.Partition("orders", 0).Keys()[0], "1", "x")
	r, err := s.Check(t.Context(), nil)
	if err != nil || len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "another time") {
		t.Errorf("Check = %q, %v; want one problem, the time of x", r.Problems, err)
	}
}

func wantSound(t *testing.T, s *Store) {
	t.Helper()
	r, err := s.Check(t.Context(), nil)
	if err != nil || len(r.Problems) > 0 {
		t.Errorf("Check = %q, %v; want no problem", r.Problems, err)
	}
}
