package redisstore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/redisstore/internal/errkind"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/storekit"
)

// A call ends without an answer, and the network delivers its copy later, before the deadline. Once
// the same store has made another call to the partition, the copy changes nothing.

// goesOn is how a store goes on after a call without an answer.
type goesOn struct {
	name string
	// intoWindow is how far into a window of records the call begins, and pause how long the store
	// waits then. The deadline is 15 s ahead, so a call that begins after 45 s has its record in
	// the next window.
	intoWindow, pause time.Duration
	// otherSlot has the next call take another slot than the one without an answer.
	otherSlot bool
}

func waysToGoOn() []goesOn {
	return []goesOn{
		{name: "in the same slot and window"},
		{name: "in the next window", intoWindow: 40 * time.Second, pause: 10 * time.Second},
		{name: "in the window before", intoWindow: 50 * time.Second, pause: 0},
		{name: "in another slot", otherSlot: true},
		{name: "in another slot and the next window", intoWindow: 40 * time.Second, pause: 10 * time.Second, otherSlot: true},
	}
}

// heldBack makes a call whose only copy is held, and that ends without an answer. It returns the
// store that made the call, another one over the same topic that does not go through the proxy, and
// the copy.
func (g goesOn) heldBack(t *testing.T, server *redisrig.Server, sc *script.Script, prepare func(s *Store), call func(ctx context.Context, s *Store) error) (s, other *Store, held *redisrig.Fault) {
	t.Helper()
	clock := storekit.NewManualClock(time.Unix(1_800_000_000, 0).Add(g.intoWindow)) // a window begins at that second
	s, p := openBehind(t, server, &Options{Prefix: fresh(), clock: clock})
	other = openStore(t, connect(t, server), &Options{Prefix: s.opt.Prefix, clock: clock})
	prepare(s)
	var second *redisrig.Fault
	ended := make(chan struct{})
	ctx, end := context.WithCancel(t.Context())
	held = givenUp(t, p, sc, ctx, func() {
		if g.otherSlot { // this other call begins while the first is under way and ends after it, so its slot is the next one taken
			of, another := script.Amend, func() error {
				_, err := s.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: "orders", ID: "nobody"}})
				return err
			}
			if sc == of {
				of, another = script.Settle, func() error {
					_, err := s.Settle(t.Context(), []punctual.Settlement{{Topic: "orders", ID: "nobody", Token: limits.MaxPartitions, Verb: punctual.SettleAck}})
					return err
				}
			}
			second = p.Lose(1, runs(of)).Paused()
			go func() {
				defer close(ended)
				if err := another(); err != nil {
					t.Error(err)
				}
			}()
			second.Await()
		}
		end()
	}, func(ctx context.Context) error { return call(ctx, s) })
	if g.otherSlot {
		second.Resume()
		<-ended
	}
	clock.Advance(g.pause)
	return s, other, held
}

// P1, P4, P5, P6, P13: a copy of any call without an answer is refused once a later call to the
// partition was answered. A read will do.
func TestCopyOfACallWithoutAnswer(t *testing.T) {
	server := redisrig.Start(t)
	for _, v := range everyCall() {
		if v.script == script.Claim {
			continue // the end of its context does not end a script of a claim: see TestClaimWithoutAnswer
		}
		for _, g := range waysToGoOn() {
			t.Run(v.name+" "+g.name, func(t *testing.T) {
				var lease punctual.Delivery
				s, _, held := g.heldBack(t, server, v.script, func(s *Store) { lease = scene(t, s) }, func(ctx context.Context, s *Store) error {
					_, err := v.call(ctx, s, lease)
					return err
				})
				if _, err := s.Get(t.Context(), "orders", "later"); err != nil {
					t.Fatal(err)
				}
				wantLate(t, wantUnchanged(t, s, held))
			})
		}
	}
}

