package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/route"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/storekit"
)

// then returns a settlement of d with follow-ups.
func then(d punctual.Delivery, v punctual.Verb, ms ...punctual.NewMessage) punctual.Settlement {
	return punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: v, Then: ms}
}

// held pushes messages to orders, leases them, and returns the leases in the order of the IDs.
func held(t testing.TB, s *Store, ids ...string) []punctual.Delivery {
	t.Helper()
	ms := make([]punctual.NewMessage, len(ids))
	for i, id := range ids {
		ms[i] = punctual.NewMessage{ID: id, Due: time.Unix(1, 0)}
	}
	push(t, s, ms...)
	ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: len(ids), Lease: time.Hour})
	for err == nil && len(ds) < len(ids) {
		var more []punctual.Delivery
		if more, err = s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: len(ids), Lease: time.Hour}); len(more) == 0 {
			break
		}
		ds = append(ds, more...)
	}
	if err != nil || len(ds) != len(ids) {
		t.Fatalf("leased %d of %d, %v", len(ds), len(ids), err)
	}
	slices.SortFunc(ds, func(a, b punctual.Delivery) int { return strings.Compare(a.ID, b.ID) })
	return ds
}

// idsOf returns the IDs of all live messages of a topic, sorted.
func idsOf(t testing.TB, s *Store, topic string) []string {
	t.Helper()
	ids := []string{}
	for _, state := range []punctual.State{punctual.StateScheduled, punctual.StateReady, punctual.StateLeased} {
		page, err := s.List(t.Context(), punctual.ListQuery{Topic: topic, State: state, Limit: 10_000})
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Messages {
			ids = append(ids, page.Messages[i].ID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids) // a message that became due in between was listed twice
}

// On a cluster of three nodes a topic of four partitions has its messages acked with follow-ups:
// with the stem of the message and without an ID, for a companion and for the topic itself. All are
// stored where their IDs are at home, and delivered.
func TestSlowFollowUpsOnACluster(t *testing.T) {
	cluster := redisrig.StartCluster(t, 3, 0, "--appendonly", "no")
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	closeAtEnd(t, client.Close)
	s := openStore(t, client, &Options{Partitions: 4, slack: time.Minute})
	const many = 60
	ids := make([]string, many)
	for i := range ids {
		ids[i] = fmt.Sprintf("A-%02d", i)
	}
	ds := held(t, s, ids...)
	var ss []punctual.Settlement
	used := make(map[int]bool)
	for _, d := range ds {
		used[keys.OfToken(d.Token)] = true
		ss = append(ss, then(d, punctual.SettleAck,
			punctual.NewMessage{Topic: "orders@bills", ID: d.ID + "~bill"}, punctual.NewMessage{Topic: "orders@bills"}, punctual.NewMessage{Topic: "orders"}))
	}
	if len(used) != 4 {
		t.Fatalf("this test shows nothing: the messages are in partitions %v", used)
	}
	settled(t, s, ss)
	wantSound(t, s)
	for topic, want := range map[string]int{"orders": many, "orders@bills": 2 * many} {
		for _, id := range idsOf(t, s, topic) {
			p := s.names.Partition(topic, keys.Home(id, 4))
			if _, err := client.ZScore(t.Context(), p.Keys()[0], id).Result(); err != nil {
				t.Errorf("%s of %s is not at home: %v", id, topic, err)
			}
		}
		for got := 0; got < want; {
			ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{topic}, Max: want, Wait: time.Minute})
			if err != nil || len(ds) == 0 {
				t.Fatalf("P1: of %d messages of %s %d were delivered, %v", want, topic, got, err)
			}
			got += len(ds)
			settled(t, s, acks(ds))
		}
	}
}

