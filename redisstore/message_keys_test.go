package redisstore

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/storekit"
)

// keyedOrders makes orders a topic with keys, each of which has one lease at a time.
func keyedOrders(t *testing.T, s *Store) {
	t.Helper()
	keyed, one := true, 1
	if _, err := s.Configure(t.Context(), "orders", punctual.SettingsPatch{Keyed: &keyed, MaxKeyLeases: &one}); err != nil {
		t.Fatal(err)
	}
}

// ofKey returns a message that is due, with the stem of its ID as its key.
func ofKey(id string) punctual.NewMessage {
	return punctual.NewMessage{ID: id, Key: storekit.Stem(id), Due: time.Unix(1, 0)}
}

// P1: Check finds a key that has lost its head, which no operation does, and claims repair it.
func TestKeyWithoutHead(t *testing.T) {
	for name, damage := range map[string]func(names []string) [][]string{
		"in q": func(names []string) [][]string { return [][]string{{"ZREM", names[0], "a~1"}, {"HDEL", names[2], "a"}} },
		"of another": func(names []string) [][]string {
			return [][]string{{"ZREM", names[0], "a~1"}, {"ZADD", names[0], "1", "a~2"}, {"HSET", names[2], "a", strings.Repeat("\x00", 28) + "\x13\x00" + strings.Repeat("\x00", 16) + "a~2"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, clock := openStill(t, Options{})
			keyedOrders(t, s)
			push(t, s, ofKey("a~1"), ofKey("a~2"), ofKey("b~1"))
			wantSound(t, s)
			for _, words := range damage(s.names.Partition("orders", 0).Keyed()) {
				do(t, shared, words...)
			}
			if r, err := s.Check(t.Context(), nil); err != nil || len(r.Problems) == 0 || !strings.Contains(r.Problems[0], "head") {
				t.Fatalf("Check = %q, %v; want the key without its head", r.Problems, err)
			}
			clock.Advance(time.Duration(256-clock.Now().UnixMilli()%256) * time.Millisecond) // then claims tidy
			got := map[string]bool{}
			for range 2 {
				got[claimOne(t, s, 0).ID] = true
			}
			if !got["a~1"] || !got["b~1"] {
				t.Errorf("P1: claims got %v; want a~1 and b~1", got)
			}
			wantSound(t, s)
		})
	}
}

// P12: the hash k has the first messages of a key that wait. One that comes between them is
// delivered in its place, and one that leaves is not missed.
func TestFirstMessagesOfAKey(t *testing.T) {
	s, _ := openStill(t, Options{})
	keyedOrders(t, s)
	due := func(id string, at int64) punctual.NewMessage {
		m := ofKey(id)
		m.Due = time.UnixMilli(at)
		return m
	}
	for i := range int64(7) {
		push(t, s, due(fmt.Sprint("a~", i), 1000*i))
	}
	ack(t, s, claimOne(t, s, 0))
	key := s.names.Partition("orders", 0).Keyed()[2]
	if raw := do(t, shared, "HGET", key, "a"); !strings.Contains(raw, "a~1") || !strings.Contains(raw, "a~3") || strings.Contains(raw, "a~6") {
		t.Fatalf("this test shows nothing: %s has %q of the key; want some of its first messages", key, raw)
	}
	push(t, s, due("a~between", 2500))
	wantSound(t, s)
	if out, err := s.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: "orders", ID: "a~3"}}); err != nil || out[0].Err != nil {
		t.Fatal(out, err)
	}
	wantSound(t, s)
	push(t, s, due("a~first", 500))
	wantSound(t, s)
	for _, want := range []string{"a~first", "a~1", "a~2", "a~between", "a~4", "a~5", "a~6"} {
		d := claimOne(t, s, 0)
		if d.ID != want {
			t.Errorf("P12: a claim got %s; want %s", d.ID, want)
		}
		wantSound(t, s)
		ack(t, s, d)
	}
}

// P3: where a claim ends two messages of a key, whose leases have run out, the next one is
// delivered once.
func TestTwoOfAKeyEndInAClaim(t *testing.T) {
	s, clock := openStill(t, Options{})
	keyed, two, once := true, 2, 1
	if _, err := s.Configure(t.Context(), "orders", punctual.SettingsPatch{Keyed: &keyed, MaxKeyLeases: &two, MaxAttempts: &once}); err != nil {
		t.Fatal(err)
	}
	push(t, s, ofKey("a~1"), ofKey("a~2"), ofKey("a~3"))
	for i, want := range []string{"a~1 a~2", "a~3"} {
		ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 9})
		var got []string
		for _, d := range ds {
			got = append(got, d.ID)
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Fatalf("claim %d got %v, %v; want %s", i, got, err, want)
		}
		clock.Advance(time.Minute)
	}
	wantSound(t, s)
}

