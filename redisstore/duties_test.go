package redisstore

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/notify"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest/duties"
	"github.com/punctualmq/punctual/worker"
)

// TestSlowDuties copies for groups and forwards follow-ups over this store, whose topics have one
// partition, and then four.
func TestSlowDuties(t *testing.T) {
	t.Parallel()
	t.Run("one partition", func(t *testing.T) { duties.Run(t, openFresh) })
	t.Run("four partitions", func(t *testing.T) {
		duties.Run(t, func(t *testing.T, clock storekit.Clock) punctual.Store {
			return openStore(t, connect(t, shared), &Options{Prefix: fresh(), Partitions: 4, clock: clock})
		})
	})
}

// TestSlowKillDuties kills processes while they copy for groups and forward follow-ups, over topics
// of four partitions.
func TestSlowKillDuties(t *testing.T) {
	t.Parallel()
	address := func(*testing.T) string { return "redis://" + shared.Addr + "?prefix=" + fresh() }
	duties.RunKilled(t, "TestSlowKillDuties", address, openQuietly)
}

func openQuietly(t *testing.T, url string) punctual.Store {
	s, err := OpenURL(t.Context(), url, &Options{Partitions: 4, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestReaches: a Worker whose handlers store follow-ups in other topics needs no server that
// forwards them, and no settlement is refused on the way.
func TestReaches(t *testing.T) {
	t.Parallel()
	if _, err := punctual.As[storekit.AbilityReporter](openFresh(t, nil)); err != nil {
		t.Skipf("skipped: %v", err)
	}
	for _, partitions := range []int{1, 4} {
		s := openStore(t, connect(t, shared), &Options{Prefix: fresh(), Partitions: partitions})
		q := punctual.NewQueue(s, nil)
		done := make(chan string, 64)
		var refused atomic.Int64
		o := &punctual.Observer{OnSettle: func(_ context.Context, _ punctual.Settlement, _ time.Duration, err error) {
			if err != nil {
				refused.Add(1)
			}
		}}
		w := worker.New(s, &worker.Config{Observer: o, Logger: slog.New(slog.DiscardHandler)})
		w.Handle("pay", punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
			return punctual.Follow(nil,
				punctual.NewMessage{Topic: "invoice", ID: d.ID + "~invoice"},
				punctual.NewMessage{Topic: "pay@note", ID: d.ID + "~note"},
				punctual.NewMessage{Topic: "pay@note", ID: "elsewhere-" + d.ID},
			)
		}))
		for _, topic := range []string{"invoice", "pay@note"} {
			w.Handle(topic, punctual.HandlerFunc(func(_ context.Context, d *punctual.Delivery) error {
				done <- d.ID
				return nil
			}))
		}
		const n = 10
		for i := range n {
			if _, err := q.Push(t.Context(), "pay", nil, punctual.ID(strconv.Itoa(i))); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		seen := map[string]int{}
		for range 3 * n {
			select {
			case id := <-done:
				seen[id]++
			case <-time.After(time.Minute):
				t.Fatalf("P1: with %d partitions only %d of %d follow-ups were handled", partitions, len(seen), 3*n)
			}
		}
		if err := w.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if len(seen) != 3*n || refused.Load() != 0 {
			t.Errorf("with %d partitions %d follow-ups of %d, and %d settlements were refused", partitions, len(seen), 3*n, refused.Load())
		}
		st, err := s.Stats(t.Context(), "pay@out")
		if err != nil || st.Live() != 0 || st.Dead != 0 {
			t.Errorf("envelopes: %+v, %v", st, err)
		}
	}
}

// TestSlowSchedules has the cases of schedules over this store, whose topics have one partition,
// and then four.
func TestSlowSchedules(t *testing.T) {
	t.Parallel()
	t.Run("one partition", func(t *testing.T) { duties.RunSchedules(t, openFresh) })
	t.Run("four partitions", func(t *testing.T) {
		duties.RunSchedules(t, func(t *testing.T, clock storekit.Clock) punctual.Store {
			return openStore(t, connect(t, shared), &Options{Prefix: fresh(), Partitions: 4, clock: clock})
		})
	})
}

// TestSlowKillSchedules kills processes that do the duty of schedules, over topics of four
// partitions.
func TestSlowKillSchedules(t *testing.T) {
	t.Parallel()
	address := func(*testing.T) string { return "redis://" + shared.Addr + "?prefix=" + fresh() }
	duties.RunKilledSchedules(t, "TestSlowKillSchedules", address, openQuietly)
}

// TestFirstUse: what makes a companion is not late the first time, for the process that makes it
// and for another one, also when notifications do not come.
func TestFirstUse(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{1, 4} {
		for name, o := range map[string]struct{ alone, deaf bool }{"one process": {alone: true}, "two processes": {}, "without notifications": {deaf: true}} {
			t.Run(fmt.Sprintf("%s, %d partitions", name, partitions), func(t *testing.T) {
				t.Parallel()
				prefix := fresh()
				does := openStore(t, connect(t, shared), &Options{Prefix: prefix, Partitions: partitions})
				stores := does
				if !o.alone {
					stores = openStore(t, connect(t, shared), &Options{Prefix: prefix, Partitions: partitions})
				}
				if o.deaf {
					own := does.sender
					does.sender = stores.sender // so it takes the other's notifications for its own, and ignores them
					does.waits.listen(notify.PingEvery)
					does.sender = own
				}
				duties.RunFirst(t, does, stores)
			})
		}
	}
}