// A follow-up that is not in the hash slot of the settled message is not supported, and then
// nothing has changed: one in another topic, in a companion of another topic, or with an ID of
// another partition. In the topic and its companions an ID with the same stem is in reach.
func TestFollowUpsOutOfReach(t *testing.T) {
	s := openStore(t, connect(t, shared), &Options{Prefix: fresh(), Partitions: 4})
	d := held(t, s, "A")[0]
	far := idWhere(func(id string) bool { return keys.Home(id, 4) != keys.Home("A", 4) })
	good := punctual.NewMessage{Topic: "orders@bills", ID: "A~bill", Due: time.Unix(1, 0)}
	for name, m := range map[string]punctual.NewMessage{
		"another topic":                {Topic: "bills", ID: "A~2"},
		"a companion of another topic": {Topic: "bills@orders", ID: "A~2"},
		"another partition":            {Topic: "orders", ID: far},
		"another one of a companion":   {Topic: "orders@bills", ID: far + "~2"},
	} {
		errs, err := s.Settle(t.Context(), []punctual.Settlement{then(d, punctual.SettleAck, good, m)})
		if err != nil {
			t.Fatal(err)
		}
		wantDefinite(t, "a follow-up in "+name, errs[0], punctual.ErrUnsupported)
		if ok, err := s.Reaches(t.Context(), d.Topic, d.ID, &m); ok || err != nil {
			t.Errorf("a follow-up in %s is reached: %t, %v; want false", name, ok, err)
		}
		if !strings.HasPrefix(errs[0].Error(), "follow-up 2: ") {
			t.Errorf("P13: a follow-up in %s: %v; want the number of the follow-up in front", name, errs[0])
		}
	}
	near := idWhere(func(id string) bool { return keys.Home(id, 4) == keys.Home("A", 4) })
	for _, m := range []punctual.NewMessage{good, {Topic: "orders@bills"}, {Topic: "orders", ID: near}} {
		if ok, err := s.Reaches(t.Context(), d.Topic, d.ID, &m); !ok || err != nil {
			t.Errorf("a follow-up %s/%s is reached: %t, %v; want true", m.Topic, m.ID, ok, err)
		}
	}
	wantTopics(t, s, "orders")
	settled(t, s, []punctual.Settlement{then(d, punctual.SettleAck, good, punctual.NewMessage{Topic: "orders", ID: near, Delay: time.Hour})})
	// From a companion, its topic and the other companions of that topic are in reach.
	bill, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders@bills"}, Max: 1})
	if err != nil || len(bill) != 1 {
		t.Fatal(bill, err)
	}
	settled(t, s, []punctual.Settlement{then(bill[0], punctual.SettleAck,
		punctual.NewMessage{Topic: "orders", ID: "A~3"}, punctual.NewMessage{Topic: "orders@notes"}, punctual.NewMessage{Topic: "orders@bills", ID: "A"})})
	wantTopics(t, s, "orders", "orders@bills", "orders@notes")
	wantSound(t, s)
}

// idWhere returns an ID whose homes are as wanted, or the empty string if there is none among the
// first 10,000.
func idWhere(want func(id string) bool) string {
	for i := range 10_000 {
		if id := fmt.Sprint("x", i); want(id) {
			return id
		}
	}
	return ""
}

// A topic was made anew with another number of partitions than a process knows. By the old number
// the process neither refuses a follow-up nor stores one.
func TestFollowUpsOfATopicMadeAnew(t *testing.T) {
	const before = 4
	cases := 0
	for _, size := range []int{1, 2, 3, 8} {
		// The message is in the same partition by both numbers. The follow-up near is in that
		// partition by the new number alone, and the follow-up far by the old number alone.
		id := idWhere(func(id string) bool { return keys.Home(id, before) == keys.Home(id, size) })
		home := keys.Home(id, size)
		for name, f := range map[string]string{
			"without an ID": "",
			"near":          idWhere(func(f string) bool { return keys.Home(f, before) != home && keys.Home(f, size) == home }),
			"far":           idWhere(func(f string) bool { return keys.Home(f, before) == home && keys.Home(f, size) != home }),
		} {
			if f == "" && name != "without an ID" {
				continue
			}
			cases++
			m := punctual.NewMessage{Topic: "orders@bills", ID: f}
			prefix := fresh()
			old := openStore(t, connect(t, shared), &Options{Prefix: prefix, Partitions: before})
			other := openStore(t, connect(t, shared), &Options{Prefix: prefix, Partitions: size})
			push(t, old, punctual.NewMessage{ID: "A", Delay: time.Hour})
			if _, err := other.DeleteTopic(t.Context(), "orders"); err != nil {
				t.Fatal(err)
			}
			push(t, other, punctual.NewMessage{Topic: "orders@bills", ID: "there"})
			errs, err := old.Settle(t.Context(), []punctual.Settlement{then(held(t, other, id)[0], punctual.SettleAck, m)})
			if err != nil {
				t.Fatal(err)
			}
			if name == "far" {
				wantDefinite(t, fmt.Sprintf("a follow-up in another one of %d partitions", size), errs[0], punctual.ErrUnsupported)
			} else if errs[0] != nil {
				t.Errorf("a follow-up %s, in the same one of %d partitions: %v", name, size, errs[0])
			}
			for _, id := range idsOf(t, other, "orders@bills") {
				p := other.names.Partition("orders@bills", keys.Home(id, size))
				if _, err := other.client.ZScore(t.Context(), p.Keys()[0], id).Result(); err != nil {
					t.Errorf("%s (%s) is not at home in one of %d partitions: %v", id, name, size, err)
				}
			}
			wantSound(t, other)
		}
	}
	if cases < 9 { // near with 1, 2 and 3 partitions, far with 3 and 8
		t.Errorf("this test shows nothing: there were %d cases", cases)
	}
}

