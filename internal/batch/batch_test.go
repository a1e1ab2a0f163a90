package batch

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// gate is a Run function whose calls return when the test lets them.
type gate struct {
	pass chan error // one value per call; nil answers, an error fails the batch

	mu      sync.Mutex
	batches [][]int // guarded by mu
}

func newGate() *gate { return &gate{pass: make(chan error)} }

func (r *gate) run(ctx context.Context, items []int) ([]int, error) {
	r.mu.Lock()
	r.batches = append(r.batches, slices.Clone(items))
	r.mu.Unlock()
	select {
	case err := <-r.pass:
		if err != nil {
			return nil, err
		}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return tenfold(ctx, items)
}

func (r *gate) ran() [][]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.batches)
}

func tenfold(_ context.Context, items []int) ([]int, error) {
	out := make([]int, len(items))
	for i, n := range items {
		out[i] = n * 10
	}
	return out, nil
}

// The size of an item is its value, so that tests can bound bytes.
func itself(n int) int64 { return int64(n) }

func newBatcher(cfg Config[int, int], run func(context.Context, []int) ([]int, error)) *Batcher[int, int] {
	cfg.Run = run
	return New(cfg)
}

// certain reports that err is an error after which the item was surely not carried out.
func certain(err error) bool { return err != nil && !errors.Is(err, errIndeterminate) }

var (
	errClosed        = errors.New("closed")
	errNoSpace       = errors.New("no space")
	errOverloaded    = errors.New("overloaded")
	errIndeterminate = errors.New("indeterminate")
)

func roomy() Config[int, int] {
	return Config[int, int]{
		Op: "test", Size: itself, MaxItems: 1000, MaxBytes: 1 << 40, MaxPending: 1 << 40, Late: time.Hour,
		Closed: errClosed, Overloaded: errOverloaded, Indeterminate: errIndeterminate,
	}
}

// doing is one Do under way.
type doing struct {
	answer int
	err    error
	done   chan struct{}
}

func start(ctx context.Context, c *Batcher[int, int], item int) *doing {
	k := &doing{done: make(chan struct{})}
	go func() {
		defer close(k.done)
		k.answer, k.err = c.Do(ctx, item)
	}()
	return k
}

func (k *doing) wait(t *testing.T) (int, error) {
	t.Helper()
	<-k.done
	return k.answer, k.err
}

func (k *doing) wantAnswer(t *testing.T, want int) {
	t.Helper()
	if got, err := k.wait(t); err != nil || got != want {
		t.Errorf("answer %d, error %v: want %d", got, err, want)
	}
}

func (k *doing) wantError(t *testing.T, definite bool, kinds ...error) {
	t.Helper()
	_, err := k.wait(t)
	for _, kind := range kinds {
		if !errors.Is(err, kind) {
			t.Errorf("error %v does not wrap %v", err, kind)
		}
	}
	if certain(err) != definite {
		t.Errorf("P13: definite(%v) is %v", err, !definite)
	}
}

func wantBatches(t *testing.T, got [][]int, want ...[]int) {
	t.Helper()
	if !slices.EqualFunc(got, want, slices.Equal[[]int]) {
		t.Errorf("batches %v: want %v", got, want)
	}
}

func TestLoneCallGoesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newBatcher(roomy(), tenfold)
		begin := time.Now()
		if got, err := c.Do(t.Context(), 7); err != nil || got != 70 {
			t.Errorf("answer %d, error %v: want 70", got, err)
		}
		if waited := time.Since(begin); waited != 0 {
			t.Errorf("a lone call waited %v for a timer", waited)
		}
	})
}

// startBehind starts a batch with item 1, and then a call for each of items, in order, which wait
// for that batch.
func startBehind(t *testing.T, c *Batcher[int, int], items ...int) []*doing {
	t.Helper()
	return startEach(t, c, append([]int{1}, items...)...)
}

// startEach starts a call for each of items, one after the other.
func startEach(t *testing.T, c *Batcher[int, int], items ...int) []*doing {
	t.Helper()
	var calls []*doing
	for _, n := range items {
		calls = append(calls, start(t.Context(), c, n))
		synctest.Wait()
	}
	return calls
}

func TestCoalescesMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newGate()
		c := newBatcher(roomy(), r.run)
		calls := startBehind(t, c, 2, 3, 4)
		wantBatches(t, r.ran(), []int{1})
		r.pass <- nil
		r.pass <- nil
		for i, k := range calls {
			k.wantAnswer(t, (i+1)*10)
		}
		wantBatches(t, r.ran(), []int{1}, []int{2, 3, 4})
	})
}

