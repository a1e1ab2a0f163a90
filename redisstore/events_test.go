package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/event"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/route"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/storekit"
)

// tells has orders tell of events.
func tells(t testing.TB, s *Store, on punctual.Events) {
	t.Helper()
	if _, err := s.Configure(t.Context(), "orders", punctual.SettingsPatch{Emit: &on}); err != nil {
		t.Fatal(err)
	}
}

// toldOf returns the events of a topic that are there, as "acked a", sorted.
func toldOf(t testing.TB, s *Store, topic string) []string {
	t.Helper()
	out := []string{}
	page, err := s.List(t.Context(), punctual.ListQuery{Topic: storekit.EventTopic(topic), State: punctual.StateReady, Limit: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range page.Messages {
		e, err := event.Parse(m.Body)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprint(e.Event, " ", e.ID))
	}
	slices.Sort(out)
	return out
}

// Z15: with a wrong type of a key of the companion that adding an event needs, a change that is
// told of fails before its first write.
func TestEventsWithWrongTypes(t *testing.T) {
	server := redisrig.Start(t, "--enable-debug-command", "yes")
	for n := range keys.Count {
		s := openStore(t, connect(t, server), &Options{Prefix: fresh()})
		tells(t, s, event.All)
		held := situations(t, s)
		key := s.names.Partition("orders@events", 0).Keys()[n]
		if n == 2 || n == 3 || n == 5 || n == 7 { // d, f, s and x, of which adding an event needs nothing
			continue
		}
		kept := do(t, server, "EXISTS", key) == "1"
		if kept {
			do(t, server, "RENAME", key, "kept")
		}
		do(t, server, "SET", key, "planted")
		before := do(t, server, "DEBUG", "DIGEST")
		for _, name := range []string{"push", "ack", "retry", "discard", "cancel"} {
			err := changes(s, held)[name](t.Context())
			wantDefinite(t, fmt.Sprintf("%s with a planted %s", name, key), err, punctual.ErrCorrupt)
			if after := do(t, server, "DEBUG", "DIGEST"); after != before {
				t.Fatalf("P13: %s with a planted %s failed and changed the data all the same", name, key)
			}
		}
		do(t, server, "DEL", key)
		if kept {
			do(t, server, "RENAME", "kept", key)
		}
		ack(t, s, held)
		wantSound(t, s)
	}
}

// A server out of memory lets acks, discards and cancels pass as without events, and each is told
// of.
func TestEventsOutOfMemory(t *testing.T) {
	server := redisrig.Start(t)
	s := openStore(t, connect(t, server), &Options{Prefix: fresh()})
	tells(t, s, punctual.EventAcked|punctual.EventDead|punctual.EventCancelled)
	ds := held(t, s, "a", "b", "c")
	push(t, s, punctual.NewMessage{ID: "d", Delay: time.Hour})
	ack(t, s, ds[0]) // makes the companion
	do(t, server, "CONFIG", "SET", "maxmemory", "1")
	if _, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: "more"}}); !errors.Is(err, punctual.ErrNoSpace) {
		t.Fatalf("this test shows nothing: push to a server out of memory = %v; want ErrNoSpace", err)
	}
	settled(t, s, []punctual.Settlement{then(ds[1], punctual.SettleAck), then(ds[2], punctual.SettleDiscard)})
	if out, err := s.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: "orders", ID: "d"}}); err != nil || out[0].Err != nil {
		t.Errorf("cancel on a server out of memory: %v, %v", out, err)
	}
	do(t, server, "CONFIG", "SET", "maxmemory", "0")
	if got, want := toldOf(t, s, "orders"), []string{"acked a", "acked b", "cancelled d", "dead c"}; !slices.Equal(got, want) {
		t.Errorf("told of %q; want %q", got, want)
	}
	wantSound(t, s)
}