// A server out of memory refuses settlements with follow-ups, definitely, also between others. The
// others pass, and so does a settlement with follow-ups once there is room.
func TestFollowUpsOutOfMemory(t *testing.T) {
	server := redisrig.Start(t)
	for _, partitions := range []int{1, 4} {
		s := openStore(t, connect(t, server), &Options{Prefix: fresh(), Partitions: partitions})
		push(t, s, punctual.NewMessage{Topic: "orders@bills", ID: "there", Delay: time.Hour})
		ids := []string{"a", "b", "c", "d", "e"}
		ds := held(t, s, ids...)
		bill := func(d punctual.Delivery) punctual.NewMessage {
			return punctual.NewMessage{Topic: "orders@bills", ID: d.ID + "~bill", Body: make([]byte, 1000)}
		}
		own := func(d punctual.Delivery) punctual.NewMessage {
			return punctual.NewMessage{Topic: "orders", ID: d.ID + "~2"}
		}
		retry := then(ds[2], punctual.SettleRetry)
		retry.Delay = time.Hour
		ss := []punctual.Settlement{
			then(ds[0], punctual.SettleAck), then(ds[1], punctual.SettleAck, bill(ds[1])), retry,
			then(ds[3], punctual.SettleDiscard, own(ds[3])), then(ds[4], punctual.SettleAck),
		}
		do(t, server, "CONFIG", "SET", "maxmemory", "1")
		if _, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: "more"}}); !errors.Is(err, punctual.ErrNoSpace) {
			t.Fatalf("this test shows nothing: push to a server out of memory = %v; want ErrNoSpace", err)
		}
		errs, err := s.Settle(t.Context(), ss)
		if err != nil {
			t.Fatal(err)
		}
		for i, err := range errs {
			if len(ss[i].Then) > 0 {
				wantDefinite(t, fmt.Sprintf("settlement %d with a follow-up on a server out of memory", i), err, punctual.ErrNoSpace)
				if !strings.HasPrefix(err.Error(), "follow-up 1: ") {
					t.Errorf("P13: %v; want the number of the follow-up in front", err)
				}
			} else if err != nil {
				t.Errorf("settlement %d on a server out of memory: %v; want it to pass", i, err)
			}
		}
		// A follow-up for a topic that is not there is refused as well, and the topic is not made.
		errs, err = s.Settle(t.Context(), []punctual.Settlement{then(ds[1], punctual.SettleAck, punctual.NewMessage{Topic: "orders@new"})})
		if err != nil {
			t.Fatal(err)
		}
		wantDefinite(t, "a follow-up for a new topic on a server out of memory", errs[0], punctual.ErrNoSpace)
		do(t, server, "CONFIG", "SET", "maxmemory", "0")
		wantTopics(t, s, "orders", "orders@bills")
		if got := idsOf(t, s, "orders"); !slices.Equal(got, []string{"b", "c", "d"}) {
			t.Errorf("there are %q; want those that were not acked", got)
		}
		settled(t, s, []punctual.Settlement{ss[1], ss[3]})
		if got := idsOf(t, s, "orders@bills"); !slices.Equal(got, []string{"b~bill", "there"}) {
			t.Errorf("there are %q; want the follow-up beside the one that was there", got)
		}
		wantSound(t, s)
	}
}