func TestBounds(t *testing.T) {
	for name, test := range map[string]struct {
		maxItems int
		maxBytes int64
		items    []int
		want     [][]int
	}{
		"items":               {2, 1 << 40, []int{2, 3, 4, 5, 6}, [][]int{{1}, {2, 3}, {4, 5}, {6}}},
		"bytes":               {1000, 10, []int{4, 6, 5, 6, 3}, [][]int{{1}, {4, 6}, {5}, {6, 3}}},
		"larger than a batch": {1000, 10, []int{2, 50, 3}, [][]int{{1}, {2}, {50}, {3}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := roomy()
				cfg.MaxItems, cfg.MaxBytes = test.maxItems, test.maxBytes
				r := newGate()
				c := newBatcher(cfg, r.run)
				calls := startBehind(t, c, test.items...)
				for range test.want {
					r.pass <- nil
				}
				for i, n := range test.items {
					calls[i+1].wantAnswer(t, n*10)
				}
				wantBatches(t, r.ran(), test.want...)
			})
		})
	}
}

func TestOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := roomy()
		cfg.MaxPending = 10
		r := newGate()
		c := newBatcher(cfg, r.run)
		calls := startBehind(t, c, 4, 5)
		start(t.Context(), c, 1).wantError(t, true, errOverloaded)
		r.pass <- nil
		calls[0].wantAnswer(t, 10)
		synctest.Wait()
		fits := start(t.Context(), c, 1)
		r.pass <- nil
		r.pass <- nil
		fits.wantAnswer(t, 10)
		synctest.Wait()
		huge := start(t.Context(), c, 500) // nothing else is under way
		r.pass <- nil
		huge.wantAnswer(t, 5000)
	})
}

// TestAnsweredIsNotPending: when a caller has its answer, its item does not count for MaxPending
// any more. Each caller has a Batcher of its own; eight of them compete for the processors, so that
// some continue while the Batcher still ends the batch.
func TestAnsweredIsNotPending(t *testing.T) {
	cfg := roomy()
	cfg.MaxPending = 5
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			c := newBatcher(cfg, func(_ context.Context, items []int) ([]int, error) { return items, nil })
			for range 5000 {
				if _, err := c.Do(t.Context(), 10); err != nil {
					t.Errorf("P10: a lone call larger than the bound: got error %v; want none", err)
					return
				}
			}
		})
	}
	callers.Wait()
}

func TestContextEndsWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newGate()
		c := newBatcher(roomy(), r.run)
		first := start(t.Context(), c, 1)
		synctest.Wait()
		why := errors.New("the user left")
		ctx, cancel := context.WithCancelCause(t.Context())
		before, leaver, behind := start(t.Context(), c, 2), (*doing)(nil), (*doing)(nil)
		synctest.Wait()
		leaver = start(ctx, c, 3)
		synctest.Wait()
		behind = start(t.Context(), c, 4)
		synctest.Wait()
		cancel(why)
		leaver.wantError(t, true, context.Canceled, why)
		r.pass <- nil
		r.pass <- nil
		first.wantAnswer(t, 10)
		before.wantAnswer(t, 20)
		behind.wantAnswer(t, 40)
		wantBatches(t, r.ran(), []int{1}, []int{2, 4})
		synctest.Wait()
		wantNothingPending(t, c)
	})
}

func TestWholeBatchIsWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newGate()
		c := newBatcher(roomy(), r.run)
		first := start(t.Context(), c, 1)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		a, b := start(ctx, c, 2), start(ctx, c, 3)
		a.wantError(t, true, context.DeadlineExceeded)
		b.wantError(t, true, context.DeadlineExceeded)
		r.pass <- nil
		first.wantAnswer(t, 10)
		synctest.Wait()
		wantBatches(t, r.ran(), []int{1})
		wantNothingPending(t, c)
	})
}

func TestContextEndsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newGate()
		c := newBatcher(roomy(), r.run)
		ctx, cancel := context.WithCancel(t.Context())
		k := start(ctx, c, 1)
		synctest.Wait()
		cancel()
		k.wantError(t, false, errIndeterminate, context.Canceled)
		r.pass <- nil
		synctest.Wait()
		wantNothingPending(t, c)
	})
}

func TestContextEndedBefore(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := newBatcher(roomy(), func(context.Context, []int) ([]int, error) {
		t.Error("an item was carried out whose context had ended before")
		return nil, nil
	})
	start(ctx, c, 1).wantError(t, true, context.Canceled)
}

// When the batch is done and the context ends in the same instant, the answer stands.
func TestAnswerBeatsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newBatcher(roomy(), tenfold)
		k, first, err := c.enqueue(3)
		if err != nil {
			t.Fatal(err)
		}
		go c.drain(first)
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.withdraw(ctx, k); err != nil || k.err != nil || k.answer != 30 {
			t.Errorf("P13: answer %d, errors %v, %v: want 30, the item was carried out", k.answer, err, k.err)
		}
	})
}

// goroutine returns the number of the calling goroutine.
func goroutine() string {
	text := make([]byte, 64)
	text = text[:runtime.Stack(text, false)]
	return strings.Fields(string(text))[1] // goroutine N [running]:
}