// Whether answers are lost, or copies of a call repeated or late: each event is told of once.
func TestSlowCopiesTellOnce(t *testing.T) {
	server := redisrig.Start(t)
	for _, v := range verbs() {
		t.Run(v.name, func(t *testing.T) {
			play := func(t *testing.T, d *disturbance) (told []string) {
				s, p := openBehind(t, server, &Options{Prefix: fresh(), clock: storekit.NewManualClock(time.Unix(1_800_000_000, 0))})
				tells(t, s, event.All)
				held := scene(t, s)
				call := func() (string, error) { return v.call(t.Context(), s, held) }
				more := func() { push(t, s, punctual.NewMessage{ID: "more", Delay: time.Hour}) }
				var err error
				if d == nil {
					_, err = call()
					more()
				} else {
					_, err = d.play(t, p, runs(v.script), call, more)
				}
				if err != nil {
					t.Errorf("P13: %s = %v; want an answer", v.name, err)
				}
				wantSound(t, s)
				return toldOf(t, s, "orders")
			}
			want := play(t, nil)
			if len(want) == 0 {
				t.Fatal("this test shows nothing: nothing is told of")
			}
			for _, d := range disturbances() {
				t.Run(d.name, func(t *testing.T) {
					if got := play(t, &d); !slices.Equal(got, want) {
						t.Errorf("P13: told of %q; undisturbed of %q", got, want)
					}
				})
			}
		})
	}
}

// A process dies anywhere while it settles messages that are told of, also while it makes the
// companion for the first event. A message is told of if and only if it has ended.
func TestSlowKilledWithEvents(t *testing.T) {
	ds := make(map[string][]punctual.Delivery)
	eachDeath(t, func(x *survivors) {
		on := punctual.EventAcked
		if _, err := x.old.Configure(t.Context(), x.topic, punctual.SettingsPatch{Emit: &on}); err != nil {
			t.Fatal(err)
		}
		for i := range 9 {
			push(t, x.old, punctual.NewMessage{Topic: x.topic, ID: fmt.Sprint("m", i), Due: time.Unix(1, 0)})
		}
		for len(ds[x.topic]) < 9 {
			got, err := x.old.Claim(t.Context(), punctual.Claim{Topics: []string{x.topic}, Max: 9, Lease: time.Hour})
			if err != nil || len(got) == 0 {
				t.Fatal(got, err)
			}
			ds[x.topic] = append(ds[x.topic], got...)
		}
	}, func(ctx context.Context, s *Store, topic string) error {
		errs, err := s.Settle(ctx, acks(ds[topic]))
		return errors.Join(append(errs, err)...)
	}, func(x *survivors) {
		left := idsOf(t, x.young, x.topic)
		told := toldOf(t, x.young, x.topic)
		for i := range 9 {
			id := fmt.Sprint("m", i)
			if slices.Contains(left, id) == slices.Contains(told, "acked "+id) {
				t.Errorf("P1: %s is there: %t, and told of: %t", id, slices.Contains(left, id), slices.Contains(told, "acked "+id))
			}
		}
		// The acks of the rest are told of, too.
		for _, d := range ds[x.topic] {
			if slices.Contains(left, d.ID) {
				ack(t, x.young, d)
			}
		}
		if got := len(toldOf(t, x.young, x.topic)); got != 9 {
			t.Errorf("P13: nine messages were acked, and %d are told of", got)
		}
		wantSound(t, x.young)
	})
}

// The companion is deleted in front of any script of an ack that is told of. The ack succeeds and
// is told of in a companion that is there.
func TestEventsWhileTheirCompanionIsDeleted(t *testing.T) {
	for n := 1; ; n++ {
		prefix := fresh()
		p, other := openProcess(t, prefix), openStore(t, connect(t, shared), &Options{Prefix: prefix, Partitions: 3})
		divide(t, other, "orders", 3)
		tells(t, other, punctual.EventAcked)
		ds := held(t, other, "a", "b")
		ack(t, p.Store, ds[0])
		p.interrupt.arm(n, false, func() error {
			_, err := other.DeleteTopic(t.Context(), "orders@events")
			return err
		})
		settled(t, p.Store, []punctual.Settlement{then(ds[1], punctual.SettleAck)})
		done := p.interrupt.called()
		if got := toldOf(t, other, "orders"); done && !slices.Equal(got, []string{"acked b"}) || !done && len(got) != 2 {
			t.Errorf("P13: the companion was deleted in front of script %d: %t, and then told of %q", n, done, got)
		}
		wantSound(t, other)
		if !done {
			if n < 2 {
				t.Error("this test shows nothing: the ack had no script")
			}
			return
		}
	}
}

