package worker_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/worker"
)

// The claims of many topics share a list for a while: one for each claim would take longer to make than all else. No topic is the
// first for long.
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
