package duties

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/storekit"
)

// A Runner logs a schedule that does not come once, with its problem, and once that the problem is
// over.
func TestStalledSchedulesAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(nil)
		q := punctual.NewQueue(store, nil)
		put := func() {
			if _, err := schedule.Put(t.Context(), q, schedule.Schedule{Topic: "reports", Name: "daily", Spec: "@daily"}); err != nil {
				t.Fatal(err)
			}
		}
		put()
		if _, err := q.Reschedule(t.Context(), "reports@cron", "daily", punctual.In(365*24*time.Hour)); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		r := NewRunner(store, slog.New(slog.NewTextHandler(&log, nil)), nil)
		r.Names = func(ctx context.Context) ([]string, error) { return store.TopicNames(ctx, storekit.NameQuery{}) }
		r.Start = func([]string, punctual.Handler, time.Duration) (func(), error) { return func() {}, nil }
		ctx, end := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		time.Sleep(10 * time.Minute)
		synctest.Wait() // so that nothing writes to the log now
		if text := log.String(); strings.Count(text, "a schedule does not come") != 1 || !strings.Contains(text, "topic=reports schedule=daily problem=\"its message was moved from ") {
			t.Errorf("after ten minutes of a schedule that was moved the log says %q", text)
		}
		log.Reset()
		put()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if text := log.String(); strings.Count(text, "a schedule has this problem no more") != 1 || strings.Contains(text, "does not come\"") {
			t.Errorf("after it was put again the log says %q", text)
		}
		end()
		if err := <-done; err != nil {
			t.Error(err)
		}
		r.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A Runner has schedules begin again within 20 s of a step of the store's clock, and within two
// minutes of its own start. It logs that they had decided about times ahead.
func TestSchedulesBeginAgain(t *testing.T) {
	for name, during := range map[string]bool{"a step while it runs": true, "a step before it runs": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clock := &shifted{}
				store := memstore.New(&memstore.Options{Clock: clock})
				q := punctual.NewQueue(store, nil)
				var log bytes.Buffer
				r := NewRunner(store, slog.New(slog.NewTextHandler(&log, nil)), nil)
				r.Names = func(ctx context.Context) ([]string, error) { return store.TopicNames(ctx, storekit.NameQuery{}) }
				r.Start = func([]string, punctual.Handler, time.Duration) (func(), error) { return func() {}, nil }
				ctx, end := context.WithCancel(t.Context())
				done := make(chan error, 1)
				step := func() {
					clock.by = 365 * 24 * time.Hour
					if _, err := schedule.Put(t.Context(), q, schedule.Schedule{Topic: "reports", Name: "daily", Spec: "@daily"}); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Minute) // the Runner reads the clock
					synctest.Wait()
					clock.by = 0
					if c, err := store.StepClock(t.Context()); err != nil || c.Steps != 1 {
						t.Fatal(c, err)
					}
				}
				start := func() { go func() { done <- r.Run(ctx) }() }
				within := 2 * time.Minute
				if during {
					within = 2 * clockEvery
					start()
					step()
				} else {
					step()
					start()
				}
				time.Sleep(within)
				synctest.Wait()
				ds, err := store.Claim(t.Context(), punctual.Claim{Topics: []string{"reports@cron"}, Max: 1})
				if err != nil || len(ds) != 1 || ds[0].ID != "daily" {
					t.Errorf("P8: %v after the step the duty of schedules finds %v, %v; want the schedule", within, ds, err)
				}
				if text := log.String(); strings.Count(text, "a schedule does not come") != 1 || !strings.Contains(text, "because the store's clock was ahead") {
					t.Errorf("the log says %q", text)
				}
				end()
				if err := <-done; err != nil {
					t.Error(err)
				}
				r.Close()
				if err := store.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// shifted is the clock of the bubble, ahead by as much as a test says while nothing else runs.
type shifted struct {
	storekit.SystemClock
	by time.Duration
}

func (c *shifted) Now() time.Time { return time.Now().Add(c.by) }
