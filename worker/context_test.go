package worker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/worker"
)

type contextKey struct{}

// derive returns the context of a handler, and contexts that the handler may derive from it.
func derive(ctx context.Context) map[string]context.Context {
	withCancel, cancel := context.WithCancel(ctx)
	withTimeout, cancelTimeout := context.WithTimeout(context.WithValue(ctx, contextKey{}, "own"), 24*time.Hour)
	_, _ = cancel, cancelTimeout // they end with ctx
	return map[string]context.Context{
		"itself":                  ctx,
		"WithCancel":              withCancel,
		"WithValue + WithTimeout": withTimeout,
		"WithValue + WithCancel":  context.WithValue(withCancel, contextKey{}, "own"),
	}
}

// contextGoroutines counts the goroutines that package context has started from the caller's
// goroutine. Those started from other goroutines do not count, because they come and go meanwhile.
func contextGoroutines(t *testing.T) int {
	t.Helper()
	var stacks strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&stacks, 2); err != nil {
		t.Fatal(err)
	}
	var self int // the caller's stack is the first
	if _, err := fmt.Sscanf(stacks.String(), "goroutine %d ", &self); err != nil {
		t.Fatal(err)
	}
	return strings.Count(stacks.String(), fmt.Sprintf("created by context.(*cancelCtx).propagateCancel in goroutine %d\n", self))
}

// foreign is a context with a Done channel of its own. Package context has to wait for that in a
// goroutine.
type foreign struct {
	context.Context
	done chan struct{}
}

func (f foreign) Done() <-chan struct{} { return f.done }

// TestContextGoroutinesAreSeen: a context with a cancel and one with a time limit cost a goroutine
// each where they are derived from a foreign one. So contextGoroutines, which the next test uses,
// counts what it should.
func TestContextGoroutinesAreSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f := foreign{ctx, make(chan struct{})}
		derive(f)
		if n := contextGoroutines(t); n != 2 {
			t.Errorf("a context with a cancel and one with a time limit have %d goroutines, want 2", n)
		}
		cancel()
		close(f.done)
	})
}

// TestHandlerContextEnds: each end has its error and cause, in derived contexts too, and
// derived contexts cost no goroutine.
func TestHandlerContextEnds(t *testing.T) {
	cases := []struct {
		name  string
		end   func(r *rig, w *worker.Worker)
		err   error
		cause error
	}{
		{"timeout", func(*rig, *worker.Worker) { time.Sleep(2 * time.Hour) }, context.DeadlineExceeded, context.DeadlineExceeded},
		{"lost lease", func(r *rig, _ *worker.Worker) {
			r.push("t", "a", punctual.Replace(), punctual.In(24*time.Hour))
			time.Sleep(time.Minute)
		}, context.Canceled, punctual.ErrLeaseLost},
		{"cancelled message", func(r *rig, _ *worker.Worker) {
			if err := r.q.Cancel(r.t.Context(), "t", "a"); !errors.Is(err, punctual.ErrLeased) {
				r.t.Error(err)
			}
			time.Sleep(time.Minute)
		}, context.Canceled, punctual.ErrCancelled},
		{"stop by force", func(r *rig, w *worker.Worker) {
			ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
			defer cancel()
			if err := w.Stop(ctx); err == nil {
				r.t.Error("Stop by force returned nil")
			}
		}, context.Canceled, punctual.ErrClosed},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				seen := &record{}
				w := r.worker(worker.Config{})
				w.Handle("t", handlerFunc(func(ctx context.Context, _ *punctual.Delivery) error {
					all := derive(ctx)
					if n := contextGoroutines(t); n != 0 {
						t.Errorf("derived contexts made %d goroutines", n)
					}
					after := make(chan struct{})
					context.AfterFunc(ctx, func() { close(after) })
					<-after
					for name, ctx := range all {
						<-ctx.Done()
						if err, cause := ctx.Err(), context.Cause(ctx); !errors.Is(err, c.err) || !errors.Is(cause, c.cause) {
							t.Errorf("%s: ended with %v because of %v, want %v because of %v", name, err, cause, c.err, c.cause)
						}
						if ctx.Value(key{}) != "value" {
							t.Errorf("%s: a value was lost with the end", name)
						}
					}
					seen.add("looked at %d", len(all))
					return nil
				}))
				r.push("t", "a")
				if err := w.Start(context.WithValue(t.Context(), key{}, "value")); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				c.end(r, w)
				synctest.Wait()
				seen.want(t, "looked at 4")
				r.stops(w)
			})
		})
	}
}