// A lone caller whose context can never end carries out its batch itself; any other one is free to
// leave.
func TestCallerCarriesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ran string
		c := newBatcher(roomy(), func(ctx context.Context, items []int) ([]int, error) {
			ran = goroutine()
			return tenfold(ctx, items)
		})
		for name, own := range map[string]bool{"endless": true, "with a value": true, "that can end": false} {
			ctx := context.Background()
			switch name {
			case "with a value":
				ctx = context.WithValue(ctx, &ran, "x")
			case "that can end":
				ctx = t.Context()
			}
			if got, err := c.Do(ctx, 7); err != nil || got != 70 {
				t.Errorf("context %s: answer %d, error %v: want 70", name, got, err)
			}
			if ran == "" || (ran == goroutine()) != own {
				t.Errorf("context %s: ran on goroutine %q, the caller's is %s: want the same: %t", name, ran, goroutine(), own)
			}
			ran = ""
		}
		synctest.Wait()
		wantNothingPending(t, c)
	})
}

// A caller that carries out its batch returns as soon as it has its answer, although others have
// come meanwhile. The calls of the others are carried out without that caller. When its batch is
// late, they do not wait for the batch either.
func TestCallerHandsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newGate()
		c := newBatcher(roomy(), r.run)
		first := start(context.Background(), c, 1)
		synctest.Wait()
		others := []*doing{start(t.Context(), c, 2)}
		synctest.Wait()
		others = append(others, start(context.Background(), c, 3))
		synctest.Wait()
		r.pass <- nil
		first.wantAnswer(t, 10) // the next batch waits at the gate
		synctest.Wait()
		wantBatches(t, r.ran(), []int{1}, []int{2, 3})
		r.pass <- nil
		others[0].wantAnswer(t, 20)
		others[1].wantAnswer(t, 30)
		synctest.Wait()
		wantNothingPending(t, c)
	})
	synctest.Test(t, func(t *testing.T) {
		h := &hanging{mended: make(chan struct{})}
		c := newBatcher(keyed(roomy()), h.run)
		hung := start(context.Background(), c, 10)
		synctest.Wait()
		h.wantHanging(t, 1)
		began := time.Now()
		start(context.Background(), c, 20).wantAnswer(t, 200)
		if took := time.Since(began); took != time.Second {
			t.Errorf("P14: a call behind a caller that hangs took %v: want it sent when that one is late, after 1s", took)
		}
		close(h.mended)
		hung.wantAnswer(t, 100)
		synctest.Wait()
		wantNothingPending(t, c)
	})
}

// A panic or a runtime.Goexit of the store, on the goroutine of a caller, ends the call of that
// caller alone: the call behind it is answered, and the Batcher can be closed.
func TestCallerFails(t *testing.T) {
	for name, fail := range map[string]func(){
		"panic":  func() { panic("out of cheese") },
		"goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate := make(chan struct{})
				c := newBatcher(roomy(), func(ctx context.Context, items []int) ([]int, error) {
					if items[0] == 1 {
						<-gate
						fail()
					}
					return tenfold(ctx, items)
				})
				first := start(context.Background(), c, 1)
				synctest.Wait()
				behind := start(context.Background(), c, 2)
				synctest.Wait()
				close(gate)
				behind.wantAnswer(t, 20)
				<-first.done
				if name == "panic" {
					first.wantError(t, false, errIndeterminate)
				}
				if err := c.Close(t.Context()); err != nil {
					t.Errorf("close: %v", err)
				}
				wantNothingPending(t, c)
			})
		})
	}
}

// Close that runs out of time also ends the context of what a caller carries out.
func TestCloseEndsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newGate()
		c := newBatcher(roomy(), r.run)
		k := start(context.Background(), c, 1)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := c.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("close: %v: want the deadline", err)
		}
		k.wantError(t, true, errClosed)
		synctest.Wait()
		wantNothingPending(t, c)
	})
}

func wantNothingPending(t *testing.T, c *Batcher[int, int]) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending != 0 || c.underWay != 0 || len(c.main.current) != 0 || c.main.first != nil || len(c.isolated) != 0 {
		t.Errorf("at rest: pending %d, %d under way, isolated %v: want none", c.pending, c.underWay, c.isolated)
	}
}

func TestFailures(t *testing.T) {
	broken := errors.New("disk")
	for name, test := range map[string]struct {
		fly      func(context.Context, []int) ([]int, error)
		kind     error
		definite bool
		text     string
	}{
		"error":         {func(context.Context, []int) ([]int, error) { return nil, broken }, broken, true, "disk"},
		"panic":         {func(context.Context, []int) ([]int, error) { panic("out of cheese") }, errIndeterminate, false, "out of cheese"},
		"panic nil":     {func(context.Context, []int) ([]int, error) { panic(nil) }, errIndeterminate, false, "panicked"},
		"goexit":        {func(context.Context, []int) ([]int, error) { runtime.Goexit(); return nil, nil }, errIndeterminate, false, "ended the goroutine"},
		"wrong answers": {func(context.Context, []int) ([]int, error) { return make([]int, 5), nil }, errIndeterminate, false, "5 answers"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate := make(chan struct{})
				c := newBatcher(roomy(), func(ctx context.Context, items []int) ([]int, error) {
					<-gate
					return test.fly(ctx, items)
				})
				calls := startBehind(t, c, 2, 3)
				close(gate)
				for _, k := range calls {
					k.wantError(t, test.definite, test.kind)
					if !strings.Contains(k.err.Error(), test.text) {
						t.Errorf("error %q does not say %q", k.err, test.text)
					}
				}
				synctest.Wait()
				wantNothingPending(t, c)
			})
		})
	}
}

func TestCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newGate()
		c := newBatcher(roomy(), r.run)
		calls := startBehind(t, c, 2)
		closed := make(chan error)
		go func() { closed <- c.Close(t.Context()) }()
		synctest.Wait()
		start(t.Context(), c, 3).wantError(t, true, errClosed)
		r.pass <- nil
		synctest.Wait()
		select {
		case err := <-closed:
			t.Errorf("close returned %v while a batch was under way", err)
		default:
		}
		r.pass <- nil
		if err := <-closed; err != nil {
			t.Errorf("close: %v", err)
		}
		calls[0].wantAnswer(t, 10)
		calls[1].wantAnswer(t, 20)
		if err := c.Close(t.Context()); err != nil {
			t.Errorf("second close: %v", err)
		}
	})
}

// Close returns when its context ends, even if the call of the store ignores that its own context
// has ended.
func TestCloseOutOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Bool
		mended := make(chan struct{})
		r := newGate()
		c := newBatcher(roomy(), func(ctx context.Context, items []int) ([]int, error) {
			defer context.AfterFunc(ctx, func() { ended.Store(true) })()
			if items[0] == 1 {
				r.mu.Lock()
				r.batches = append(r.batches, slices.Clone(items))
				r.mu.Unlock()
				<-mended // and not ctx
				return tenfold(ctx, items)
			}
			return r.run(ctx, items)
		})
		calls := startBehind(t, c, 2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if err := c.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("close: %v: want the deadline", err)
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("close returned after %v, want when its context ended", took)
		}
		calls[1].wantError(t, true, errClosed) // it never began
		synctest.Wait()
		if !ended.Load() {
			t.Error("the context of the call under way did not end")
		}
		again, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := c.Close(again); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("second close while the call is still under way: %v: want the deadline", err)
		}
		close(mended)
		calls[0].wantAnswer(t, 10) // it was carried out
		wantBatches(t, r.ran(), []int{1})
		if err := c.Close(t.Context()); err != nil {
			t.Errorf("close when all is done: %v", err)
		}
		wantNothingPending(t, c)
	})
}

func TestCloseAtRest(t *testing.T) {
	c := newBatcher(roomy(), tenfold)
	if err := c.Close(t.Context()); err != nil {
		t.Errorf("close of an idle Batcher: %v", err)
	}
	if err := c.Begin(); !errors.Is(err, errClosed) {
		t.Errorf("begin after close: %v", err)
	}
}

// Items of one goroutine take effect in order, and each caller gets the answer for its own item,
// whichever items share a batch.
func TestThousandsOfCallers(t *testing.T) {
	t.Run("one batch at a time", func(t *testing.T) { thousandsOfCallers(t, 0, 1) })
	t.Run("two batches at a time", func(t *testing.T) { thousandsOfCallers(t, 32, 2) })
}

func thousandsOfCallers(t *testing.T, beside int, atOnce int32) {
	const callers, each = 2000, 5
	var running, batches atomic.Int32
	last := make([]int, callers) // each element is touched by the run that has the caller's only item
	run := func(ctx context.Context, items []int) ([]int, error) {
		if n := running.Add(1); n > atOnce {
			t.Errorf("%d batches at a time, want %d at most", n, atOnce)
		}
		defer running.Add(-1)
		batches.Add(1)
		for _, n := range items {
			if caller, step := n/each, n%each; last[caller] != step {
				t.Errorf("caller %d: step %d came when %d was next", caller, step, last[caller])
			} else {
				last[caller]++
			}
		}
		return tenfold(ctx, items)
	}
	cfg := roomy()
	cfg.Size = func(int) int64 { return 1 }
	cfg.Beside = beside
	c := newBatcher(cfg, run)
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for step := range each {
				n := caller*each + step
				if got, err := c.Do(context.Background(), n); err != nil || got != n*10 {
					t.Errorf("item %d: answer %d, error %v", n, got, err)
				}
			}
		})
	}
	wg.Wait()
	if err := c.Close(t.Context()); err != nil {
		t.Errorf("close: %v", err)
	}
	t.Logf("%d calls in %d batches", callers*each, batches.Load())
}

// Whichever contexts end and whichever batches fail: the item of a call with an answer, or with an
// indeterminate error, went to Run once. The item of a call that left while it waited, or that was
// refused as overloaded, did not. Each answer belongs to its item.
func TestRandom(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := roomy()
		cfg.Size = func(n int) int64 { return int64(n%7 + 1) }
		cfg.Key = func(n int) string { return string(rune('a' + n%3)) }
		cfg.Late = time.Minute
		cfg.MaxItems = rapid.IntRange(1, 5).Draw(rt, "maxItems")
		cfg.MaxBytes = int64(rapid.IntRange(1, 50).Draw(rt, "maxBytes"))
		cfg.MaxPending = int64(rapid.IntRange(1, 200).Draw(rt, "maxPending"))
		cfg.Beside = rapid.IntRange(0, 4).Draw(rt, "beside")
		steps := rapid.SliceOfN(rapid.SampledFrom([]string{"call", "call", "stay", "leave", "pass", "fail", "late"}), 1, 60).Draw(rt, "steps")
		leaving := rapid.SliceOfN(rapid.IntRange(0, 59), 60, 60).Draw(rt, "leaving")
		synctest.Test(t, func(t *testing.T) {
			if err := history(t, cfg, steps, leaving); err != nil {
				rt.Fatalf("%v", err)
			}
		})
	})
}

