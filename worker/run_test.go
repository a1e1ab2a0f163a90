package worker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/worker"
)

func TestWorkerStopLetsHandlersFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		w := r.worker(worker.Config{Concurrency: 2})
		w.Handle("t", lasting(r, seen, time.Minute))
		for _, id := range []string{"a", "b", "c"} {
			r.push("t", id)
		}
		r.runs(w)
		time.Sleep(time.Second)
		r.stops(w)
		if r.since() != time.Minute {
			t.Errorf("Stop returned after %v, want 1m0s, when the handlers were done", r.since())
		}
		if n := len(seen.all()); n != 2 {
			t.Errorf("%q were handled; want two, and nothing claimed after Stop", seen.all())
		}
		if s, _ := r.mem.Stats(t.Context(), "t"); s.Ready != 1 || s.Leased != 0 {
			t.Errorf("after Stop: %+v; want the third message ready", s)
		}
	})
}

func TestWorkerStopEndsAWaitingClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.worker(worker.Config{})
		w.Handle("t", acks(&record{}))
		r.push("t", "a", punctual.In(time.Hour))
		r.runs(w)
		time.Sleep(time.Second)
		r.stops(w)
		if r.since() != time.Second {
			t.Errorf("Stop of an idle worker took %v", r.since()-time.Second)
		}
	})
}

// TestWorkerStopGivesBackUnstartedWork: messages whose claim returns while the worker stops
// go back without using an attempt.
func TestWorkerStopGivesBackUnstartedWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		gate := make(chan struct{})
		r.store.afterClaim = func([]punctual.Delivery) { <-gate }
		w := r.worker(worker.Config{})
		w.Handle("t", acks(seen))
		for _, id := range []string{"a", "b", "c"} {
			r.push("t", id)
		}
		r.runs(w)
		synctest.Wait()
		stopped := make(chan error)
		go func() { stopped <- w.Stop(context.Background()) }()
		synctest.Wait()
		close(gate)
		if err := <-stopped; err != nil {
			t.Errorf("stop: %v", err)
		}
		seen.want(t)
		for _, id := range []string{"a", "b", "c"} {
			if i := r.get("t", id); i.State != punctual.StateReady || i.Attempt != 0 || len(i.Failures) != 0 {
				t.Errorf("%s was not given back unused: %+v", id, i)
			}
		}
	})
}

func TestWorkerStopByForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		stuck := make(chan struct{})
		w := r.worker(worker.Config{})
		w.Handle("t", handlerFunc(func(ctx context.Context, d *punctual.Delivery) error {
			switch d.ID {
			case "stuck":
				<-stuck
				return nil
			case "stubborn":
				<-ctx.Done()
				return errBroken // as of a driver, or of a command that was killed
			case "panicking":
				<-ctx.Done()
				panic("broken")
			case "snoozing":
				<-ctx.Done()
				return punctual.Snooze(time.Hour)
			case "retrying":
				<-ctx.Done()
				return punctual.RetryAfter(time.Hour, ctx.Err())
			}
			<-ctx.Done()
			seen.add("%s: %v", d.ID, context.Cause(ctx))
			return fmt.Errorf("gave up: %w", ctx.Err())
		}))
		for _, id := range []string{"polite", "stubborn", "panicking", "snoozing", "retrying", "stuck"} {
			r.push("t", id)
		}
		r.runs(w)
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		err := w.Stop(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "handlers running when its time was up: 6, not returned since: 1") {
			t.Errorf("stop: %v", err)
		}
		if r.since() > 22*time.Second+time.Millisecond {
			t.Errorf("Stop returned after %v, want within 2 s of the end of its ctx", r.since())
		}
		seen.want(t, "polite: the worker stops and its time is up: closed")
		want := map[string]string{
			"polite":    "ready 0 0",
			"stubborn":  "ready 0 0",
			"panicking": "scheduled 1 1",
			"snoozing":  "scheduled 0 0",
			"retrying":  "scheduled 1 1",
			"stuck":     "leased 1 0",
		}
		for id, w := range want {
			i := r.get("t", id)
			if got := fmt.Sprintf("%s %d %d", i.State, i.Attempt, len(i.Failures)); got != w {
				t.Errorf("%s: state, attempts, failures are %s, want %s", id, got, w)
			}
		}
		close(stuck) // it is settled still
		synctest.Wait()
		r.wantGone("t", "stuck")
		if err := w.Stop(t.Context()); err != nil {
			t.Errorf("second stop, with everything at rest: %v", err)
		}
	})
}

func TestWorkerRunStopsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		w := r.worker(worker.Config{ShutdownTimeout: time.Minute})
		w.Handle("t", lasting(r, seen, 30*time.Second))
		r.push("t", "a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
		seen.want(t, "a done in attempt 1")
		if r.since() != 30*time.Second {
			t.Errorf("Run returned after %v, want 30s", r.since())
		}
	})
}

func TestWorkerRunGivesUpAfterItsShutdownTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		w := r.worker(worker.Config{})
		w.Handle("t", lasting(r, seen, time.Hour))
		r.push("t", "a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.Run(ctx); err == nil || !strings.Contains(err.Error(), "handlers running when its time was up: 1, not returned since: 0") {
			t.Errorf("run: %v", err)
		}
		seen.want(t, "a ended at 26s: closed")
		if i := r.get("t", "a"); i.State != punctual.StateReady || i.Attempt != 0 {
			t.Errorf("%+v; want it ready, without an attempt used", i)
		}
	})
}

func TestWorkerHandlersSeeValuesButNotTheEndOfRunsContext(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		w := r.worker(worker.Config{})
		w.Handle("t", handlerFunc(func(ctx context.Context, _ *punctual.Delivery) error {
			time.Sleep(10 * time.Second)
			seen.add("%v %v", ctx.Value(key{}), ctx.Err())
			return nil
		}))
		r.push("t", "a")
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "value"), time.Second)
		defer cancel()
		if err := w.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
		seen.want(t, "value <nil>")
	})
}

func TestWorkerRunEndsWhenTheStoreCannotRecover(t *testing.T) {
	for _, kind := range []error{punctual.ErrClosed, punctual.ErrStoreFailed, punctual.ErrCorrupt, punctual.ErrInvalid} {
		t.Run(storekit.ErrorCode(kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				seen := &record{}
				w := r.worker(worker.Config{})
				w.Handle("t", lasting(r, seen, 20*time.Second))
				r.push("t", "a")
				var claims atomic.Int64
				r.store.spoil(func(punctual.Claim) error {
					if claims.Add(1) > 1 {
						time.Sleep(500 * time.Millisecond) // no longer, because another claim would be sent beside it
						return fmt.Errorf("medium: %w", kind)
					}
					return nil
				}, nil)
				err := w.Run(t.Context())
				if !errors.Is(err, kind) {
					t.Errorf("run: %v, want %v", err, kind)
				}
				seen.want(t, "a done in attempt 1") // what ran could finish
				if claims.Load() != 2 {
					t.Errorf("%d claims, want none after the error", claims.Load())
				}
				r.wantLog("level=ERROR", 1)
			})
		})
	}
}

func TestWorkerRunEndsWhenTheStoreIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.worker(worker.Config{})
		w.Handle("t", acks(&record{}))
		time.AfterFunc(time.Minute, func() { _ = r.mem.Close() })
		if err := w.Run(t.Context()); !errors.Is(err, punctual.ErrClosed) {
			t.Errorf("run: %v, want ErrClosed", err)
		}
		if r.since() != time.Minute {
			t.Errorf("Run returned after %v, want 1m0s", r.since())
		}
	})
}

func TestWorkerLifeIsDefined(t *testing.T) {
	good := acks(&record{})
	cases := []struct {
		name string
		do   func(ctx context.Context, w *worker.Worker) error
		want error
	}{
		{"start twice", func(ctx context.Context, w *worker.Worker) error {
			return errors.Join(w.Start(ctx), w.Start(ctx))
		}, punctual.ErrInvalid},
		{"run after start", func(ctx context.Context, w *worker.Worker) error {
			return errors.Join(w.Start(ctx), w.Run(ctx))
		}, punctual.ErrInvalid},
		{"stop without start", func(ctx context.Context, w *worker.Worker) error {
			return w.Stop(ctx)
		}, nil},
		{"stop twice", func(ctx context.Context, w *worker.Worker) error {
			return errors.Join(w.Start(ctx), w.Stop(ctx), w.Stop(ctx))
		}, nil},
		{"start after stop", func(ctx context.Context, w *worker.Worker) error {
			return errors.Join(w.Stop(ctx), w.Start(ctx))
		}, punctual.ErrClosed},
		{"drain after stop", func(ctx context.Context, w *worker.Worker) error {
			_, err := w.Drain(ctx)
			return errors.Join(err, w.Stop(ctx), second(w.Drain(ctx)))
		}, punctual.ErrClosed},
		{"drain while started", func(ctx context.Context, w *worker.Worker) error {
			return errors.Join(w.Start(ctx), second(w.Drain(ctx)))
		}, punctual.ErrInvalid},
		{"drain twice, then start", func(ctx context.Context, w *worker.Worker) error {
			return errors.Join(second(w.Drain(ctx)), second(w.Drain(ctx)), w.Start(ctx))
		}, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				w := r.worker(worker.Config{})
				w.Handle("t", good)
				if err := c.do(t.Context(), w); !errors.Is(err, c.want) {
					t.Errorf("got %v, want %v", err, c.want)
				}
				r.stops(w)
			})
		})
	}
}

