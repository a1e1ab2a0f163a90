package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// askedClock counts how often somebody begins to sleep.
type askedClock struct {
	*storekit.ManualClock
	asked atomic.Int64
}

func (c *askedClock) After(t time.Time) (<-chan time.Time, func()) {
	c.asked.Add(1)
	return c.ManualClock.After(t)
}

// A claim that waits, and the poller behind it, sleep while nothing happens: while the clock is
// paused, neither looks at it again and again.
func TestWaitingClaimsSleep(t *testing.T) {
	clock := &askedClock{ManualClock: storekit.NewManualClock(time.Unix(1_800_000_000, 0))}
	s := openFresh(t, clock).(*Store)
	if _, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "later", Delay: time.Hour}}); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	got := make(chan error, 1)
	go func() {
		_, err := s.Claim(ctx, punctual.Claim{Topics: []string{"later", "empty"}, Max: 1, Wait: time.Hour})
		got <- err
	}()
	waitUntil(t, "the poller has read when the topics need attention", func() bool {
		s.waits.mu.Lock()
		defer s.waits.mu.Unlock()
		later := s.waits.topics["later"]
		return later != nil && later.at != never && later.asking == nil && s.waits.polling == 0
	})
	before := clock.asked.Load()
	if before == 0 {
		t.Fatal("this test shows nothing: nobody asked the clock")
	}
	time.Sleep(100 * time.Millisecond) // nothing is to happen; a loop that does not sleep would ask a hundred thousand times
	if n := clock.asked.Load() - before; n > 100 {
		t.Errorf("the clock was asked %d times while nothing happened", n)
	}
	end()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Errorf("the claim ended with %v", err)
	}
}

// P11, P14: the connection of a claim that was woken hangs. The other claims for the topic do not
// wait for that claim.
func TestHungClaimAndOtherClaims(t *testing.T) {
	t.Parallel()
	s, b := openBreaking(t, shared, Options{Schema: fresh(), Migrate: true})
	found := claimsWaiting(t, s, 4)
	b.hangAt("SKIP LOCKED", "orders")
	pushOrders(t, s, 1, 0)
	wantFoundBeside(t, b, found)
}

// P11: the connection of a poll hangs. The polls behind it do not wait for it.
func TestHungPoll(t *testing.T) {
	t.Parallel()
	s, b := openBreaking(t, shared, Options{Schema: fresh(), Migrate: true})
	claimsWaiting(t, s, 1)
	b.hangAt("n.scan_start")
	waitUntil(t, "a poll hangs", func() bool { return b.count() == 1 })
	before, _ := pollsOf(s)
	limit := time.After(callTime / 2) // by then the poll that hangs has not ended
	for {
		polls, underWay := pollsOf(s)
		if polls >= before+3 && underWay > 0 {
			return
		}
		select {
		case <-limit:
			t.Fatalf("P11: while one poll hangs %d others have begun; want one each second", polls-before)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// pollsOf returns how many polls of a store have begun, and how many are under way.
func pollsOf(s *Store) (begun, underWay int) {
	s.waits.mu.Lock()
	defer s.waits.mu.Unlock()
	return s.waits.polls, s.waits.polling
}

// claimsWaiting starts claims of orders, whose wait is shorter than a call over a connection that
// hangs, and returns when all of them sleep.
func claimsWaiting(t *testing.T, s *Store, n int) <-chan claimResult {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	found := make(chan claimResult, n)
	var claims sync.WaitGroup
	for range n {
		claims.Go(func() {
			ds, err := s.Claim(ctx, punctual.Claim{Topics: []string{"orders"}, Max: 1, Wait: callTime * 2 / 3})
			found <- claimResult{ds, err}
		})
	}
	t.Cleanup(func() { end(); claims.Wait() })
	waitUntil(t, "all claims sleep", func() bool {
		s.waits.mu.Lock()
		defer s.waits.mu.Unlock()
		o := s.waits.topics["orders"]
		return o != nil && len(o.waiting) == n && !slices.ContainsFunc(o.waiting, func(w *waiter) bool { return w.busy })
	})
	return found
}

// wantFoundBeside fails the test unless one connection hangs and a claim finds the message all the
// same.
func wantFoundBeside(t *testing.T, b *breaker, found <-chan claimResult) {
	t.Helper()
	got := <-found
	b.happened(t, 1)
	if got.err != nil || len(got.ds) != 1 {
		t.Fatalf("P11, P14: while one connection hangs a claim found %v, %v; want the message", got.ds, got.err)
	}
	t.Logf("found after %v", got.ds[0].ReadyFor())
}

// A claim of many topics reads the times of those alone for which something may have come since a
// poll has read them. What comes is found, in this process and from another one.
func TestClaimOfManyTopicsReadsFew(t *testing.T) {
	t.Parallel()
	const all = 300
	traced := &nextDueTopics{}
	schema := fresh()
	s := openStore(t, tracedPool(t, traced, nil), &Options{Schema: schema, Migrate: true, OwnPool: true})
	other := openStore(t, newPool(t, shared), &Options{Schema: schema, OwnPool: true})
	topics := make([]string, all)
	for i := range topics {
		topics[i] = fmt.Sprint("t", i)
	}
	claim := func(wait time.Duration) []punctual.Delivery {
		t.Helper()
		ds, err := s.Claim(t.Context(), punctual.Claim{Topics: topics, Max: 10, Wait: wait})
		if err != nil {
			t.Fatal(err)
		}
		return ds
	}
	for _, topic := range topics { // so that each topic has a scan start
		m := laterMessage("later")
		m.Topic = topic
		if _, err := s.Push(t.Context(), []punctual.NewMessage{m}); err != nil {
			t.Fatal(err)
		}
	}
	claim(time.Millisecond)
	const rounds = 50
	few := 0
	for n := range rounds {
		from := []*Store{s, other}[n%2]
		if _, err := from.Push(t.Context(), []punctual.NewMessage{{Topic: topics[n], ID: fmt.Sprint(n)}}); err != nil {
			t.Fatal(err)
		}
		traced.take()
		for ds := claim(callTime / 2); ; ds = claim(callTime / 2) {
			if len(ds) == 0 {
				t.Fatalf("P11: nothing found in round %d", n)
			}
			if ds[0].ID == fmt.Sprint(n) {
				break
			}
		}
		if traced.take() < all { // neither a claim nor a poll has read all
			few++
		}
	}
	if few < rounds/2 {
		t.Errorf("in %d of %d rounds a claim or a poll has read all %d topics; want few", rounds-few, rounds, all)
	}
}

// nextDueTopics counts the topics that next_due.sql has been asked for.
type nextDueTopics struct {
	nextDueTracer
	asked atomic.Int64
}

func (c *nextDueTopics) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		if strings.Contains(q.SQL, "n.scan_start") {
			c.asked.Add(int64(len(q.Arguments[3].([]string))))
		}
	}
	return ctx
}

func (c *nextDueTopics) take() int64 { return c.asked.Swap(0) }