// P1: Check finds that a key of Redis was lost, claims make it anew and say so in the server's log,
// and every message comes as if it had been there.
func TestLostKeyOfRedis(t *testing.T) {
	for i, name := range []string{"q", "w", "k"} {
		t.Run(name, func(t *testing.T) {
			s, clock := openStill(t, Options{})
			keyedOrders(t, s)
			var ms []punctual.NewMessage
			for n := range 150 { // more than a piece of the repair
				id := fmt.Sprintf("k%d~%d", n, n)
				ms = append(ms, ofKey(id), ofKey(id+"b"), punctual.NewMessage{ID: fmt.Sprint("plain", n), Due: time.Unix(1, 0)})
			}
			push(t, s, ms...)
			leased := map[string]bool{} // keys
			if name != "q" {            // which is missed when nothing is leased
				leased[claimOne(t, s, 0).Key] = true
			}
			lost := s.names.Partition("orders", 0).Keyed()[i]
			if do(t, shared, "DEL", lost) != "1" {
				t.Fatal("this test shows nothing: there was no such key")
			}
			if r, err := s.Check(t.Context(), nil); err != nil || len(r.Problems) == 0 {
				t.Errorf("P1: Check = %q, %v; want that %s was lost", r.Problems, err, lost)
			}
			plain := 0
			for range 50 {
				clock.Advance(256*time.Millisecond - time.Duration(clock.Now().UnixMilli()%256)*time.Millisecond) // then claims tidy
				ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 100, Lease: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				for _, d := range ds {
					if d.Key == "" {
						plain++
					} else if leased[d.Key] {
						t.Errorf("P3: two messages of the key %s are leased at once", d.Key)
					} else {
						leased[d.Key] = true
					}
				}
			}
			if plain != 150 || len(leased) != 150 {
				t.Errorf("P1: claims got %d messages without a key, and one of %d keys; want 150 and 150", plain, len(leased))
			}
			wantSound(t, s)
			log, err := os.ReadFile(filepath.Join(shared.Dir, "redis.log"))
			if err != nil || !strings.Contains(string(log), lost) {
				t.Errorf("P13: the server's log does not name %s, %v", lost, err)
			}
		})
	}
}

// P1, P3: a server that loses its scripts, and then everything, in the midst of work with keys.
func TestFlushWithKeys(t *testing.T) {
	server := redisrig.Start(t)
	s := openStore(t, connect(t, server), nil)
	keyedOrders(t, s)
	push(t, s, ofKey("a~1"), ofKey("a~2"))
	d := claimOne(t, s, time.Hour)
	do(t, server, "SCRIPT", "FLUSH")
	if ds, err := s.Claim(t.Context(), orders(0)); err != nil || len(ds) > 0 {
		t.Errorf("P3: behind SCRIPT FLUSH, with one of the key leased, a claim got %v, %v", ds, err)
	}
	do(t, server, "SCRIPT", "FLUSH")
	ack(t, s, d)
	d = claimOne(t, s, time.Hour)
	do(t, server, "FLUSHALL")
	if errs, err := s.Settle(t.Context(), acks([]punctual.Delivery{d})); err == nil && errs[0] == nil {
		t.Error("P4: behind FLUSHALL an ack of a lease from before was taken")
	}
	s = openStore(t, connect(t, server), nil) // the one before has learned that its store is gone
	push(t, s, punctual.NewMessage{ID: "a~3", Key: "a"})
	if set, err := s.Settings(t.Context(), "orders"); err != nil || !set.Keyed {
		t.Errorf("the topic that came into being anew has the settings %+v, %v; want keys", set, err)
	}
	if d := claimOne(t, s, 0); d.ID != "a~3" {
		t.Errorf("P1: a claim got %s; want a~3", d.ID)
	}
	wantSound(t, s)
}