// Z15: with a key of a wrong type, of the topic or of the companion, a settlement with follow-ups
// fails before its first write.
func TestFollowUpsWithWrongTypes(t *testing.T) {
	server := redisrig.Start(t, "--enable-debug-command", "yes")
	for _, topic := range []string{"orders", "orders@bills"} {
		for n := range keys.Count {
			s := openStore(t, connect(t, server), &Options{Prefix: fresh()})
			push(t, s, punctual.NewMessage{Topic: "orders@bills", ID: "there", Delay: time.Hour})
			ds := held(t, s, "a", "b")
			key := s.names.Partition(topic, 0).Keys()[n]
			kept := do(t, server, "EXISTS", key) == "1"
			if kept {
				do(t, server, "RENAME", key, "kept")
			}
			do(t, server, "SET", key, "planted")
			before := do(t, server, "DEBUG", "DIGEST")
			_, err := s.Settle(t.Context(), []punctual.Settlement{then(ds[0], punctual.SettleAck), then(ds[1], punctual.SettleAck, followUps(ds[1])...)})
			wantDefinite(t, "a settlement with follow-ups and a planted "+key, err, punctual.ErrCorrupt)
			if after := do(t, server, "DEBUG", "DIGEST"); after != before {
				t.Errorf("P13: a settlement with follow-ups and a planted %s failed and changed the data all the same", key)
			}
			do(t, server, "DEL", key)
			if kept {
				do(t, server, "RENAME", "kept", key)
			}
			settled(t, s, []punctual.Settlement{then(ds[0], punctual.SettleAck), then(ds[1], punctual.SettleAck, followUps(ds[1])...)})
			wantSound(t, s)
		}
	}
}

// P11: a follow-up wakes a claim that waits for its topic, in the process that settles and in
// another one.
func TestFollowUpWakesAClaim(t *testing.T) {
	for _, partitions := range []int{1, 4} {
		for name, claims := range map[string]func(one, other *Store) *Store{
			"of the same process": func(one, _ *Store) *Store { return one }, "of another process": func(_, other *Store) *Store { return other },
		} {
			// While the clock stands still no poll finds the message.
			one, other := twoStores(t, Options{clock: storekit.NewManualClock(time.Unix(1_800_000_000, 0)), Partitions: partitions})
			push(t, one, punctual.NewMessage{Topic: "orders@bills", ID: "there", Delay: time.Hour})
			d, s := held(t, one, "a")[0], claims(one, other)
			got := begin(func() (string, error) {
				ds, err := s.Claim(context.Background(), punctual.Claim{Topics: []string{"orders@bills"}, Max: 1, Wait: time.Hour})
				if len(ds) != 1 {
					return "", fmt.Errorf("claimed %v: %w", ds, err)
				}
				return ds[0].ID, err
			})
			waitUntil(t, "the claim sleeps", func() bool {
				n, quiet := s.waits.waiter.Waiting("orders@bills")
				return n == 1 && quiet
			})
			settled(t, one, []punctual.Settlement{then(d, punctual.SettleAck, punctual.NewMessage{Topic: "orders@bills", ID: "a~bill"})})
			select {
			case a := <-got:
				if a.text != "a~bill" || a.err != nil {
					t.Errorf("P11: the claim %s got %q, %v; want the follow-up", name, a.text, a.err)
				}
			case <-time.After(soon):
				t.Errorf("P11: the claim %s was not woken by the follow-up", name)
			}
		}
	}
}

// P8: the clock of a partition goes on for the follow-ups that come into it, though the server's
// clock was set back since.
func TestFollowUpByTheClockOfItsTopic(t *testing.T) {
	s, clock := openStill(t, Options{})
	start := clock.Now()
	d := held(t, s, "a")[0]
	clock.Advance(30 * time.Minute)
	push(t, s, punctual.NewMessage{Topic: "orders@bills", ID: "there", Delay: time.Hour})
	clock.Set(start)
	young := openStore(t, connect(t, shared), &Options{Prefix: s.opt.Prefix, clock: clock})
	settled(t, young, []punctual.Settlement{then(d, punctual.SettleAck, punctual.NewMessage{Topic: "orders@bills", ID: "a~bill", Delay: time.Minute})})
	i, err := young.Get(t.Context(), "orders@bills", "a~bill")
	if err != nil || i.Due.Before(start.Add(31*time.Minute)) {
		t.Errorf("P8: the follow-up is due %v, %v; want %v or later, a minute after the latest time that its topic has seen", i.Due, err, start.Add(31*time.Minute))
	}
	wantSound(t, young)
}