func second(_ int, err error) error { return err }

func TestWorkerSetUpWrongly(t *testing.T) {
	good := acks(&record{})
	handle := func(topic string, h punctual.Handler, opts ...worker.HandleOption) func(*worker.Worker) {
		return func(w *worker.Worker) { w.Handle(topic, h, opts...) }
	}
	cases := []struct {
		name   string
		config worker.Config
		setUp  []func(*worker.Worker)
		says   string
	}{
		{"no handler", worker.Config{}, nil, "call Handle"},
		{"bad topic", worker.Config{}, []func(*worker.Worker){handle("a b", good)}, `topic "a b"`},
		{"nil handler", worker.Config{}, []func(*worker.Worker){handle("t", nil)}, "handler is nil"},
		{"topic twice", worker.Config{}, []func(*worker.Worker){handle("t", good), handle("t", good)}, "has a handler already"},
		{"bad weight", worker.Config{}, []func(*worker.Worker){handle("t", good, worker.Weight(0))}, "weight 0"},
		{"bad timeout", worker.Config{}, []func(*worker.Worker){handle("t", good, worker.Timeout(0))}, "timeout 0"},
		{"concurrency", worker.Config{Concurrency: -1}, []func(*worker.Worker){handle("t", good)}, "concurrency -1"},
		{"too many slots", worker.Config{Concurrency: limits.MaxClaim + 1}, []func(*worker.Worker){handle("t", good)}, "concurrency 10001"},
		{"lease", worker.Config{Lease: time.Millisecond}, []func(*worker.Worker){handle("t", good)}, "lease 1ms"},
		{"shutdown timeout", worker.Config{ShutdownTimeout: -1}, []func(*worker.Worker){handle("t", good)}, "shutdown timeout"},
		{"nil middleware", worker.Config{Middleware: []worker.Middleware{nil}}, []func(*worker.Worker){handle("t", good)}, "middleware 1 is nil"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			w := r.worker(c.config)
			for _, f := range c.setUp {
				f(w)
			}
			_, drain := w.Drain(t.Context())
			for _, err := range []error{w.Start(t.Context()), w.Run(t.Context()), drain} {
				if !errors.Is(err, punctual.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("got %v, want ErrInvalid that says %q", err, c.says)
				}
			}
		})
	}
}

func TestWorkerWithoutAStore(t *testing.T) {
	w := worker.New(nil, nil)
	w.Handle("t", acks(&record{}))
	if err := w.Start(t.Context()); !errors.Is(err, punctual.ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
	}
}

func TestWorkerHandleAfterStartPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.worker(worker.Config{})
		w.Handle("t", acks(&record{}))
		r.runs(w)
		defer r.stops(w)
		defer func() {
			if p := recover(); p == nil || !strings.Contains(fmt.Sprint(p), "register every handler first") {
				t.Errorf("Handle of a running worker: panic %v", p)
			}
		}()
		w.Handle("u", acks(&record{}))
	})
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		w := r.worker(worker.Config{})
		w.Handle("first", acks(seen))
		w.Handle("second", handlerFunc(func(ctx context.Context, d *punctual.Delivery) error {
			if d.ID == "chain" {
				r.push("first", "follow-up")
			}
			return acks(seen).Handle(ctx, d)
		}))
		r.push("second", "chain")
		r.push("second", "later", punctual.In(time.Millisecond))
		r.push("first", "a2", punctual.In(2*time.Millisecond))
		r.push("first", "a1", punctual.In(time.Millisecond))
		r.push("first", "tomorrow", punctual.In(24*time.Hour))
		time.Sleep(time.Second)
		if n, err := w.Drain(t.Context()); n != 5 || err != nil {
			t.Errorf("drain: %d, %v; want 5", n, err)
		}
		seen.want(t, "a1", "a2", "chain", "follow-up", "later")
		if n, err := w.Drain(t.Context()); n != 0 || err != nil {
			t.Errorf("drain of nothing: %d, %v", n, err)
		}
		if r.since() != time.Second {
			t.Errorf("Drain waited: %v", r.since()-time.Second)
		}
		time.Sleep(24 * time.Hour)
		if n, err := w.Drain(t.Context()); n != 1 || err != nil {
			t.Errorf("drain on the next day: %d, %v", n, err)
		}
	})
}

func TestDrainRenewsLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		w := r.worker(worker.Config{})
		w.Handle("t", lasting(r, seen, 10*time.Minute))
		r.push("t", "a")
		if n, err := w.Drain(t.Context()); n != 1 || err != nil {
			t.Errorf("drain: %d, %v", n, err)
		}
		seen.want(t, "a done in attempt 1")
		r.wantGone("t", "a")
	})
}

func TestDrainEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		w := r.worker(worker.Config{})
		w.Handle("t", lasting(r, seen, time.Hour))
		r.push("t", "a")
		r.push("t", "b")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if n, err := w.Drain(ctx); n != 1 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("drain: %d, %v", n, err)
		}
		if s, _ := r.mem.Stats(t.Context(), "t"); s.Ready != 2 {
			t.Errorf("%+v; want both ready, the one given back without an attempt used", s)
		}
		for _, id := range []string{"a", "b"} {
			if i := r.get("t", id); i.Attempt != 0 {
				t.Errorf("%s used an attempt: %+v", id, i)
			}
		}
	})
}

func TestStopEndsADrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		w := r.worker(worker.Config{})
		w.Handle("t", lasting(r, seen, time.Minute))
		for i := range 5 {
			r.push("t", fmt.Sprint(i))
		}
		drained := make(chan error)
		go func() {
			n, err := w.Drain(t.Context())
			if n != 1 {
				t.Errorf("drained %d, want the one in flight", n)
			}
			drained <- err
		}()
		time.Sleep(time.Second)
		if n, err := w.Drain(t.Context()); n != 0 || !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("second drain at the same time: %d, %v; want ErrInvalid", n, err)
		}
		if err := w.Start(t.Context()); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("start while draining: %v; want ErrInvalid", err)
		}
		done := make(chan error)
		go func() { done <- w.Stop(t.Context()) }()
		if err := <-drained; !errors.Is(err, punctual.ErrClosed) {
			t.Errorf("drain: %v, want ErrClosed", err)
		}
		if err := <-done; err != nil || r.since() != time.Minute {
			t.Errorf("stop: %v after %v", err, r.since())
		}
	})
}

func TestStopDuringTheClaimOfADrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		gate := make(chan struct{})
		r.store.afterClaim = func([]punctual.Delivery) { <-gate }
		w := r.worker(worker.Config{})
		w.Handle("t", acks(seen))
		r.push("t", "a")
		drained, stopped := make(chan error), make(chan error)
		go func() {
			n, err := w.Drain(t.Context())
			if n != 0 {
				t.Errorf("drained %d", n)
			}
			drained <- err
		}()
		synctest.Wait()
		go func() { stopped <- w.Stop(t.Context()) }()
		synctest.Wait()
		close(gate)
		if err := <-drained; !errors.Is(err, punctual.ErrClosed) {
			t.Errorf("drain: %v, want ErrClosed", err)
		}
		if err := <-stopped; err != nil {
			t.Errorf("stop: %v", err)
		}
		seen.want(t)
		if i := r.get("t", "a"); i.State != punctual.StateReady || i.Attempt != 0 {
			t.Errorf("not given back unused: %+v", i)
		}
	})
}

func TestDrainReportsStoreErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.worker(worker.Config{})
		w.Handle("t", acks(&record{}))
		r.push("t", "a")
		r.store.spoil(func(punctual.Claim) error { return errBroken }, nil)
		if n, err := w.Drain(t.Context()); n != 0 || !errors.Is(err, errBroken) {
			t.Errorf("drain with a failing claim: %d, %v", n, err)
		}
		r.store.spoil(nil, func([]punctual.Settlement) error { return errBroken })
		if n, err := w.Drain(t.Context()); n != 1 || !errors.Is(err, errBroken) {
			t.Errorf("drain with a failing settlement: %d, %v", n, err)
		}
	})
}

