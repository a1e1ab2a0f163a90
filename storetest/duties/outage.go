package duties

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/duty"
	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest/promise"
	"github.com/punctualmq/punctual/worker"
)

// outage is how long RunOutage keeps a store away after the log has told of that, to see that
// nothing else is logged.
const outage = 6 * time.Second

// RunOutage shows that a log gets one line when the store has gone, and one when the store is back,
// from a worker that does duties and from duty.Run. open opens a store whose log goes to logger,
// away has the store's server answer nobody, and back ends that.
func RunOutage(t *testing.T, open func(t *testing.T, logger *slog.Logger) (store punctual.Store, away, back func() error)) {
	for name, run := range map[string]func(t *testing.T, store punctual.Store, logger *slog.Logger){"a worker": runWorker, "duties": runDuties} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := &logLines{}
			logger := slog.New(slog.NewTextHandler(log, nil))
			store, away, back := open(t, logger)
			b := newBench(t, store, "orders")
			b.groups("billing")
			if _, err := schedule.Put(t.Context(), b.queue, schedule.Schedule{Topic: "mail", Name: "each-second", Spec: "@every 1s"}); err != nil {
				t.Fatal(err)
			}
			run(t, store, logger)
			b.push("before")
			b.handled("before")
			if got := log.all(); len(got) != 0 {
				t.Fatalf("before the outage the log has %q", got)
			}
			if err := away(); err != nil {
				t.Fatal(err)
			}
			b.until(promise.P13, "the log tells of the outage", func() bool { return len(log.all()) > 0 })
			time.Sleep(outage)
			if err := back(); err != nil {
				t.Fatal(err)
			}
			b.until(promise.P1, "a push succeeds again", func() bool {
				_, err := b.queue.Push(t.Context(), b.topic, nil, punctual.ID("after"))
				return err == nil
			})
			b.handled("after")
			b.until(promise.P13, "the log tells that the outage is over", func() bool { return len(log.all()) > 1 })
			time.Sleep(time.Second) // to see that nothing else is logged
			if got := log.all(); len(got) != 2 || strings.Contains(got[0], "succeed again") || !strings.Contains(got[1], "succeed again") {
				t.Errorf("the log has %d lines of an outage; want one that it has begun and one that it is over:\n%s", len(got), strings.Join(got, "\n"))
			}
		})
	}
}

// handled waits until a message is copied for the group billing, whose messages nobody keeps.
func (b *bench) handled(id string) {
	b.Helper()
	b.until(promise.P1, id+" is copied", func() bool {
		_, err := b.in.Get(b.Context(), b.topic, id)
		return storekit.ErrorCode(err) == storekit.ErrorCode(punctual.ErrNotFound)
	})
}

// runWorker runs a worker, with the duties of its topics, until the test ends.
func runWorker(t *testing.T, store punctual.Store, logger *slog.Logger) {
	w := worker.New(store, &worker.Config{Schedules: true, Logger: logger})
	acks := punctual.HandlerFunc(func(context.Context, *punctual.Delivery) error { return nil })
	w.HandleGroup("orders", "billing", acks)
	w.Handle("mail", acks)
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, end := context.WithTimeout(context.Background(), patience)
		defer end()
		if err := w.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
}

// runDuties does the duties of the store until the test ends.
func runDuties(t *testing.T, store punctual.Store, logger *slog.Logger) {
	ctx, end := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- duty.Run(ctx, store, &duty.Config{Logger: logger}) }()
	t.Cleanup(func() {
		end()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// logLines is where a log goes whose lines are counted.
type logLines struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// all returns the lines.
func (l *logLines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.FieldsFunc(l.text.String(), func(c rune) bool { return c == '\n' })
}