// P1, P3: the primary dies in the midst of promotions, again and again, and a replica that has any
// part of what was done takes over. No key is left without a head, and none has more leases than it
// may.
func TestSlowKeysThroughFailovers(t *testing.T) {
	const keys, each = 20, 150
	for round := range 3 {
		primary := redisrig.Start(t)
		replica := redisrig.StartReplica(t, primary)
		s := openStore(t, connect(t, primary), &Options{slack: time.Minute})
		keyedOrders(t, s)
		var ms []punctual.NewMessage
		for n := range keys * each {
			ms = append(ms, ofKey(fmt.Sprintf("k%d~%d", n%keys, n)))
		}
		push(t, s, ms...)
		awaitReplica(t, primary)
		done, working := make(chan int), make(chan struct{}, 1<<16)
		go func() {
			n := 0
			defer func() { done <- n }()
			for {
				ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 7, Lease: time.Hour})
				if err == nil && len(ds) > 0 {
					_, err = s.Settle(t.Context(), acks(ds))
				}
				if err != nil || len(ds) == 0 {
					return
				}
				n += len(ds)
				working <- struct{}{}
			}
		}()
		for range 5 + 20*round {
			<-working
		}
		if err := primary.Kill(); err != nil {
			t.Fatal(err)
		}
		if n := <-done; n == keys*each {
			t.Fatal("this test shows nothing: everything was acked before the primary died")
		}
		do(t, replica, "REPLICAOF", "NO", "ONE")
		after := openStore(t, connect(t, replica), nil)
		wantSound(t, after)
		// What was claimed and not acked keeps its lease, so its keys wait; all else comes.
		st, err := after.Stats(t.Context(), "orders")
		if err != nil || st.Leased > 7 || st.Ready+st.Leased == 0 {
			t.Fatalf("round %d: behind the failover stats are %+v, %v", round, st, err)
		}
		held := map[string]bool{}
		infos, err := after.List(t.Context(), punctual.ListQuery{Topic: "orders", State: punctual.StateLeased, Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range infos.Messages {
			held[i.Key] = true
		}
		for {
			ds, err := after.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 100, Lease: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			if len(ds) == 0 {
				break
			}
			seen := map[string]bool{}
			for _, d := range ds {
				if seen[d.Key] || held[d.Key] {
					t.Fatalf("P3: round %d: a claim got two of the key %s, or one that had a lease", round, d.Key)
				}
				seen[d.Key] = true
			}
			settled(t, after, acks(ds))
		}
		left, err := after.List(t.Context(), punctual.ListQuery{Topic: "orders", State: punctual.StateReady, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range left.Messages {
			if !held[i.Key] {
				t.Fatalf("P1: round %d: %s never comes: no message of its key is leased", round, i.ID)
			}
		}
		wantSound(t, after)
	}
}

// A copy of a claim has the turns, too, and changes no head.
func TestCopyOfAClaimOfKeys(t *testing.T) {
	s, clock := openStill(t, Options{})
	keyedOrders(t, s)
	push(t, s, ofKey("a~1"), ofKey("a~2"), ofKey("b~1"))
	var first string
	for range 2 {
		ds, err := s.Claim(keyedBy(t.Context(), "k"), punctual.Claim{Topics: []string{"orders"}, Max: 9})
		if err != nil || len(ds) != 2 || ds[0].Turn.IsZero() {
			t.Fatalf("claim = %v, %v; want a~1 and b~1 with their turns", ds, err)
		}
		if got := fmt.Sprintf("%+v", ds); first == "" {
			first = got
		} else if got != first {
			t.Errorf("P3: the copy is answered\n%s\nthe first one was\n%s", got, first)
		}
		clock.Advance(time.Second)
	}
	wantSound(t, s)
}

// A bound that is raised, and an order that begins, reach thousands of keys by pieces that claims
// make.
func TestBoundOfManyKeys(t *testing.T) {
	const keys = 1500 // more than Configure goes through
	s, clock := openStill(t, Options{})
	keyedOrders(t, s)
	var ms []punctual.NewMessage
	for n := range keys {
		ms = append(ms, ofKey(fmt.Sprintf("k%d~1", n)), ofKey(fmt.Sprintf("k%d~2", n)))
	}
	push(t, s, ms...)
	take := func(want int, when string) (ds []punctual.Delivery) {
		t.Helper()
		for {
			some, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 500})
			if err != nil {
				t.Fatal(err)
			}
			if ds = append(ds, some...); len(some) == 0 {
				break
			}
		}
		if len(ds) != want {
			t.Fatalf("%s, claims got %d; want %d", when, len(ds), want)
		}
		return ds
	}
	take(keys, "at one lease of each key")
	two, inOrder := 2, true
	if _, err := s.Configure(t.Context(), "orders", punctual.SettingsPatch{MaxKeyLeases: &two}); err != nil {
		t.Fatal(err)
	}
	if left := do(t, shared, "HEXISTS", s.names.Partition("orders", 0).Keys()[6], "walk"); left != "1" {
		t.Fatal("this test shows nothing: Configure has gone through all keys")
	}
	ds := take(keys, "at two leases of each key")
	if _, err := s.Configure(t.Context(), "orders", punctual.SettingsPatch{InOrder: &inOrder}); err != nil {
		t.Fatal(err)
	}
	var ss []punctual.Settlement
	for _, d := range ds {
		ss = append(ss, punctual.Settlement{Topic: "orders", ID: d.ID, Token: d.Token, Verb: punctual.SettleRelease})
	}
	settled(t, s, ss)
	take(0, "in order, with one leased of each key")
	clock.Advance(time.Minute)
	take(keys, "in order, when the leases have run out")
	wantSound(t, s)
}