// P5: the push without an answer is made again and stored, and its message is cancelled. The late
// copy must not bring the message back.
func TestLateCopyOfAPush(t *testing.T) {
	server := redisrig.Start(t)
	x := []punctual.NewMessage{{Topic: "orders", ID: "x"}}
	for _, g := range waysToGoOn() {
		t.Run(g.name, func(t *testing.T) {
			s, other, held := g.heldBack(t, server, script.Push, func(s *Store) {
				push(t, s, punctual.NewMessage{ID: "first", Delay: time.Hour}) // the topic is there
			}, func(ctx context.Context, s *Store) error {
				_, err := s.Push(ctx, x)
				return err
			})
			if rs, err := s.Push(t.Context(), x); err != nil || rs[0].Status != punctual.PushStored {
				t.Fatalf("the same push again = %+v, %v; want it stored", rs, err)
			}
			out, err := s.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: "orders", ID: "x"}})
			if err != nil || out[0].Err != nil {
				t.Fatalf("cancel = %+v, %v", out, err)
			}
			wantLate(t, wantUnchanged(t, s, held))
			if ds, err := other.Claim(t.Context(), orders(0)); err != nil || len(ds) > 0 {
				t.Errorf("P5: claimed %+v, %v; want nothing: it was cancelled", ds, err)
			}
		})
	}
}

// P5: a late copy of a reschedule must not override a newer reschedule, and a late copy of a cancel
// must not end a later message with that ID.
func TestLateCopyOfAnAmendment(t *testing.T) {
	server := redisrig.Start(t)
	for change, again := range map[punctual.Change]func(t *testing.T, s *Store){
		punctual.ChangeReschedule: func(t *testing.T, s *Store) {
			out, err := s.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeReschedule, Topic: "orders", ID: "x", Delay: 2 * time.Hour}})
			if err != nil || out[0].Err != nil {
				t.Fatalf("the newer reschedule = %+v, %v", out, err)
			}
		},
		punctual.ChangeCancel: func(t *testing.T, s *Store) {
			push(t, s, punctual.NewMessage{ID: "x", Delay: 2 * time.Hour, IfExists: punctual.IfExistsReplace})
		},
	} {
		for _, g := range waysToGoOn() {
			t.Run(change.String()+" "+g.name, func(t *testing.T) {
				s, other, held := g.heldBack(t, server, script.Amend, func(s *Store) {
					push(t, s, punctual.NewMessage{ID: "x", Delay: time.Hour})
				}, func(ctx context.Context, s *Store) error {
					_, err := s.Amend(ctx, []punctual.Amendment{{Change: change, Topic: "orders", ID: "x"}})
					return err
				})
				want := now(t, s).Add(2 * time.Hour)
				again(t, s)
				wantLate(t, wantUnchanged(t, s, held))
				if m, err := other.Get(t.Context(), "orders", "x"); err != nil || !m.Due.Equal(want) {
					t.Errorf("P1: the message is %+v, %v; want it due at %v", m, err, want)
				}
			})
		}
	}
}

