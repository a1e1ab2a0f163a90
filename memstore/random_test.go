package memstore

import (
	"context"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
	"pgregory.net/rapid"
)

// pair is two stores on one clock. The first claims, and the second follows with Encounter and
// claims by ID. Pushes, amendments and settlements are made to both. Their contents must never
// differ, and each must stay sound.
type pair struct {
	t     *rapid.T
	clock *storekit.ManualClock
	s     [2]*Store
	held  []punctual.Delivery // leases that were given at some time, with tokens that are the same in both stores
}

func TestFollowedStoreNeverDiffers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &pair{t: t, clock: storekit.NewManualClock(start)}
		for i := range p.s {
			p.s[i] = New(&Options{Clock: p.clock})
			p.configure(p.s[i])
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { p.compare() },
			"push": func(t *rapid.T) {
				m := punctual.NewMessage{
					Topic:       "orders",
					ID:          strconv.Itoa(rapid.IntRange(0, 7).Draw(t, "id")),
					Delay:       millis(t, "delay"),
					MaxAttempts: rapid.IntRange(0, 2).Draw(t, "max attempts"),
					ExpireAfter: millis(t, "expire after"),
					DropExpired: rapid.Bool().Draw(t, "drop expired"),
					Remember:    millis(t, "remember"),
					IfExists:    punctual.IfExists(rapid.IntRange(0, 3).Draw(t, "if exists")),
				}
				p.both(func(s *Store) (any, error) { return textOf(s.Push(context.Background(), []punctual.NewMessage{m})) })
			},
			"amend": func(t *rapid.T) {
				a := punctual.Amendment{
					Change: punctual.Change(rapid.IntRange(1, 4).Draw(t, "change")),
					Topic:  "orders",
					ID:     strconv.Itoa(rapid.IntRange(0, 7).Draw(t, "id")),
				}
				if storekit.Moves(a.Change) {
					a.Delay = millis(t, "delay")
				}
				p.both(func(s *Store) (any, error) { return s.Amend(context.Background(), []punctual.Amendment{a}) })
			},
			"settle": p.settle,
			"claim":  p.claim,
			"time passes": func(t *rapid.T) {
				p.clock.Advance(millis(t, "by"))
			},
		})
	})
}

// millis draws from a small range, so that many times are equal.
func millis(t *rapid.T, name string) time.Duration {
	return time.Duration(rapid.IntRange(0, 4).Draw(t, name)) * 10 * time.Millisecond
}

func (p *pair) configure(s *Store) {
	lease, keep, attempts := 20*time.Millisecond, 30*time.Millisecond, 2
	backoff := punctual.Backoff{Delays: []time.Duration{10 * time.Millisecond}}
	_, err := s.Configure(context.Background(), "orders", punctual.SettingsPatch{
		Lease: &lease, DedupeWindow: &keep, DeadRetention: &keep, MaxAttempts: &attempts, Backoff: &backoff,
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *pair) both(call func(s *Store) (any, error)) {
	a, errA := call(p.s[0])
	b, errB := call(p.s[1])
	if errA != nil || errB != nil || !reflect.DeepEqual(a, b) {
		p.t.Fatalf("one: %+v, %v; the follower: %+v, %v", a, errA, b, errB)
	}
}

// textOf replaces the errors of items by their texts, so that answers can be compared.
func textOf(rs []punctual.PushResult, err error) (any, error) {
	var out []string
	for i := range rs {
		if rs[i].Err != nil {
			out = append(out, rs[i].Err.Error())
			rs[i].Err = nil
		}
	}
	return []any{rs, out}, err
}

func (p *pair) settle(t *rapid.T) {
	if len(p.held) == 0 {
		t.Skip("nothing was claimed yet")
	}
	d := rapid.SampledFrom(p.held).Draw(t, "lease")
	x := punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Error: "no"}
	x.Verb = punctual.Verb(rapid.IntRange(1, 6).Draw(t, "verb"))
	if x.Verb == punctual.SettleRetry || x.Verb == punctual.SettleSnooze {
		x.Delay = millis(t, "delay")
	}
	p.both(func(s *Store) (any, error) {
		errs, err := s.Settle(context.Background(), []punctual.Settlement{x})
		return storekit.ErrorCode(errs[0]), err
	})
}

// claim lets the first store choose. The follower is told what it chose; an ordinary claim
// of what is missing up to the maximum must then find nothing.
func (p *pair) claim(t *rapid.T) {
	n := rapid.IntRange(1, 5).Draw(t, "max")
	c := punctual.Claim{Topics: []string{"orders"}, Max: n}
	chosen, err := p.s[0].Claim(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	followed := []punctual.Delivery{}
	for _, id := range ids(chosen) {
		followed = append(followed, p.follow(id)...)
	}
	if !reflect.DeepEqual(chosen, followed) {
		t.Fatalf("claimed %+v, followed %+v", chosen, followed)
	}
	p.held = append(p.held, chosen...)
	if c.Max -= len(chosen); c.Max > 0 {
		rest, err := p.s[1].Claim(context.Background(), c)
		if err != nil || len(rest) > 0 {
			t.Fatalf("left out %v, %v", ids(rest), err)
		}
		return
	}
	p.endTied()
}

// endTied ends in the follower those messages with the time of the last chosen one that the first
// store has ended.
func (p *pair) endTied() {
	for id := range p.s[1].topics["orders"].messages {
		mine, theirs := p.state(0, id), p.state(1, id)
		if theirs == punctual.StateReady && mine != theirs {
			if ds := p.follow(id); len(ds) > 0 {
				p.t.Fatalf("%s was leased; want it ended", id)
			}
		}
	}
}

// follow has a claim of the follower encounter a message.
func (p *pair) follow(id string) []punctual.Delivery {
	if err := p.s[1].Encounter("orders", id); err != nil {
		p.t.Fatal(err)
	}
	ds, err := p.s[1].Claim(context.Background(), punctual.Claim{Topics: []string{"orders"}, IDs: []string{id}})
	if err != nil {
		p.t.Fatal(err)
	}
	return ds
}

func (p *pair) state(i int, id string) punctual.State {
	info, err := p.s[i].Get(context.Background(), "orders", id)
	if err != nil {
		return punctual.StateNone
	}
	return info.State
}

func (p *pair) compare() {
	for state := punctual.StateScheduled; state <= punctual.StateDead; state++ {
		p.both(func(s *Store) (any, error) {
			return s.List(context.Background(), punctual.ListQuery{Topic: "orders", State: state})
		})
	}
	p.both(func(s *Store) (any, error) {
		r, err := s.Check(context.Background(), nil)
		if len(r.Problems) > 0 {
			p.t.Fatalf("Check: %q", r.Problems)
		}
		return r, err
	})
}
