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
)

// A Runner logs a schedule that does not come once, with its problem, and once that the problem is over.
func TestStalledSchedulesAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(nil)
		q := punctual.NewQueue(store, nil)
		put := func() {
			if _, err := q.PutSchedule(t.Context(), punctual.Schedule{Topic: "reports", Name: "daily", Spec: "@daily"}); err != nil {
				t.Fatal(err)
			}
		}
		put()
		if _, err := q.Reschedule(t.Context(), "reports@cron", "daily", punctual.In(365*24*time.Hour)); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		r := NewRunner(store, slog.New(slog.NewTextHandler(&log, nil)), nil)
		r.Names = func(ctx context.Context) ([]string, error) { return store.TopicNames(ctx, punctual.NameQuery{}) }
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