// TestDrainAndGoexit: a handler that ends its goroutine ends that of Drain. Its message is settled,
// and the worker stays usable.
func TestDrainAndGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		w := r.worker(worker.Config{})
		w.Handle("t", handlerFunc(func(_ context.Context, d *punctual.Delivery) error {
			if d.Attempt == 1 {
				runtime.Goexit()
			}
			seen.add("%s in attempt %d", d.ID, d.Attempt)
			return nil
		}))
		r.push("t", "a")
		ended := make(chan bool)
		go func() {
			returned := false
			defer func() { ended <- returned }()
			_, _ = w.Drain(t.Context())
			returned = true
		}()
		if <-ended {
			t.Error("Drain returned although its goroutine was to end")
		}
		time.Sleep(time.Minute)
		if n, err := w.Drain(t.Context()); n != 1 || err != nil {
			t.Errorf("drain: %d, %v", n, err)
		}
		seen.want(t, "a in attempt 2")
	})
}

func TestStopIsForManyCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seen := &record{}
		w := r.worker(worker.Config{})
		w.Handle("t", lasting(r, seen, time.Minute))
		r.push("t", "a")
		r.runs(w)
		synctest.Wait()
		ends := make(chan string, 4)
		for i := range 4 {
			go func() {
				err := w.Stop(context.Background())
				ends <- fmt.Sprint(i, err, r.since())
			}()
		}
		var got []string
		for range 4 {
			got = append(got, <-ends)
		}
		slices.Sort(got)
		if want := []string{"0 <nil> 1m0s", "1 <nil> 1m0s", "2 <nil> 1m0s", "3 <nil> 1m0s"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestWorkerStopDoesNotWaitForAClaimThatHangs: a store that ignores the end of a context
// cannot hold up Stop.
func TestWorkerStopDoesNotWaitForAClaimThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		gate := make(chan struct{})
		r.store.spoil(func(punctual.Claim) error {
			<-gate
			return errBroken
		}, nil)
		w := r.worker(worker.Config{})
		w.Handle("t", acks(&record{}))
		r.runs(w)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := w.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stop: %v, want DeadlineExceeded", err)
		}
		if r.since() > time.Minute+2*time.Second {
			t.Errorf("Stop returned after %v, want within 2 s of the end of its ctx", r.since())
		}
		close(gate)
	})
}

// TestWorkerStopWhileTheStoreDoesNotSettle: the handler has returned, but its ack does not get
// through.
func TestWorkerStopWhileTheStoreDoesNotSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.store.spoil(nil, func([]punctual.Settlement) error { return errBroken })
		w := r.worker(worker.Config{})
		w.Handle("t", acks(&record{}))
		r.push("t", "a")
		r.runs(w)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := w.Stop(ctx); err == nil || !strings.Contains(err.Error(), "before everything was settled") {
			t.Errorf("stop: %v", err)
		}
		r.stops(w) // within the lease
		if i := r.get("t", "a"); i.Attempt != 1 || r.since() > 31*time.Second {
			t.Errorf("P1: after %v: %+v; want the message kept for another attempt", r.since(), i)
		}
	})
}

// TestWorkerForgetsWhatIsDone: a message that was handled is free for the garbage collector. It
// does not matter that the worker runs on and the lease would last for a day.
func TestWorkerForgetsWhatIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.worker(worker.Config{Lease: 24 * time.Hour})
		var kept weak.Pointer[punctual.Delivery]
		var ctx context.Context
		w.Handle("t", handlerFunc(func(c context.Context, d *punctual.Delivery) error {
			kept, ctx = weak.Make(d), c
			return nil
		}))
		r.runs(w)
		r.push("t", "a", punctual.In(time.Second))
		time.Sleep(time.Minute)
		r.wantGone("t", "a")
		runtime.GC()
		if kept.Value() != nil {
			t.Error("P10: the worker still holds a message that was acked")
		}
		if ctx.Err() == nil {
			t.Error("P10: the context of a handler that returned lives on")
		}
		r.stops(w)
	})
}
