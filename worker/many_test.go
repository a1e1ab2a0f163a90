package worker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/punctualmq/punctual"
	seedrig "github.com/punctualmq/punctual/internal/rigs/seed"
	"github.com/punctualmq/punctual/worker"
)

// The claims of many topics share a list for a while: one for each claim would take longer to make
// than all else. No topic is the first for long.
func TestClaimsOfManyTopicsShareAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many, messages = 1000, 400
		r := newRig(t)
		w := r.worker(worker.Config{Concurrency: 8})
		seen := &record{}
		for i := range many {
			w.Handle(fmt.Sprint("topic-", i), handlerFunc(func(_ context.Context, d *punctual.Delivery) error {
				seen.add("%s", d.Topic)
				return nil
			}))
		}
		lists := make(map[*string][]string)
		r.store.spoil(func(c punctual.Claim) error {
			list := unsafe.SliceData(c.Topics)
			if lists[list] == nil {
				lists[list] = slices.Clone(c.Topics)
			} else if !slices.Equal(lists[list], c.Topics) {
				t.Error("a list that claims have had was changed")
			}
			return nil
		}, nil)
		r.runs(w)
		for i := range messages {
			r.push(fmt.Sprint("topic-", i*17%many), "x")
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		_, claims, _ := r.store.counts()
		r.stops(w)
		if n := len(seen.all()); n != messages || claims < messages {
			t.Fatalf("%d of %d messages were handled, in %d claims; want a claim for each", n, messages, claims)
		}
		if n := len(lists); n < 5 || n > 25 {
			t.Errorf("P14: %d claims in %d ms had %d lists; want one for each 20 ms", claims, messages, n)
		}
		first := make(map[string]bool)
		for _, list := range lists {
			first[list[0]] = true
			if slices.Sort(list); len(slices.Compact(list)) != many {
				t.Error("a claim did not name all topics")
			}
		}
		if len(first) < 4 {
			t.Errorf("in %d lists only %d topics came first", len(lists), len(first))
		}
	})
}

// P14: many topics whose claim was late are asked for in one claim again, once they answer in time.
// Otherwise each group of them would cost claims of its own for ever.
func TestManyTopicsGoTogetherAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 1000
		r := newRig(t)
		w := r.worker(worker.Config{Concurrency: 64})
		for i := range many {
			w.Handle(fmt.Sprint("topic-", i), acks(&record{}))
		}
		var mu sync.Mutex
		var named []int                                   // guarded by mu: how many topics each claim names
		random := rand.New(rand.NewPCG(seedrig.Of(t), 0)) // guarded by mu
		r.store.spoil(func(c punctual.Claim) error {
			mu.Lock()
			named = append(named, len(c.Topics))
			first := len(named) == 1
			pause := time.Duration(random.Int64N(int64(10 * time.Millisecond)))
			mu.Unlock()
			if first {
				time.Sleep(10 * time.Second)
			}
			time.Sleep(pause)
			return nil
		}, nil)
		r.runs(w)
		for i := range 800 { // the claims return at different times
			time.Sleep(5 * time.Millisecond)
			r.push(fmt.Sprint("topic-", i*17%many), "x")
		}
		mu.Lock()
		if len(named) < 64 || named[1] >= many {
			t.Errorf("this test shows nothing: after a late claim there were others, of %d topics", named)
		}
		if last := named[len(named)-10:]; slices.Min(last) < many {
			t.Errorf("some seconds after one was late claims name %d topics; want all %d", last, many)
		}
		mu.Unlock()
		time.Sleep(10 * time.Second)
		r.stops(w)
	})
}

// P14: while all slots of a worker with many topics are occupied, the poller sends no claim. The
// next free slot is for a topic that has none.
func TestManyTopicsWithoutASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many, slots = 300, 4
		r := newRig(t)
		w := r.worker(worker.Config{Concurrency: slots})
		seen, returns := &record{}, make(chan struct{})
		for i := range many {
			w.Handle(fmt.Sprint("topic-", i), handlerFunc(func(_ context.Context, d *punctual.Delivery) error {
				seen.add("%s", d.Topic)
				<-returns
				return nil
			}))
		}
		r.runs(w)
		for n := range 2 * slots { // more than it has slots
			r.push("topic-0", fmt.Sprint(n))
		}
		time.Sleep(time.Second)
		r.push("topic-1", "x")
		time.Sleep(time.Second)
		if n := len(seen.all()); n != slots {
			t.Fatalf("%d handlers run; want one in each of %d slots", n, slots)
		}
		_, before, _ := r.store.counts()
		time.Sleep(time.Minute)
		if _, claims, _ := r.store.counts(); claims > before {
			t.Errorf("%d claims were sent without a slot", claims-before)
		}
		r.push("topic-200", "x")
		returns <- struct{}{}
		time.Sleep(100 * time.Millisecond)
		if all := seen.all(); len(all) != slots+1 || all[slots] != "topic-200" {
			t.Errorf("P14: in the slot that came back runs %q; want the topic that had none", all[slots:])
		}
		close(returns)
		r.stops(w)
	})
}