// P13: a copy of a call with a key has the answer of the first one, whichever process carries it
// out, also where follow-ups have no ID. None of these is stored twice.
func TestFollowUpsWithoutIDsOfACallWithAKey(t *testing.T) {
	for _, partitions := range []int{1, 4} {
		clock := storekit.NewManualClock(time.Unix(1_800_000_000, 0))
		one, other := twoStores(t, Options{clock: clock, Partitions: partitions})
		d := held(t, one, "a")[0]
		ss := []punctual.Settlement{then(d, punctual.SettleAck, punctual.NewMessage{Topic: "orders@bills", Delay: time.Hour}, punctual.NewMessage{Topic: "orders", Delay: time.Hour})}
		ctx := keyedBy(t.Context(), "k")
		for _, s := range []*Store{one, other, one} {
			if errs, err := s.Settle(ctx, ss); err != nil || errs[0] != nil {
				t.Errorf("P13: a copy is answered %v, %v; want the first answer", errs, err)
			}
		}
		for _, topic := range []string{"orders", "orders@bills"} {
			ids := idsOf(t, one, topic)
			if len(ids) != 1 || keys.Home(ids[0], partitions) != keys.OfToken(d.Token) {
				t.Errorf("P7: three copies have stored %q in %s; want one, in the partition of the message", ids, topic)
			}
		}
		wantSound(t, one)
	}
}

// The record of a script is under another field for each set of items, and under one field for a
// set.
func TestFieldOfItems(t *testing.T) {
	seen := make(map[string][]int)
	for _, items := range [][]int{nil, {0}, {1}, {0, 1}, {0, 2}, {0, 1, 2}, {0, 1, 3}, {0, 2, 3}, {0, 1, 2, 3}, {1, 2, 3}, {11}, {1, 11}} {
		field := string(fieldOf("k", items))
		if other, is := seen[field]; is && len(items) > 0 && len(other) > 0 {
			t.Errorf("the items %v and %v have one field", items, other)
		}
		seen[field] = items
		if field != string(fieldOf("k", slices.Clone(items))) || field == string(fieldOf("l", items)) {
			t.Errorf("the field of %v is not that of its key", items)
		}
	}
}

// P13: copies of a call with a key are answered as the first one was, also when some of its
// settlements had to be sent again because a topic was not there.
func TestFollowUpsOfACallWithAKeyThatMakeTopics(t *testing.T) {
	one, other := twoStores(t, Options{clock: storekit.NewManualClock(time.Unix(1_800_000_000, 0))})
	ds := held(t, one, "a", "b", "c", "d")
	ss := []punctual.Settlement{
		then(ds[0], punctual.SettleAck, punctual.NewMessage{Topic: "orders@new", ID: "a~1"}), then(ds[1], punctual.SettleAck),
		then(ds[2], punctual.SettleAck, punctual.NewMessage{Topic: "orders@newer", ID: "c~1"}), then(ds[3], punctual.SettleAck, punctual.NewMessage{Topic: "orders", ID: "d~1"}),
	}
	ctx := keyedBy(t.Context(), "k")
	for n, s := range []*Store{one, other, one} {
		errs, err := s.Settle(ctx, ss)
		if err = errors.Join(append(errs, err)...); err != nil {
			t.Errorf("P13: copy %d is answered %v; want all done", n+1, err)
		}
	}
	wantTopics(t, one, "orders", "orders@new", "orders@newer")
	for topic, want := range map[string][]string{"orders": {"d~1"}, "orders@new": {"a~1"}, "orders@newer": {"c~1"}} {
		if got := idsOf(t, one, topic); !slices.Equal(got, want) {
			t.Errorf("%s has %q; want %q", topic, got, want)
		}
	}
	wantSound(t, one)
}

