package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/worker"
)

// A worker of more topics than a claim names makes several claims, and is as prompt for the last
// topic as for the first. With fewer slots than claims it asks for them in turns, and a topic may
// have to wait for its turn.
func TestMoreTopicsThanAClaimNames(t *testing.T) {
	t.Run("a slot for each claim", func(t *testing.T) { moreTopicsThanAClaimNames(t, 8, 5*time.Millisecond) })
	t.Run("one slot", func(t *testing.T) { moreTopicsThanAClaimNames(t, 1, 300*time.Millisecond) })
}

func moreTopicsThanAClaimNames(t *testing.T, slots int, most time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		const many = 2*limits.MaxClaimTopics + 500
		r := newRig(t)
		w := r.worker(worker.Config{Concurrency: slots})
		late := make(map[string]time.Duration)
		handled := make(chan *punctual.Delivery, many)
		for i := range many {
			w.Handle(fmt.Sprint("topic-", i), handlerFunc(func(_ context.Context, d *punctual.Delivery) error {
				handled <- d
				return nil
			}))
		}
		var parted atomic.Bool // a call has named as many topics as it may
		r.store.spoil(func(c punctual.Claim) error {
			switch n := len(c.Topics); {
			case n == limits.MaxClaimTopics:
				parted.Store(true)
			case n > limits.MaxClaimTopics:
				return errors.New("a claim of too many topics")
			}
			return nil
		}, nil)
		const times = 10
		topics := []int{0, limits.MaxClaimTopics, many - 1}
		for _, i := range topics { // one at once, the others while the worker waits
			r.push(fmt.Sprint("topic-", i), "now")
			for n := range times {
				r.push(fmt.Sprint("topic-", i), fmt.Sprint("later ", n), punctual.In(10*time.Second+time.Duration(i+1777*n)*time.Millisecond))
			}
		}
		r.runs(w)
		for range (1 + times) * len(topics) {
			d := <-handled
			late[d.Topic+" "+d.ID] = d.Late()
		}
		r.stops(w)
		if !parted.Load() {
			t.Fatal("no claim named as many topics as may be: the test shows nothing")
		}
		for name, late := range late {
			if late > most {
				t.Errorf("P11: %s was %v late", name, late)
			}
		}
		r.wantLog("claim of too many topics", 0)
	})
}

// Drain of a worker with more topics than one claim may name finds what waits in the last of them.
func TestDrainOfMoreTopicsThanAClaimNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.worker(worker.Config{})
		seen := &record{}
		for i := range limits.MaxClaimTopics + 1 {
			w.Handle(fmt.Sprint("topic-", i), acks(seen))
		}
		r.push("topic-0", "first")
		r.push(fmt.Sprint("topic-", limits.MaxClaimTopics), "last")
		if n, err := w.Drain(t.Context()); n != 2 || err != nil {
			t.Errorf("drain handled %d, %v; want both messages", n, err)
		}
	})
}