func history(t *testing.T, cfg Config[int, int], steps []string, leaving []int) error {
	r := newGate()
	c := newBatcher(cfg, r.run)
	var calls []*doing
	var cancels []context.CancelFunc
	underWay := func() bool { synctest.Wait(); c.mu.Lock(); defer c.mu.Unlock(); return c.underWay > 0 }
	for i, step := range steps {
		switch {
		case step == "call":
			ctx, cancel := context.WithCancel(t.Context())
			calls, cancels = append(calls, start(ctx, c, len(calls))), append(cancels, cancel)
		case step == "stay":
			calls, cancels = append(calls, start(context.Background(), c, len(calls))), append(cancels, func() {})
		case step == "leave" && len(calls) > 0:
			cancels[leaving[i]%len(calls)]()
		case step == "pass" && underWay():
			r.pass <- nil
		case step == "fail" && underWay():
			r.pass <- errNoSpace
		case step == "late":
			time.Sleep(cfg.Late)
		}
		synctest.Wait()
	}
	for underWay() {
		r.pass <- nil
	}
	for _, cancel := range cancels {
		defer cancel()
	}
	if len(c.isolated) > 0 || c.pending != 0 || len(c.main.current) > 0 || c.main.waiting != 0 {
		return fmt.Errorf("at rest there are isolated keys %v, %d bytes pending, %d batches under way and %d calls waiting",
			c.isolated, c.pending, len(c.main.current), c.main.waiting)
	}
	return checkCalls(calls, r.ran(), cfg.MaxItems)
}

func checkCalls(calls []*doing, batches [][]int, maxItems int) error {
	ran := map[int]int{}
	for _, b := range batches {
		if len(b) == 0 || len(b) > maxItems {
			return fmt.Errorf("a batch of %d items ran, at most %d may", len(b), maxItems)
		}
		for _, n := range b {
			ran[n]++
		}
	}
	for n, k := range calls {
		<-k.done
		waited := errors.Is(k.err, context.Canceled) || errors.Is(k.err, errOverloaded)
		switch {
		case k.err == nil && (k.answer != n*10 || ran[n] != 1):
			return fmt.Errorf("item %d: answer %d, carried out %d times", n, k.answer, ran[n])
		case k.err != nil && waited && certain(k.err) && ran[n] != 0:
			return fmt.Errorf("P13: item %d was carried out in spite of %w", n, k.err)
		case errors.Is(k.err, errIndeterminate) && ran[n] != 1:
			return fmt.Errorf("item %d: carried out %d times with %w", n, ran[n], k.err)
		}
	}
	return nil
}

// callDeep calls itself, with frames of some 400 bytes, as a store calls its parts.
func callDeep(depth int) int {
	var frame [48]int
	if depth > 0 {
		frame[depth%len(frame)] = callDeep(depth - 1)
	}
	return frame[depth%len(frame)] + 1
}

// BenchmarkDo measures callers whose context can end, and with endless=true callers whose context
// cannot.
func BenchmarkDo(b *testing.B) {
	for _, x := range []struct {
		callers, depth int
		endless        bool
	}{{1, 0, false}, {1, 0, true}, {1, 20, false}, {1, 20, true}, {64, 0, false}, {64, 0, true}} {
		callers := x.callers
		b.Run(fmt.Sprintf("callers=%d/depth=%d/endless=%t", callers, x.depth, x.endless), func(b *testing.B) {
			var batches atomic.Int64
			c := newBatcher(roomy(), func(_ context.Context, items []int) ([]int, error) {
				batches.Add(1)
				callDeep(x.depth)
				return items, nil
			})
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			if x.endless {
				ctx = context.Background()
			}
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						if _, err := c.Do(ctx, 1); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/float64(max(batches.Load(), 1)), "items/batch")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "items/s")
		})
	}
}

// held has a Run whose calls return when the test ends them, each by the first item of its batch.
type held struct {
	mu      sync.Mutex
	batches [][]int               // guarded by mu
	ends    map[int]chan struct{} // guarded by mu; by first item
}

func (h *held) run(ctx context.Context, items []int) ([]int, error) {
	end := make(chan struct{})
	h.mu.Lock()
	h.batches = append(h.batches, slices.Clone(items))
	h.ends[items[0]] = end
	h.mu.Unlock()
	<-end
	return tenfold(ctx, items)
}