// P5: a settlement without an answer touches the topics of its follow-ups and of its events as
// well. Whatever the same store does next in one of these alone, the late copy must not undo it.
func TestLateCopyOfASettlement(t *testing.T) {
	server := redisrig.Start(t)
	const bills = "orders@bills"
	x := punctual.NewMessage{Topic: bills, ID: "a~x", Delay: time.Hour}
	cancelled := func(t *testing.T, s *Store, want error) {
		out, err := s.Amend(t.Context(), []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: bills, ID: x.ID}})
		if err != nil || !errors.Is(out[0].Err, want) {
			t.Fatalf("cancel = %+v, %v; want %v", out, err, want)
		}
	}
	purged := func(topic string) func(t *testing.T, s *Store) {
		return func(t *testing.T, s *Store) {
			if _, err := s.Purge(t.Context(), punctual.PurgeQuery{Topic: topic}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, next := range map[string]func(t *testing.T, s *Store){
		"pushed and cancelled": func(t *testing.T, s *Store) {
			if rs, err := s.Push(t.Context(), []punctual.NewMessage{x}); err != nil || rs[0].Status != punctual.PushStored {
				t.Fatalf("push = %+v, %v; want it stored", rs, err)
			}
			cancelled(t, s, nil)
		},
		"cancelled in vain": func(t *testing.T, s *Store) { cancelled(t, s, punctual.ErrNotFound) },
		"purged":            purged(bills),
		"events purged":     purged("orders@events"),
		"events claimed": func(t *testing.T, s *Store) {
			if ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders@events"}, Max: 10}); err != nil || len(ds) != 1 {
				t.Fatalf("claim of the event of another message = %+v, %v", ds, err)
			}
		},
		"deleted": func(t *testing.T, s *Store) {
			if _, err := s.DeleteTopic(t.Context(), bills); err != nil {
				t.Fatal(err)
			}
		},
	} {
		for _, g := range waysToGoOn()[:3] {
			t.Run(name+" "+g.name, func(t *testing.T) {
				var d punctual.Delivery
				s, _, late := g.heldBack(t, server, script.Settle, func(s *Store) {
					tells(t, s, punctual.EventAcked)
					all := held(t, s, "a", "first")
					ack(t, s, all[1]) // makes the companion events
					if d = all[0]; d.ID != "a" {
						t.Fatalf("leased %s first", d.ID)
					}
					if _, err := s.Configure(t.Context(), bills, punctual.SettingsPatch{}); err != nil {
						t.Fatal(err)
					}
				}, func(ctx context.Context, s *Store) error {
					_, err := s.Settle(ctx, []punctual.Settlement{then(d, punctual.SettleAck, x)})
					return err
				})
				next(t, s)
				wantLate(t, wantUnchanged(t, s, late))
			})
		}
	}
}

// P3, P6: the late copy of a claim that ended without an answer leases nothing, once the store has
// made another call, because it would lease for nobody.
func TestClaimWithoutAnswer(t *testing.T) {
	server := redisrig.Start(t)
	clock := storekit.NewManualClock(time.Unix(1_800_000_040, 0))
	s, p := openBehind(t, server, &Options{Prefix: fresh(), clock: clock})
	push(t, s, punctual.NewMessage{ID: "a", Due: time.Unix(1, 0)})
	held := p.Hold(runs(script.Claim)).Paused()
	got := begin(func() (string, error) {
		_, err := s.Claim(t.Context(), orders(0))
		return "", err
	})
	held.Await()
	gone := p.Unreachable()
	held.Resume()
	wantIndeterminate(t, "a claim without an answer", (<-got).err)
	gone.End()
	clock.Advance(10 * time.Second)
	if _, err := s.Get(t.Context(), "orders", "a"); err != nil {
		t.Fatal(err)
	}
	wantLate(t, wantUnchanged(t, s, held))
	if d := claimOne(t, s, 0); d.ID != "a" || d.Attempt != 1 {
		t.Errorf("P6: claimed %s, attempt %d; want the first attempt of a", d.ID, d.Attempt)
	}
}

// P13: as long as the copies of a call without an answer cannot be refused, no other call is sent
// to the partition, and the error of such a call is definite.
func TestNothingIsSentBeforeCopiesAreRefused(t *testing.T) {
	server := redisrig.Start(t)
	s, p := openBehind(t, server, &Options{Prefix: fresh()})
	push(t, s, punctual.NewMessage{ID: "first", Delay: time.Hour})
	ctx, end := context.WithCancel(t.Context())
	held := givenUp(t, p, script.Push, ctx, end, func(ctx context.Context) error {
		_, err := s.Push(ctx, []punctual.NewMessage{{Topic: "orders", ID: "x"}})
		return err
	})
	sent := p.Count(runs(script.Push))
	gone := p.Refuse("READONLY You can't write against a read only replica.", runs(script.Refuse))
	lost := p.Lose(4, runs(script.Refuse))
	_, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "orders", ID: "y"}})
	gone.Happened()
	lost.Happened()
	wantDefinite(t, "a push behind one without an answer", err, punctual.ErrUnreachable)
	if n := sent.Seen(); n > 0 {
		t.Errorf("P13: the push was sent %d times", n)
	}
	push(t, s, punctual.NewMessage{ID: "y", Delay: time.Hour})
	refused := p.Count(runs(script.Refuse))
	push(t, s, punctual.NewMessage{ID: "z", Delay: time.Hour})
	if n := refused.Seen(); n > 0 {
		t.Errorf("the copies were refused again %d times", n)
	}
	wantLate(t, wantUnchanged(t, s, held))
	if _, err := s.Get(t.Context(), "orders", "x"); !errors.Is(err, punctual.ErrNotFound) {
		t.Errorf("P5: get of what was refused = %v; want ErrNotFound", err)
	}
}