// key is the key of a value in the context that Start gets.
type key struct{}

func TestHandlerContextDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		w := r.worker(worker.Config{Timeout: time.Minute})
		note := handlerFunc(func(ctx context.Context, d *punctual.Delivery) error {
			at, ok := ctx.Deadline()
			if !ok {
				at = time.Now()
			}
			seen.add("%s: %v %v", d.ID, time.Until(at), ok)
			return nil
		})
		w.Handle("own", note, worker.Timeout(time.Hour))
		w.Handle("usual", note)
		w.Handle("none", note, worker.Timeout(-1))
		for _, topic := range []string{"own", "usual", "none"} {
			r.push(topic, topic)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
		defer cancel()
		if n, err := w.Drain(ctx); n != 3 || err != nil {
			t.Errorf("drain: %d, %v", n, err)
		}
		seen.want(t, "own: 30m0s true", "usual: 1m0s true", "none: 30m0s true")
		for _, m := range []punctual.NewMessage{
			{Topic: "own", ID: "short", Timeout: time.Second},
			{Topic: "usual", ID: "long", Timeout: 20 * time.Minute},
			{Topic: "none", ID: "bounded", Timeout: 10 * time.Minute},
		} {
			if _, err := r.store.Push(t.Context(), []punctual.NewMessage{m}); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := w.Drain(ctx); n != 3 || err != nil {
			t.Errorf("drain of messages with timeouts: %d, %v", n, err)
		}
		if got := seen.all()[3:]; !slices.Equal(got, []string{"short: 1s true", "long: 20m0s true", "bounded: 10m0s true"}) {
			t.Errorf("by the timeouts of messages: %q", got)
		}
		r.push("none", "none")
		r.runs(w)
		synctest.Wait()
		if got := seen.all()[6:]; !slices.Equal(got, []string{"none: 0s false"}) {
			t.Errorf("without a limit: %q", got)
		}
		r.stops(w)
	})
}

// TestDrainEndsItsHandlersAsItsContextEnds: the context of a handler ends with the error and the
// cause of Drain's context.
func TestDrainEndsItsHandlersAsItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		w := r.worker(worker.Config{})
		w.Handle("t", handlerFunc(func(ctx context.Context, _ *punctual.Delivery) error {
			<-ctx.Done()
			seen.add("%v because of %v after %v", ctx.Err(), context.Cause(ctx), r.since())
			return ctx.Err()
		}))
		r.push("t", "a")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errBroken)
		defer cancel()
		if _, err := w.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("drain: %v", err)
		}
		seen.want(t, fmt.Sprintf("%v because of %v after 1m0s", context.DeadlineExceeded, errBroken))
	})
}

// TestWorkerTellsOfATimeoutWhileARenewalHangs: the watcher, which ends contexts, does not wait for
// the store.
func TestWorkerTellsOfATimeoutWhileARenewalHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		r.store.afterSettle = func(_ context.Context, ss []punctual.Settlement) error {
			if ss[0].Verb == punctual.SettleExtend {
				time.Sleep(8 * time.Second)
			}
			return nil
		}
		w := r.worker(worker.Config{Timeout: 12 * time.Second})
		w.Handle("t", lasting(r, seen, time.Hour))
		r.push("t", "a", punctual.MaxAttempts(1))
		r.runs(w)
		time.Sleep(time.Minute)
		seen.want(t, "a ended at 12s: deadline") // the renewal is under way from 10 s to 18 s
		r.stops(w)
	})
}