// end ends the batch whose first item is n, and returns when everything that follows from its end
// has happened.
func (h *held) end(t *testing.T, n int) {
	t.Helper()
	h.mu.Lock()
	if h.ends[n] == nil {
		t.Fatalf("no batch begins with %d: batches %v", n, h.batches)
	}
	close(h.ends[n])
	h.mu.Unlock()
	synctest.Wait()
}

func (h *held) want(t *testing.T, batches ...[]int) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	wantBatches(t, h.batches, batches...)
}

// TestSecondBatch: calls wait for a batch until there are as many as Beside, and then go beside it
// as a second batch. There are two batches at most, and each takes half of the calls that wait or
// are under way.
func TestSecondBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &held{ends: make(map[int]chan struct{})}
		cfg := roomy()
		cfg.Beside = 3
		c := newBatcher(cfg, h.run)
		calls := startBehind(t, c, 2, 3)
		h.want(t, []int{1})
		calls = append(calls, startEach(t, c, 4)...)
		h.want(t, []int{1}, []int{2, 3, 4})
		calls = append(calls, startEach(t, c, 5, 6, 7, 8, 9, 10, 11, 12, 13)...)
		h.want(t, []int{1}, []int{2, 3, 4}) // there are two, so nine calls wait
		h.end(t, 1)
		h.want(t, []int{1}, []int{2, 3, 4}, []int{5, 6, 7, 8, 9, 10}) // half of 3 that are under way and 9 that wait
		h.end(t, 5)
		h.want(t, []int{1}, []int{2, 3, 4}, []int{5, 6, 7, 8, 9, 10}, []int{11, 12, 13})
		calls = append(calls, startEach(t, c, 14, 15)...)
		h.end(t, 11) // two calls are too few to go beside the batch that is left
		h.want(t, []int{1}, []int{2, 3, 4}, []int{5, 6, 7, 8, 9, 10}, []int{11, 12, 13})
		h.end(t, 2)
		h.want(t, []int{1}, []int{2, 3, 4}, []int{5, 6, 7, 8, 9, 10}, []int{11, 12, 13}, []int{14, 15})
		h.end(t, 14)
		for i, k := range calls {
			k.wantAnswer(t, 10*(i+1))
		}
		wantNothingPending(t, c)
	})
}

// TestBothBatchesAreLate: a late batch is overtaken also when it is one of two. Then the other one
// is what calls wait for, until it is late, too (P14).
func TestBothBatchesAreLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &held{ends: make(map[int]chan struct{})}
		cfg := keyed(roomy()) // late after a second
		cfg.Beside = 2
		c := newBatcher(cfg, h.run)
		calls := startBehind(t, c) // key a
		time.Sleep(cfg.Late / 2)
		calls = append(calls, startEach(t, c, 10, 11)...) // key b
		calls = append(calls, startEach(t, c, 20, 2)...)  // keys c and a, which wait for both batches
		h.want(t, []int{1}, []int{10, 11})
		time.Sleep(cfg.Late / 2)
		synctest.Wait()
		h.want(t, []int{1}, []int{10, 11}, []int{2}) // key a has its own queue, and 20 waits for the batch of key b
		time.Sleep(cfg.Late / 2)
		synctest.Wait()
		h.want(t, []int{1}, []int{10, 11}, []int{2}, []int{20})
		for _, n := range []int{20, 2, 10, 1} {
			h.end(t, n)
		}
		for _, k := range calls {
			if <-k.done; k.err != nil {
				t.Error(k.err)
			}
		}
		wantNothingPending(t, c)
	})
}

// TestAlarmOfTheBatchThatIsLeft: a call that waits for two batches is sent when the second one is
// late, also if the first one has ended in time.
func TestAlarmOfTheBatchThatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &held{ends: make(map[int]chan struct{})}
		cfg := keyed(roomy())
		cfg.Beside = 2
		c := newBatcher(cfg, h.run)
		calls := startBehind(t, c, 10, 11, 20)
		h.want(t, []int{1}, []int{10, 11})
		time.Sleep(cfg.Late / 2)
		h.end(t, 1)
		h.want(t, []int{1}, []int{10, 11})
		time.Sleep(cfg.Late / 2)
		synctest.Wait()
		h.want(t, []int{1}, []int{10, 11}, []int{20})
		h.end(t, 20)
		h.end(t, 10)
		for _, k := range calls {
			if <-k.done; k.err != nil {
				t.Error(k.err)
			}
		}
		wantNothingPending(t, c)
	})
}