// A topic without keys has none of the further keys in Redis, and its scripts are not given them.
func TestKeysCostNothing(t *testing.T) {
	server := redisrig.Start(t)
	s := openStore(t, connect(t, server), nil)
	push(t, s, punctual.NewMessage{ID: "a", Due: time.Unix(1, 0)})
	ack(t, s, claimOne(t, s, 0))
	p := s.names.Partition("orders", 0)
	if got := do(t, server, append([]string{"EXISTS"}, p.Keyed()...)...); got != "0" {
		t.Errorf("%s of the keys of a topic with keys are there in one without", got)
	}
	keyed := true
	if _, err := s.Configure(t.Context(), "mails", punctual.SettingsPatch{Keyed: &keyed}); err != nil {
		t.Fatal(err)
	}
	push(t, s, punctual.NewMessage{Topic: "mails", ID: "a~1", Key: "a"})
	mails := s.names.Partition("mails", 0)
	if got := do(t, server, append([]string{"EXISTS"}, mails.Keyed()...)...); got == "0" {
		t.Fatal("this test shows nothing: a topic with keys has none of them either")
	}
	if _, err := s.DeleteTopic(t.Context(), "mails"); err != nil {
		t.Fatal(err)
	}
	if got := do(t, server, append([]string{"EXISTS"}, mails.Keyed()...)...); got != "0" {
		t.Errorf("%s of these keys are left behind a deletion", got)
	}
}

// P11: a process whose claim found nothing hears from another one that the turn of a message has
// come. The clock stands still, so no poll comes by itself. The event happens only once the claim
// has heard that its channel is subscribed and has run no script for a while, because a claim that
// still looks would find the message without being told.
func TestKeysWakeClaims(t *testing.T) {
	events := map[string]func(t *testing.T, s *Store, d punctual.Delivery){
		"an ack": func(t *testing.T, s *Store, d punctual.Delivery) { ack(t, s, d) },
		"a raised bound": func(t *testing.T, s *Store, _ punctual.Delivery) {
			two := 2
			if _, err := s.Configure(t.Context(), "orders", punctual.SettingsPatch{MaxKeyLeases: &two}); err != nil {
				t.Fatal(err)
			}
		},
		"a delete": func(t *testing.T, s *Store, d punctual.Delivery) {
			if out, err := s.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeDelete, Topic: "orders", ID: d.ID}}); err != nil || out[0].Err != nil {
				t.Fatal(out, err)
			}
		},
		"a purge": func(t *testing.T, s *Store, _ punctual.Delivery) {
			if _, err := s.Purge(t.Context(), punctual.PurgeQuery{Topic: "orders", State: punctual.StateLeased}); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, event := range events {
		t.Run(name, func(t *testing.T) {
			server := redisrig.Start(t)
			clock := storekit.NewManualClock(time.Unix(1_800_000_000, 1e6))
			s := openStore(t, connect(t, server), &Options{clock: clock})
			other := openStore(t, connect(t, server), &Options{clock: clock})
			keyedOrders(t, s)
			push(t, s, ofKey("a~1"), ofKey("a~2"))
			d := claimOne(t, s, 0)
			got := make(chan []punctual.Delivery, 1)
			go func() {
				ds, err := other.Claim(t.Context(), orders(time.Hour))
				if err != nil {
					t.Error(err)
				}
				got <- ds
			}()
			channel := s.names.Partition("orders", 0).Channel()
			calls, same := "", 0
			waitUntil(t, "a claim sleeps", func() bool {
				now := strings.Split(do(t, server, "INFO", "commandstats"), "cmdstat_evalsha:")[1]
				now, _, _ = strings.Cut(now, ",")
				if same++; now != calls || !strings.Contains(do(t, server, "PUBSUB", "NUMSUB", channel), "1") {
					calls, same = now, 0
				}
				return same > 20
			})
			event(t, s, d)
			select {
			case ds := <-got:
				if len(ds) != 1 || ds[0].ID != "a~2" {
					t.Errorf("P11: after %s a waiting claim returned %v; want a~2", name, ds)
				}
			case <-time.After(5 * time.Second):
				t.Errorf("P11: after %s a waiting claim of another process still sleeps", name)
			}
		})
	}
}