// P14: topics that are not there are looked up and made together, and the settlement is sent once
// more.
func TestFollowUpsForManyNewTopics(t *testing.T) {
	server := redisrig.Start(t)
	s, p := openBehind(t, server, nil)
	var ms []punctual.NewMessage
	for n := range limits.MaxThen {
		ms = append(ms, punctual.NewMessage{Topic: fmt.Sprint("orders@", n)})
	}
	d := held(t, s, "a")[0]
	sent := p.Count(runs(script.Settle))
	settled(t, s, []punctual.Settlement{then(d, punctual.SettleAck, ms...)})
	if n := sent.Seen(); n != 2 {
		t.Errorf("a settlement with follow-ups for %d new topics was sent %d times; want 2", len(ms), n)
	}
	if names, err := s.TopicNames(t.Context(), storekit.NameQuery{Prefix: "orders@"}); err != nil || len(names) != len(ms) {
		t.Errorf("there are %d companions, %v; want %d", len(names), err, len(ms))
	}
}

// P13: a settlement waits for an earlier one of its call that touches the same message, and is not
// sent when nobody knows what became of the earlier one. Otherwise the earlier settlement could
// take effect behind the later one.
func TestNothingOvertakesAnUnknownSettlement(t *testing.T) {
	server := redisrig.Start(t)
	s, p := openBehind(t, server, &Options{Prefix: fresh(), clock: storekit.NewManualClock(time.Unix(1_800_000_000, 0))})
	bill := punctual.NewMessage{Topic: "orders@bills", ID: "x", Due: time.Unix(1, 0)}
	ds := held(t, s, "a", "x")
	if rs, err := s.Push(t.Context(), []punctual.NewMessage{bill}); err != nil || rs[0].Err != nil {
		t.Fatal(rs, err)
	}
	bills, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{bill.Topic}, Max: 1, Lease: time.Hour})
	if err != nil || len(bills) != 1 {
		t.Fatal(bills, err)
	}
	ofBills := func(words []string) bool { return runs(script.Settle)(words) && strings.Contains(words[3], "@bills") }
	lost, sent := p.Lose(route.Tries, ofBills), p.Count(runs(script.Settle))
	bill.IfExists = punctual.IfExistsReplaceDead
	errs, err := s.Settle(t.Context(), []punctual.Settlement{then(bills[0], punctual.SettleDiscard), then(ds[0], punctual.SettleAck), then(ds[1], punctual.SettleAck, bill)})
	if err != nil {
		t.Fatal(err)
	}
	lost.Happened()
	wantIndeterminate(t, "the discard whose answers were lost", errs[0])
	if errs[1] != nil {
		t.Errorf("an ack that touches another message: %v; want nil", errs[1])
	}
	wantDefinite(t, "the ack whose follow-up may replace the discarded message", errs[2], punctual.ErrUnreachable)
	if n := sent.Seen(); n != route.Tries+1 {
		t.Errorf("settle.lua was sent %d times; want %d for the discard and 1 for the ack of a", n, route.Tries)
	}
}