// TestCallerCarriesOutItsOwn: a caller whose context can never end, and with whose call a second
// batch begins, carries that batch out only if it has the call.
func TestCallerCarriesOutItsOwn(t *testing.T) {
	for most, batches := range map[int][][]int{1000: {{1}, {2, 3, 4}}, 2: {{1}, {2, 3}, {4}}} {
		synctest.Test(t, func(t *testing.T) {
			h := &held{ends: make(map[int]chan struct{})}
			var mu sync.Mutex
			var on []string // the goroutines of the batches; guarded by mu
			cfg := roomy()
			cfg.Beside, cfg.MaxItems = 3, most
			c := newBatcher(cfg, func(ctx context.Context, items []int) ([]int, error) {
				mu.Lock()
				on = append(on, goroutine())
				mu.Unlock()
				return h.run(ctx, items)
			})
			calls := startBehind(t, c, 2, 3)
			var own string
			called := make(chan error, 1)
			go func() {
				own = goroutine()
				_, err := c.Do(context.Background(), 4)
				called <- err
			}()
			synctest.Wait()
			mu.Lock()
			if carried := on[1] == own; carried != (most > 2) {
				t.Errorf("at most %d items: the caller carries out %v: %t", most, batches[1], carried)
			}
			mu.Unlock()
			h.end(t, 2)
			h.end(t, 1)
			if most == 2 {
				h.end(t, 4)
			}
			if err := <-called; err != nil {
				t.Error(err)
			}
			h.want(t, batches...)
			for i, k := range calls {
				k.wantAnswer(t, 10*(i+1))
			}
			wantNothingPending(t, c)
		})
	}
}

// keyed makes the tens digit of an item its key, and has batches be late after a second.
func keyed(cfg Config[int, int]) Config[int, int] {
	cfg.Key = func(n int) string { return string(rune('a' + n/10)) }
	cfg.Late = time.Second
	return cfg
}

// hanging has a Run that does not return for items 10 to 19 until mended is closed or its context
// ends.
type hanging struct {
	mu      sync.Mutex
	mended  chan struct{}
	hangs   int // calls that hang now; guarded by mu
	batches [][]int
}

func (h *hanging) run(ctx context.Context, items []int) ([]int, error) {
	h.mu.Lock()
	h.batches = append(h.batches, slices.Clone(items))
	hangs := slices.ContainsFunc(items, func(n int) bool { return n/10 == 1 })
	if hangs {
		h.hangs++
	}
	h.mu.Unlock()
	if hangs {
		select {
		case <-h.mended:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		h.mu.Lock()
		h.hangs--
		h.mu.Unlock()
	}
	return tenfold(ctx, items)
}

func (h *hanging) wantHanging(t *testing.T, n int) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hangs != n {
		t.Errorf("%d calls hang: want %d", h.hangs, n)
	}
}

// TestLateKeyIsIsolated: a key that hangs delays the calls of other keys that wait for its batch
// until that batch is late, and no call of another key after that (P14).
func TestLateKeyIsIsolated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hanging{mended: make(chan struct{})}
		c := newBatcher(keyed(roomy()), h.run)
		calls := []*doing{start(t.Context(), c, 10)}
		synctest.Wait()
		began := time.Now()
		calls = append(calls, start(t.Context(), c, 11))
		start(t.Context(), c, 20).wantAnswer(t, 200)
		if took := time.Since(began); took != time.Second {
			t.Errorf("a call that waited for one that hangs took %v: want it sent when that one is late, after 1s", took)
		}
		synctest.Wait()
		h.wantHanging(t, 2) // the second one in the queue of its key
		began = time.Now()
		calls = append(calls, start(t.Context(), c, 12), start(t.Context(), c, 13))
		start(t.Context(), c, 21).wantAnswer(t, 210)
		start(t.Context(), c, 30).wantAnswer(t, 300)
		if took := time.Since(began); took != 0 {
			t.Errorf("calls beside one that hangs took %v", took)
		}
		h.wantHanging(t, 2) // later calls of the key wait for the second one
		close(h.mended)
		for i, k := range calls {
			k.wantAnswer(t, 100+10*i)
		}
		synctest.Wait()
		wantNothingPending(t, c)
	})
}

// TestSharedBatchOfALateKey: an item in the same batch as a key that hangs is answered only with
// that batch. Later calls of the item's key do not wait for it.
func TestSharedBatchOfALateKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, h := make(chan struct{}), &hanging{mended: make(chan struct{})}
		c := newBatcher(keyed(roomy()), func(ctx context.Context, items []int) ([]int, error) {
			<-r
			return h.run(ctx, items)
		})
		first := start(t.Context(), c, 30)
		synctest.Wait()
		shared := []*doing{start(t.Context(), c, 20), start(t.Context(), c, 10)}
		synctest.Wait()
		close(r)
		first.wantAnswer(t, 300)
		synctest.Wait()
		h.wantHanging(t, 1)
		began := time.Now()
		start(t.Context(), c, 21).wantAnswer(t, 210)
		if took := time.Since(began); took > time.Second {
			t.Errorf("the second call of a key that does not hang took %v", took)
		}
		began = time.Now()
		start(t.Context(), c, 22).wantAnswer(t, 220) // a batch of its key was in time, so the key is not isolated any more
		if took := time.Since(began); took != 0 {
			t.Errorf("the third call took %v", took)
		}
		close(h.mended)
		shared[0].wantAnswer(t, 200)
		shared[1].wantAnswer(t, 100)
		synctest.Wait()
		wantNothingPending(t, c)
	})
}

