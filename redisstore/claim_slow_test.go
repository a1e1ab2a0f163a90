package redisstore

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/storekit"
)

// claimSlowly has a claim ask both partitions of a topic, each with one message due. hold keeps
// back the second request, or the answer to it. claimSlowly returns when the claim has; then slow
// is paused.
func claimSlowly(t *testing.T, hold func(p *redisrig.Proxy, which redisrig.Which) *redisrig.Fault) (s *Store, first punctual.Delivery, slow *redisrig.Fault) {
	t.Helper()
	server := redisrig.Start(t)
	s, p := openBehind(t, server, &Options{Partitions: 2})
	push(t, s, inEach(2)...)
	slow = hold(p, redisrig.Nth(2, runs(script.Claim)))
	ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 2, Lease: time.Minute})
	slow.Happened()
	if err != nil || len(ds) != 1 {
		t.Fatalf("a claim whose second look has no answer yet returned %v, %v; want the message of the first look", ds, err)
	}
	return s, ds[0], slow
}

// inEach returns a message for each of n partitions.
func inEach(n int) []punctual.NewMessage {
	var ms []punctual.NewMessage
	for i := 0; len(ms) < n; i++ {
		if id := fmt.Sprint(i); keys.Home(id, n) == len(ms) {
			ms = append(ms, punctual.NewMessage{ID: id, Due: time.Unix(1, 0)})
		}
	}
	return ms
}

// P3: a claim that has leased something returns it although a further script gets no answer. What
// that script leases late is given back, and the attempt does not count.
func TestClaimReturnsBesideASlowLook(t *testing.T) {
	t.Run("not carried out", func(t *testing.T) {
		s, first, slow := claimSlowly(t, func(p *redisrig.Proxy, which redisrig.Which) *redisrig.Fault {
			return p.Hold(which).Paused()
		})
		slow.Resume()
		wantOther(t, s, first)
	})
	t.Run("carried out", func(t *testing.T) {
		s, first, slow := claimSlowly(t, func(p *redisrig.Proxy, which redisrig.Which) *redisrig.Fault {
			return p.Lose(1, which).Paused()
		})
		if st, err := s.Stats(t.Context(), "orders"); err != nil || st.Leased != 2 {
			t.Fatalf("this test shows nothing: %+v, %v; want both messages leased", st, err)
		}
		slow.Resume()
		wantOther(t, s, first)
	})
}

// P3: a claim that waits asks for what is due in other partitions, too, but does not wait for an
// answer that is slow. What the slow script leases late is given back.
func TestWaitingClaimReturnsBesideASlowLook(t *testing.T) {
	s, p := openBehind(t, redisrig.Start(t), &Options{Partitions: 2})
	c := punctual.Claim{Topics: []string{"orders"}, Max: 2, Wait: time.Minute}
	push(t, s, inEach(2)...)
	slow := p.Hold(redisrig.Nth(2, runs(script.Claim))).Paused()
	ds, err := s.Claim(t.Context(), c)
	slow.Happened()
	if err != nil || len(ds) != 1 {
		t.Fatalf("a claim whose second look has no answer yet returned %v, %v; want the message of the first look", ds, err)
	}
	slow.Resume()
	wantOther(t, s, ds[0])
}

// wantOther claims the message that was not claimed first, which must be in its first attempt, and
// acks the first one.
func wantOther(t *testing.T, s *Store, first punctual.Delivery) {
	t.Helper()
	if d := claimOne(t, s, time.Minute); d.ID == first.ID || d.Attempt != 1 || len(d.Failures) > 0 {
		t.Errorf("P3: claimed %+v after %s; want the other message in its first attempt", d, first.ID)
	}
	ack(t, s, first)
}

// callingClock calls a function once, when it is read for the n-th time.
type callingClock struct {
	*storekit.ManualClock
	mu   sync.Mutex
	left int    // guarded by mu
	call func() // guarded by mu
}

func (c *callingClock) Now() time.Time {
	c.mu.Lock()
	c.left--
	call := c.call
	if c.left != 0 {
		call = nil
	}
	c.mu.Unlock()
	if call != nil {
		call()
	}
	return c.ManualClock.Now()
}

// P3: a claim does not return a message that it has leased if that lease has ended and another
// claim holds the message by then.
func TestClaimLeavesWhatAnotherOneHas(t *testing.T) {
	taken := 0
	for n := 1; n <= 12; n++ {
		manual := storekit.NewManualClock(time.Unix(1_800_000_000, 0))
		clock := &callingClock{ManualClock: manual}
		s := openStore(t, connect(t, shared), &Options{Prefix: fresh(), Partitions: 2, clock: clock})
		other := openStore(t, s.client, &Options{Prefix: s.opt.Prefix, Partitions: 2, clock: manual})
		push(t, s, inEach(2)...)
		var mu sync.Mutex
		held, returned := make(map[string]int64), false // guarded by mu
		clock.mu.Lock()
		clock.left = n
		clock.call = func() {
			mu.Lock()
			defer mu.Unlock()
			if returned {
				return
			}
			manual.Advance(2 * time.Minute)
			ds, err := other.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 2, Lease: time.Hour})
			if err != nil {
				t.Errorf("the other claim: %v", err)
			}
			for _, d := range ds {
				if held[d.ID] = d.Token; d.Attempt == 2 {
					taken++
				}
			}
		}
		clock.mu.Unlock()
		ds, err := s.Claim(t.Context(), punctual.Claim{Topics: []string{"orders"}, Max: 2, Lease: time.Minute})
		mu.Lock()
		returned = true
		mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range ds {
			if !d.LeaseUntil.After(manual.Now()) || held[d.ID] > 0 {
				t.Errorf("reading %d: a claim returned %s with a lease until %v at %v, which another claim holds: %v", n, d.ID, d.LeaseUntil, manual.Now(), held[d.ID] > 0)
			}
		}
		for id, token := range held {
			ack(t, other, punctual.Delivery{Message: punctual.Message{Topic: "orders", ID: id}, Token: token})
		}
	}
	if taken == 0 {
		t.Fatal("this test shows nothing: the other claim never took what the first had leased")
	}
}