// A call that is too much for one script is several scripts: by the number of messages, with
// follow-ups counted, by bytes, and by the number of topics. A single settlement is one script
// whatever it has.
func TestFollowUpsOfManySettlements(t *testing.T) {
	server := redisrig.Start(t)
	s, p := openBehind(t, server, nil)
	most := map[string]int{}
	p.Count(func(words []string) bool {
		if runs(script.Settle)(words) {
			n, err := strconv.Atoi(words[2])
			if err != nil {
				t.Error(err)
			}
			size := 0
			for _, w := range words {
				size += len(w)
			}
			most["keys"], most["bytes"], most["words"] = max(most["keys"], n), max(most["bytes"], size), max(most["words"], len(words))
			most["scripts"]++
		}
		return false
	})
	for name, c := range map[string]struct {
		settlements, each, topics, body int
		keys, scripts                   int // at most
	}{
		"many messages":         {250, 3, 1, 10, 10 + 8, 5},
		"many topics":           {40, 2, 80, 10, 10 + 8*mostTopics, 3},
		"many bytes":            {16, 1, 1, 128 << 10, 10 + 8, 6},
		"one with all there is": {1, limits.MaxThen, limits.MaxThen, 100 << 10, 10 + 8*limits.MaxThen, 1},
	} {
		t.Run(name, func(t *testing.T) {
			topic := func(n int) string { return fmt.Sprintf("orders@%s%d", strings.ReplaceAll(name, " ", "."), n%c.topics) }
			for n := range c.topics {
				push(t, s, punctual.NewMessage{Topic: topic(n), Delay: time.Hour})
			}
			clear(most)
			ids := make([]string, c.settlements)
			for i := range ids {
				ids[i] = fmt.Sprintf("%s %03d", name, i)
			}
			var ss []punctual.Settlement
			for i, d := range held(t, s, ids...) {
				var ms []punctual.NewMessage
				for n := range c.each {
					ms = append(ms, punctual.NewMessage{Topic: topic(i*c.each + n), ID: fmt.Sprint(d.ID, "~", n), Body: make([]byte, c.body), Delay: time.Hour})
				}
				ss = append(ss, then(d, punctual.SettleAck, ms...))
			}
			settled(t, s, ss)
			if most["keys"] > c.keys || most["scripts"] > c.scripts || c.settlements > 1 && most["bytes"] > script.Bytes+(64<<10) {
				t.Errorf("the scripts had up to %d keys and %d bytes, and were %d; want at most %d, %d and %d",
					most["keys"], most["bytes"], most["scripts"], c.keys, script.Bytes+(64<<10), c.scripts)
			}
			stored := 0
			for n := range c.topics {
				stored += len(idsOf(t, s, topic(n))) - 1
			}
			if stored != c.settlements*c.each {
				t.Errorf("P1: %d follow-ups are stored; want %d", stored, c.settlements*c.each)
			}
		})
	}
	wantSound(t, s)
}

// A process dies anywhere while it settles with follow-ups, for companions that are there and for
// one that is not. A follow-up is there if and only if its message was settled.
func TestSlowKilledWithFollowUps(t *testing.T) {
	var ds map[string][]punctual.Delivery
	eachDeath(t, func(x *survivors) {
		if ds == nil {
			ds = make(map[string][]punctual.Delivery)
		}
		for i := range 9 {
			push(t, x.old, punctual.NewMessage{Topic: x.topic, ID: fmt.Sprint("m", i), Due: time.Unix(1, 0)})
		}
		push(t, x.old, punctual.NewMessage{Topic: x.topic + "@bills", ID: "there", Delay: time.Hour})
		for len(ds[x.topic]) < 9 {
			got, err := x.old.Claim(t.Context(), punctual.Claim{Topics: []string{x.topic}, Max: 9, Lease: time.Hour})
			if err != nil || len(got) == 0 {
				t.Fatal(got, err)
			}
			ds[x.topic] = append(ds[x.topic], got...)
		}
	}, func(ctx context.Context, s *Store, topic string) error {
		var ss []punctual.Settlement
		for i, d := range ds[topic] {
			to := topic + "@bills"
			if i%3 == 0 {
				to = topic + "@new"
			}
			ss = append(ss, then(d, punctual.SettleAck, punctual.NewMessage{Topic: to, ID: d.ID + "~bill"}, punctual.NewMessage{Topic: topic, ID: d.ID + "~2", Delay: time.Hour}))
		}
		errs, err := s.Settle(ctx, ss)
		return errors.Join(append(errs, err)...)
	}, func(x *survivors) {
		bills := append(idsOf(t, x.young, x.topic+"@bills"), idsOf(t, x.young, x.topic+"@new")...)
		all := idsOf(t, x.young, x.topic)
		for _, d := range ds[x.topic] {
			live, bill, own := slices.Contains(all, d.ID), slices.Contains(bills, d.ID+"~bill"), slices.Contains(all, d.ID+"~2")
			if live == bill || bill != own {
				t.Errorf("P1: %s is there: %t, its follow-ups: %t and %t", d.ID, live, bill, own)
			}
			// Messages that were not settled can be settled now, and those that were are gone.
			errs, err := x.young.Settle(t.Context(), []punctual.Settlement{then(d, punctual.SettleAck, punctual.NewMessage{Topic: x.topic + "@new", ID: d.ID + "~3"})})
			if err != nil || live != (errs[0] == nil) || !live && !errors.Is(errs[0], punctual.ErrLeaseLost) {
				t.Errorf("P4: %s, which is there: %t, was acked behind the other process: %v, %v", d.ID, live, errs, err)
			}
		}
		wantSound(t, x.young)
	})
}