// TestLateKeyComesBack: once a batch of its own is in time, a key shares batches with other keys
// again.
func TestLateKeyComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newGate()
		c := newBatcher(keyed(roomy()), r.run)
		slow := start(t.Context(), c, 10)
		synctest.Wait()
		behind := start(t.Context(), c, 20)
		time.Sleep(time.Second)
		again := start(t.Context(), c, 11)
		synctest.Wait()
		if got := r.ran(); len(got) != 3 {
			t.Errorf("batches %v: want one of key b overtaken, one of key c, and one of key b by itself", got)
		}
		for range 3 { // in time for the two that came later
			r.pass <- nil
		}
		slow.wantAnswer(t, 100)
		behind.wantAnswer(t, 200)
		again.wantAnswer(t, 110)
		calls := startBehind(t, c, 12, 21)
		r.pass <- nil
		r.pass <- nil
		calls[1].wantAnswer(t, 120)
		calls[2].wantAnswer(t, 210)
		wantBatches(t, r.ran()[3:], []int{1}, []int{12, 21})
		synctest.Wait()
		wantNothingPending(t, c)
	})
}

// TestWaitingCallsOfALateKeyComeBack: as soon as a batch of a late key is in time, the calls that
// wait for it share batches with those of other keys. Otherwise a key that is never idle would be
// isolated for ever.
func TestWaitingCallsOfALateKeyComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var batches [][]int
		ends := map[int]chan struct{}{10: make(chan struct{}), 11: make(chan struct{}), 20: make(chan struct{})}
		c := newBatcher(keyed(roomy()), func(ctx context.Context, items []int) ([]int, error) {
			mu.Lock()
			batches = append(batches, slices.Clone(items))
			mu.Unlock()
			if end := ends[items[0]]; end != nil {
				<-end
			}
			return tenfold(ctx, items)
		})
		begin := func(n int) *doing {
			k := start(t.Context(), c, n)
			synctest.Wait()
			return k
		}
		slow := begin(10)
		other := begin(20)
		time.Sleep(time.Second) // 10 is late, so 20 is sent without waiting for it
		synctest.Wait()         // until 20 is under way: the alarm and the end of Sleep have the same instant
		again := begin(11)
		mu.Lock()
		wantBatches(t, batches, []int{10}, []int{20}, []int{11})
		mu.Unlock()
		waiting := []*doing{begin(12), begin(30)} // behind 11, and behind 20
		close(ends[11])                           // in time
		again.wantAnswer(t, 110)
		synctest.Wait()
		close(ends[20])
		other.wantAnswer(t, 200)
		for i, k := range waiting {
			k.wantAnswer(t, []int{120, 300}[i])
		}
		mu.Lock()
		last := slices.Sorted(slices.Values(batches[len(batches)-1]))
		if len(batches) != 4 || !slices.Equal(last, []int{12, 30}) {
			t.Errorf("batches %v; want the last one of 12 and 30 together", batches)
		}
		mu.Unlock()
		close(ends[10])
		slow.wantAnswer(t, 100)
		synctest.Wait()
		wantNothingPending(t, c)
	})
}

func TestCloseOutOfTimeBesideALateKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hanging{mended: make(chan struct{})}
		c := newBatcher(keyed(roomy()), h.run)
		calls := []*doing{start(t.Context(), c, 10)}
		synctest.Wait()
		calls = append(calls, start(t.Context(), c, 11), start(t.Context(), c, 12))
		time.Sleep(time.Second)
		synctest.Wait()
		h.wantHanging(t, 2)
		calls = append(calls, start(t.Context(), c, 13))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := c.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v: want the deadline", err)
		}
		for _, k := range calls {
			k.wantError(t, true, errClosed)
		}
		synctest.Wait()
		wantNothingPending(t, c)
	})
}

// TestLateKeyStaysIsolated: a key whose own batches are late stays isolated, however many there
// are, and no call of another key waits for it again (P14).
func TestLateKeyStaysIsolated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow = 3 * time.Second // later than Late
		c := newBatcher(keyed(roomy()), func(ctx context.Context, items []int) ([]int, error) {
			if slices.ContainsFunc(items, func(n int) bool { return n/10 == 1 }) {
				time.Sleep(slow)
			}
			return tenfold(ctx, items)
		})
		calls := []*doing{start(t.Context(), c, 10)}
		synctest.Wait()
		calls = append(calls, start(t.Context(), c, 11))
		start(t.Context(), c, 20).wantAnswer(t, 200) // this call waits until the batch is late
		for n := range 40 {                          // in 10 s, with slow calls that always wait for one another
			if n%5 == 0 {
				calls = append(calls, start(t.Context(), c, 12+n/5%8))
				synctest.Wait()
			}
			began := time.Now()
			start(t.Context(), c, 21).wantAnswer(t, 210)
			if took := time.Since(began); took != 0 {
				t.Errorf("a call beside a key that stays slow took %v, %v after that was known", took, time.Duration(n)*250*time.Millisecond)
			}
			time.Sleep(250 * time.Millisecond)
		}
		for _, k := range calls {
			<-k.done
			if k.err != nil {
				t.Error(k.err)
			}
		}
		synctest.Wait()
		wantNothingPending(t, c)
	})
}