// P13: a push or cancel with an event is not made when nobody knows whether the companion for the
// event came into being. The error names the companion.
func TestEventsOfAnUnknownCompanion(t *testing.T) {
	server := redisrig.Start(t)
	for name, call := range map[string]func(s *Store) error{
		"push": func(s *Store) error {
			rs, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: "new"}})
			if err == nil {
				err = rs[0].Err
			}
			return err
		},
		"cancel": func(s *Store) error {
			out, err := s.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: "orders", ID: "there"}})
			if err == nil {
				err = out[0].Err
			}
			return err
		},
	} {
		s, p := openBehind(t, server, &Options{Prefix: fresh(), clock: storekit.NewManualClock(time.Unix(1_800_000_000, 0))})
		push(t, s, punctual.NewMessage{ID: "there", Delay: time.Hour})
		tells(t, s, event.All)
		lost := p.Lose(route.Tries, runs(script.Configure))
		err := call(s)
		lost.Happened()
		wantDefinite(t, name, err, punctual.ErrUnreachable)
		if want := "because orders@events, where its events are stored, could not be looked up"; !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: %v; want %q in it", name, err, want)
		}
	}
}

// A push, claim or ack takes the fast path in a topic that tells of other events only. It costs no
// more scripts than in a topic without events, whether or not it is told of.
func TestFastPathsBesideEvents(t *testing.T) {
	server := redisrig.Start(t)
	loadScripts(t, server)
	for _, c := range []struct {
		on   punctual.Events
		fast bool
	}{{punctual.EventDead | punctual.EventCancelled | punctual.EventExpired | punctual.EventRetried, true}, {event.All, false}} {
		s := openStore(t, connect(t, server), &Options{Prefix: fresh(), clock: storekit.NewManualClock(time.UnixMilli(1_800_000_000_007)), checkEvery: time.Hour})
		push(t, s, punctual.NewMessage{ID: "before", Delay: time.Hour})
		tells(t, s, c.on)
		ack(t, s, held(t, s, "warm")[0]) // asks for the keys of events, and makes the companion where acks are told of
		counts := func() (evals, cards int) {
			n := commandCounts(t, server)
			return n["evalsha"], n["zcard"]
		}
		evals, cards := counts()
		ack(t, s, held(t, s, "a")[0])
		evals2, cards2 := counts()
		if evals2-evals != 3 || (cards2 == cards) != c.fast { // only general paths count sets
			t.Errorf("where %s is told a life took %d scripts and counted %d sets; want 3, and none on fast paths: %t", c.on, evals2-evals, cards2-cards, c.fast)
		}
		wantSound(t, s)
	}
}

// Events of one partition have IDs that grow, whatever a failover forgets: they follow the time as
// tokens do.
func TestIDsOfEventsAfterAFailover(t *testing.T) {
	s, clock := openStill(t, Options{})
	tells(t, s, punctual.EventAcked)
	last := ""
	g := s.names.Partition("orders@events", 0).Keys()[keys.Settings]
	for i := range 3 {
		ack(t, s, held(t, s, fmt.Sprint(i))[0])
		page, err := s.List(t.Context(), punctual.ListQuery{Topic: "orders@events", State: punctual.StateReady})
		if err != nil || len(page.Messages) != i+1 {
			t.Fatal(page, err)
		}
		ids := idsOf(t, s, "orders@events")
		if now := ids[len(ids)-1]; now <= last {
			t.Errorf("P12: behind %s came an event with the ID %s", last, now)
		} else {
			last = now
		}
		do(t, shared, "HSET", g, "token", "0") // as if the replica that took over had not heard of it
		clock.Advance(time.Millisecond)
	}
}

// A topic that is set to tell of nothing any more gets no further events, and those that are there
// stay.
func TestEventsAreTurnedOff(t *testing.T) {
	s := openStore(t, connect(t, shared), &Options{Prefix: fresh(), Partitions: 4})
	tells(t, s, punctual.EventAcked)
	for _, d := range held(t, s, "a", "b", "c") {
		ack(t, s, d)
	}
	tells(t, s, 0)
	for _, d := range held(t, s, "d", "e") {
		ack(t, s, d)
	}
	if got, want := toldOf(t, s, "orders"), []string{"acked a", "acked b", "acked c"}; !slices.Equal(got, want) {
		t.Errorf("told of %q; want %q", got, want)
	}
	wantSound(t, s)
}
