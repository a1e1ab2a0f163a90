package diskstore

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

// What is just being pushed and due soon meets what is just being loaded; claims, cancels and
// reschedules meet both, and memory is so small that timelines are cut all the time. Every
// message must come exactly once, or be cancelled, and never before its time.
func TestPushMeetsLoad(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) { pushMeetsLoad(t, seed) })
	}
}

func pushMeetsLoad(t *testing.T, seed uint64) {
	clock := punctual.NewManualClock(testStart)
	s := openAt(t, t.TempDir(), &Options{Clock: clock, NearBytes: evictMin * entryBytes * 2})
	c := &courier{t: t, s: s, gone: map[string]string{}}
	const pushers, each = 4, 3000
	var pushing, working sync.WaitGroup
	stop := make(chan struct{})
	for p := range pushers {
		pushing.Go(func() { c.pushSome(rand.New(rand.NewPCG(seed, uint64(p))), p, each) })
	}
	for i := range 3 {
		working.Go(func() { c.claimUntil(stop, rand.New(rand.NewPCG(seed, 100+uint64(i)))) })
	}
	working.Go(func() { moveClock(clock, stop, rand.New(rand.NewPCG(seed, 200))) })
	pushing.Wait()
	for i := 0; !c.complete(pushers*each) && !t.Failed(); i++ {
		clock.Advance(time.Second)
		c.claimOnce(100)
		if i == 10_000 {
			c.reportMissing(pushers, each)
		}
	}
	close(stop)
	working.Wait()
	if r := mustBeSound(t, s); r.Live != 0 {
		t.Errorf("%d messages are left", r.Live)
	}
}

func moveClock(clock *punctual.ManualClock, stop chan struct{}, rng *rand.Rand) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Millisecond):
			clock.Advance(time.Duration(rng.IntN(100)) * time.Millisecond)
		}
	}
}

// courier pushes, changes and claims messages, and knows what became of them.
type courier struct {
	t *testing.T
	s *Store

	mu   sync.Mutex
	gone map[string]string // what became of it; guarded by mu
}

func (c *courier) note(id, what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if was := c.gone[id]; was != "" {
		c.t.Errorf("P3 one holder, P5 cancel is definite: %s was %s and then %s", id, was, what)
	}
	c.gone[id] = what
}

func (c *courier) complete(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.gone) == n
}

func (c *courier) pushSome(rng *rand.Rand, pusher, n int) {
	for i := 0; i < n; {
		var ms []punctual.NewMessage
		for range min(1+rng.IntN(40), n-i) {
			ms = append(ms, punctual.NewMessage{
				Topic: "o", ID: fmt.Sprintf("%d-%d", pusher, i), Delay: time.Duration(rng.IntN(15_000)) * time.Millisecond,
			})
			i++
		}
		rs, err := c.s.Push(c.t.Context(), ms)
		if err != nil {
			c.t.Errorf("push: %v", err)
			return
		}
		if rng.IntN(3) == 0 {
			c.change(rng, rs[rng.IntN(len(rs))].ID)
		}
	}
}

// change cancels a message or moves it by up to 3 s.
func (c *courier) change(rng *rand.Rand, id string) {
	a := punctual.Amendment{Change: punctual.ChangeCancel, Topic: "o", ID: id}
	if rng.IntN(2) == 0 {
		a.Change, a.Delay = punctual.ChangeReschedule, time.Duration(rng.IntN(3000))*time.Millisecond
	}
	out, err := c.s.Amend(c.t.Context(), []punctual.Amendment{a})
	if err != nil {
		c.t.Errorf("amend: %v", err)
		return
	}
	if out[0].Status == punctual.Cancelled {
		c.note(id, "cancelled")
	}
}

func (c *courier) claimUntil(stop chan struct{}, rng *rand.Rand) {
	for {
		select {
		case <-stop:
			return
		default:
			c.claimOnce(1 + rng.IntN(200))
		}
	}
}

func (c *courier) claimOnce(n int) {
	ds, err := c.s.Claim(c.t.Context(), punctual.Claim{
		Topics: []string{"o"}, Max: n, Lease: punctual.MaxLease,
	})
	if err != nil {
		c.t.Errorf("claim: %v", err)
	}
	var ss []punctual.Settlement
	for _, d := range ds {
		if d.Delivered.Before(d.Due) {
			c.t.Errorf("P2 never early: %s due %v came at %v", d.ID, d.Due, d.Delivered)
		}
		c.note(d.ID, "delivered")
		ss = append(ss, punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleAck})
	}
	errs, err := c.s.Settle(c.t.Context(), ss)
	for _, e := range append(errs, err) {
		if e != nil {
			c.t.Errorf("ack: %v", e)
		}
	}
}

// reportMissing fails the test with what the store knows of the messages that do not come.
func (c *courier) reportMissing(pushers, each int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range pushers {
		for i := range each {
			id := fmt.Sprintf("%d-%d", p, i)
			if c.gone[id] != "" {
				continue
			}
			info, err := c.s.Get(c.t.Context(), "o", id)
			c.s.mu.Lock()
			topic := c.s.topics["o"]
			c.t.Errorf("P1 no loss: %s does not come: %s due %v, %v; timeline loaded to %v, next on disk %v, %d near, %d unsynced, %d in memory",
				id, info.State, info.Due, err, topic.loaded, topic.diskNext, topic.nears, len(c.s.unsynced), len(c.s.live))
			c.s.mu.Unlock()
		}
	}
}
