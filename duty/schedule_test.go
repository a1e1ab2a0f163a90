package duty_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/duty"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/schedule"
)

// TestRunStoresOccurrences: two processes run the duties of a store, and each minute of a schedule
// has one occurrence.
func TestRunStoresOccurrences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(nil)
		q := punctual.NewQueue(store, nil)
		ctx, stop := context.WithCancel(t.Context())
		var runs sync.WaitGroup
		for range 2 {
			runs.Go(func() {
				if err := duty.Run(ctx, store, &duty.Config{Logger: slog.New(slog.DiscardHandler)}); err != nil {
					t.Error(err)
				}
			})
		}
		_, err := schedule.Put(t.Context(), q, schedule.Schedule{Topic: "reports", Name: "often", Spec: "* * * * *", Overlap: schedule.OverlapAllow})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10*time.Minute + time.Second)
		s, err := store.Stats(t.Context(), "reports")
		if err != nil || s.Ready != 10 {
			t.Errorf("%+v, %v; want 10 occurrences", s, err)
		}
		info, err := schedule.Get(t.Context(), q, "reports", "often")
		if err != nil || info.Counts != (punctual.ScheduleCounts{Stored: 10}) {
			t.Errorf("%+v, %v", info.Counts, err)
		}
		stop()
		runs.Wait()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}