// P5, P8: lua/refuse.lua has copies refused whose deadlines are past, ahead, or so far ahead that
// no copy is carried out yet. A record that refuses more than is asked for stays, and so does one
// of a later window.
func TestRefuse(t *testing.T) {
	const second = 1000
	start := time.Unix(1_800_000_000, 0).UnixMilli()
	s, clock := openStill(t, Options{})
	push(t, s, punctual.NewMessage{ID: "x", Delay: time.Hour}) // the topic is there
	p := s.names.Partition("orders", 0)
	var names []any
	for _, key := range append(p.Keys(), p.Records(0), p.Records(1)) {
		names = append(names, key)
	}
	header := func(number, deadline int64) []byte {
		at := clock.Now()
		return script.Header{Seconds: at.Unix(), Micros: int64(at.Nanosecond() / 1000), Number: number, Deadline: deadline}.Pack(false)
	}
	refuse := func(number, deadline int64) int {
		t.Helper()
		items, err := s.route.Send(t.Context(), script.Refuse, names, []any{header(0, 0), "", "me:0", number, deadline, 0})
		if err != nil {
			t.Fatal(err)
		}
		return len(items) - 3
	}
	reschedule := func(number, deadline int64) string {
		t.Helper()
		amend := amendHead(&punctual.Amendment{Change: punctual.ChangeReschedule, Delay: time.Hour})
		_, err := s.route.Send(t.Context(), script.Amend, names, []any{header(number, deadline), "me:0", "x", amend})
		switch {
		case err == nil:
			return "done"
		case strings.Contains(err.Error(), errkind.LateMark):
			return "refused"
		}
		return err.Error()
	}
	for _, c := range []struct {
		what           string
		number, till   int64 // of what is refused
		later          int
		copy, copyTill int64
		want           string
	}{
		{"another call of the caller", 5, 15 * second, 0, 7, 15 * second, "done"},
		{"a deadline ahead", 8, 15 * second, 0, 8, 15 * second, "refused"},
		{"a call before it", 10, 15 * second, 0, 9, 15 * second, "refused"},
		{"less than is refused", 8, 15 * second, 0, 10, 15 * second, "refused"},
		{"the next window", 12, 60 * second, 0, 12, 60 * second, "refused"},
		{"too far ahead", 14, 61 * second, 1, 14, 61 * second, "refused"},
	} {
		if later := refuse(c.number, start+c.till); later != c.later {
			t.Errorf("%s: %d calls are to be refused later; want %d", c.what, later, c.later)
		}
		if got := reschedule(c.copy, start+c.copyTill); got != c.want {
			t.Errorf("P5: %s: the copy was %s; want it %s", c.what, got, c.want)
		}
	}
	clock.Advance(time.Minute)
	if got := reschedule(20, start+100*second); got != "done" {
		t.Fatal(got)
	}
	records := do(t, shared, "HGETALL", p.Records(1))
	clock.Advance(30 * time.Second)
	refuse(30, start+80*second)
	clock.Advance(-30 * time.Second)
	if got := reschedule(30, start+80*second); got != "refused" {
		t.Errorf("P8: a deadline was past and is ahead again: the copy was %s", got)
	}
	if now := do(t, shared, "HGETALL", p.Records(1)); now != records {
		t.Errorf("the records changed from %q to %q for a deadline that was past", records, now)
	}
}
