package storetest

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest/internal/mutants"
)

// heldUp is memstore on a machine where each push, claim, settlement and purge may take a while,
// and may hold the others of these up.
type heldUp struct {
	*memstore.Store
	each, purge time.Duration // how long a push, claim or settlement keeps the other calls out, and how long a purge does
	beside      time.Duration // how long a purge takes besides, while it keeps no other call out
	purges      *atomic.Int64 // how many purges of all stores have ended
	backlog     time.Duration // how much longer a claim does for each thousand live messages of topics other than its first one
	turn        chan struct{} // has room for the one call that works; in a bubble of synctest a mutex would stop the time
}

func (h *heldUp) take(d time.Duration) {
	h.turn <- struct{}{}
	defer func() { <-h.turn }()
	time.Sleep(d)
}

func (h *heldUp) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	h.take(h.each)
	return h.Store.Push(ctx, ms)
}

func (h *heldUp) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	all, err := h.Topics(ctx)
	if err != nil {
		return nil, err
	}
	pending := int64(0)
	for _, t := range all {
		if t.Topic != c.Topics[0] {
			pending += t.Live()
		}
	}
	h.take(h.each + time.Duration(pending/1000)*h.backlog)
	return h.Store.Claim(ctx, c)
}

func (h *heldUp) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	h.take(h.each)
	return h.Store.Settle(ctx, ss)
}

func (h *heldUp) Purge(ctx context.Context, q punctual.PurgeQuery) (int64, error) {
	time.Sleep(h.beside)
	h.take(h.purge)
	defer h.purges.Add(1)
	return h.Store.Purge(ctx, q)
}

// TestIsolationTellsABlockFromALoadedMachine shows for two cases of group isolation that they pass
// where every call is slow, and fail where one topic holds up another for a little more than a
// second.
func TestIsolationTellsABlockFromALoadedMachine(t *testing.T) {
	for _, c := range []struct {
		name   string
		run    string
		store  heldUp
		broken bool
	}{
		{"a quick machine", "beside a large backlog", heldUp{}, false},
		{"calls of 5 s", "beside a large backlog", heldUp{each: 5 * time.Second}, false},
		{"calls of 5 s, a purge as long", "beside a large purge", heldUp{each: 5 * time.Second, beside: 5 * time.Second}, false},
		{"a backlog that delays others by 1.1 s", "beside a large backlog", heldUp{backlog: 1100 * time.Millisecond / 5}, true},
		{"the same and calls of 5 s", "beside a large backlog", heldUp{each: 5 * time.Second, backlog: 1300 * time.Millisecond / 5}, true},
		{"a purge that holds others up for 1.1 s", "beside a large purge", heldUp{purge: 1100 * time.Millisecond}, true},
		{"the same and calls of 5 s, beside a purge as long", "beside a large purge", heldUp{each: 5 * time.Second, beside: 5 * time.Second, purge: 1100 * time.Millisecond}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var purges atomic.Int64
				o := opener{open: func(clock storekit.Clock) punctual.Store {
					h := c.store
					h.Store, h.turn, h.purges = memstore.New(&memstore.Options{Clock: clock}), make(chan struct{}, 1), &purges
					return &h
				}}
				var got []string
				for _, ic := range isolationCases() {
					if ic.name == c.run {
						got = mutants.Record(ic.name, func(r *mutants.Recorder) { runCase(r, ic, o) })
					}
				}
				if purged := purges.Load() > 0; purged != (c.run == "beside a large purge") {
					t.Errorf("a purge has ended: %v", purged)
				}
				switch {
				case !c.broken && len(got) > 0:
					t.Errorf("reported %q; want nothing", got)
				case c.broken && (len(got) != 1 || !strings.Contains(got[0], "took longer than on an undisturbed store")):
					t.Errorf("reported %q; want that calls are delayed", got)
				}
			})
		})
	}
}
