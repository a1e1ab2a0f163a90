package punctual

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

// runway is a fly function whose flights land when the test lets them.
type runway struct {
	land chan error // one value per flight; nil answers, an error fails the batch

	mu      sync.Mutex
	batches [][]int // guarded by mu
}

func newRunway() *runway { return &runway{land: make(chan error)} }

func (r *runway) fly(ctx context.Context, items []int) ([]int, error) {
	r.mu.Lock()
	r.batches = append(r.batches, slices.Clone(items))
	r.mu.Unlock()
	select {
	case err := <-r.land:
		if err != nil {
			return nil, err
		}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return tenfold(ctx, items)
}

func (r *runway) flown() [][]int {
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

func roomy() coalesceConfig {
	return coalesceConfig{op: "test", maxItems: 1000, maxBytes: 1 << 40, maxPending: 1 << 40}
}

// call is one do under way.
type call struct {
	answer int
	err    error
	done   chan struct{}
}

func start(ctx context.Context, c *coalescer[int, int], item int) *call {
	k := &call{done: make(chan struct{})}
	go func() {
		defer close(k.done)
		k.answer, k.err = c.do(ctx, item)
	}()
	return k
}

func (k *call) wait(t *testing.T) (int, error) {
	t.Helper()
	<-k.done
	return k.answer, k.err
}

func (k *call) wantAnswer(t *testing.T, want int) {
	t.Helper()
	if got, err := k.wait(t); err != nil || got != want {
		t.Errorf("answer %d, error %v: want %d", got, err, want)
	}
}

func (k *call) wantError(t *testing.T, definite bool, kinds ...error) {
	t.Helper()
	_, err := k.wait(t)
	for _, kind := range kinds {
		if !errors.Is(err, kind) {
			t.Errorf("error %v does not wrap %v", err, kind)
		}
	}
	if Definite(err) != definite {
		t.Errorf("P13: Definite(%v) is %v", err, !definite)
	}
}

func wantBatches(t *testing.T, got [][]int, want ...[]int) {
	t.Helper()
	if !slices.EqualFunc(got, want, slices.Equal[[]int]) {
		t.Errorf("batches %v: want %v", got, want)
	}
}

func TestCoalesceLoneCallGoesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCoalescer(roomy(), itself, tenfold)
		begin := time.Now()
		if got, err := c.do(t.Context(), 7); err != nil || got != 70 {
			t.Errorf("answer %d, error %v: want 70", got, err)
		}
		if waited := time.Since(begin); waited != 0 {
			t.Errorf("a lone call waited %v for a timer", waited)
		}
	})
}

// gather starts a flight with item 1 and lets the given calls gather behind it, in order.
func gather(t *testing.T, c *coalescer[int, int], items ...int) []*call {
	t.Helper()
	calls := []*call{start(t.Context(), c, 1)}
	synctest.Wait()
	for _, n := range items {
		calls = append(calls, start(t.Context(), c, n))
		synctest.Wait()
	}
	return calls
}

func TestCoalesceGathersDuringFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunway()
		c := newCoalescer(roomy(), itself, r.fly)
		calls := gather(t, c, 2, 3, 4)
		wantBatches(t, r.flown(), []int{1})
		r.land <- nil
		r.land <- nil
		for i, k := range calls {
			k.wantAnswer(t, (i+1)*10)
		}
		wantBatches(t, r.flown(), []int{1}, []int{2, 3, 4})
	})
}

func TestCoalesceBounds(t *testing.T) {
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
				cfg.maxItems, cfg.maxBytes = test.maxItems, test.maxBytes
				r := newRunway()
				c := newCoalescer(cfg, itself, r.fly)
				calls := gather(t, c, test.items...)
				for range test.want {
					r.land <- nil
				}
				for i, n := range test.items {
					calls[i+1].wantAnswer(t, n*10)
				}
				wantBatches(t, r.flown(), test.want...)
			})
		})
	}
}

func TestCoalesceOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := roomy()
		cfg.maxPending = 10
		r := newRunway()
		c := newCoalescer(cfg, itself, r.fly)
		calls := gather(t, c, 4, 5)
		start(t.Context(), c, 1).wantError(t, true, ErrOverloaded)
		r.land <- nil
		calls[0].wantAnswer(t, 10)
		synctest.Wait()
		fits := start(t.Context(), c, 1)
		r.land <- nil
		r.land <- nil
		fits.wantAnswer(t, 10)
		synctest.Wait()
		huge := start(t.Context(), c, 500) // nothing else is under way
		r.land <- nil
		huge.wantAnswer(t, 5000)
	})
}

// TestCoalesceAnsweredIsNotPending: who has its answer has its room back. The callers keep
// each other from running, so that some continue before their flight does.
func TestCoalesceAnsweredIsNotPending(t *testing.T) {
	cfg := roomy()
	cfg.maxPending = 5
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			c := newCoalescer(cfg, itself, func(_ context.Context, items []int) ([]int, error) { return items, nil })
			for range 5000 {
				if _, err := c.do(t.Context(), 10); err != nil {
					t.Errorf("P10: a lone call larger than the bound: got error %v; want none", err)
					return
				}
			}
		})
	}
	callers.Wait()
}

func TestCoalesceContextEndsWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunway()
		c := newCoalescer(roomy(), itself, r.fly)
		first := start(t.Context(), c, 1)
		synctest.Wait()
		why := errors.New("the user left")
		ctx, cancel := context.WithCancelCause(t.Context())
		before, leaver, behind := start(t.Context(), c, 2), (*call)(nil), (*call)(nil)
		synctest.Wait()
		leaver = start(ctx, c, 3)
		synctest.Wait()
		behind = start(t.Context(), c, 4)
		synctest.Wait()
		cancel(why)
		leaver.wantError(t, true, context.Canceled, why)
		r.land <- nil
		r.land <- nil
		first.wantAnswer(t, 10)
		before.wantAnswer(t, 20)
		behind.wantAnswer(t, 40)
		wantBatches(t, r.flown(), []int{1}, []int{2, 4})
		synctest.Wait()
		wantNothingPending(t, c)
	})
}

func TestCoalesceWholeBatchLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunway()
		c := newCoalescer(roomy(), itself, r.fly)
		first := start(t.Context(), c, 1)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		a, b := start(ctx, c, 2), start(ctx, c, 3)
		a.wantError(t, true, context.DeadlineExceeded)
		b.wantError(t, true, context.DeadlineExceeded)
		r.land <- nil
		first.wantAnswer(t, 10)
		synctest.Wait()
		wantBatches(t, r.flown(), []int{1})
		wantNothingPending(t, c)
	})
}

func TestCoalesceContextEndsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunway()
		c := newCoalescer(roomy(), itself, r.fly)
		ctx, cancel := context.WithCancel(t.Context())
		k := start(ctx, c, 1)
		synctest.Wait()
		cancel()
		k.wantError(t, false, ErrIndeterminate, context.Canceled)
		r.land <- nil
		synctest.Wait()
		wantNothingPending(t, c)
	})
}

func TestCoalesceContextEndedBefore(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := newCoalescer(roomy(), func(int) int64 {
		t.Error("an item was taken whose caller had left before")
		return 1
	}, tenfold)
	start(ctx, c, 1).wantError(t, true, context.Canceled)
}

// When the batch lands and the context ends in the same instant, the answer stands.
func TestCoalesceAnswerBeatsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := newCoalescer(roomy(), itself, tenfold)
	b, i, err := c.board(3)
	if err != nil {
		t.Fatal(err)
	}
	<-b.done
	if got, err := c.leave(ctx, b, i); err != nil || got != 30 {
		t.Errorf("P13: answer %d, error %v: want 30, the item was flown", got, err)
	}
}

func wantNothingPending(t *testing.T, c *coalescer[int, int]) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending != 0 || c.flying || len(c.waiting) != 0 {
		t.Errorf("at rest: pending %d, flying %v, waiting %d: want none", c.pending, c.flying, len(c.waiting))
	}
}

func TestCoalesceFailures(t *testing.T) {
	broken := errorf(ErrStoreFailed, "disk")
	for name, test := range map[string]struct {
		fly      func(context.Context, []int) ([]int, error)
		kind     error
		definite bool
		text     string
	}{
		"error":         {func(context.Context, []int) ([]int, error) { return nil, broken }, ErrStoreFailed, true, "disk"},
		"panic":         {func(context.Context, []int) ([]int, error) { panic("out of cheese") }, ErrIndeterminate, false, "out of cheese"},
		"panic nil":     {func(context.Context, []int) ([]int, error) { panic(nil) }, ErrIndeterminate, false, "panicked"},
		"goexit":        {func(context.Context, []int) ([]int, error) { runtime.Goexit(); return nil, nil }, ErrIndeterminate, false, "ended the goroutine"},
		"wrong answers": {func(context.Context, []int) ([]int, error) { return make([]int, 5), nil }, ErrIndeterminate, false, "5 answers"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate := make(chan struct{})
				c := newCoalescer(roomy(), itself, func(ctx context.Context, items []int) ([]int, error) {
					<-gate
					return test.fly(ctx, items)
				})
				calls := gather(t, c, 2, 3)
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

func TestCoalesceCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunway()
		c := newCoalescer(roomy(), itself, r.fly)
		calls := gather(t, c, 2)
		closed := make(chan error)
		go func() { closed <- c.close(t.Context()) }()
		synctest.Wait()
		start(t.Context(), c, 3).wantError(t, true, ErrClosed)
		r.land <- nil
		synctest.Wait()
		select {
		case err := <-closed:
			t.Errorf("close returned %v while a batch was in flight", err)
		default:
		}
		r.land <- nil
		if err := <-closed; err != nil {
			t.Errorf("close: %v", err)
		}
		calls[0].wantAnswer(t, 10)
		calls[1].wantAnswer(t, 20)
		if err := c.close(t.Context()); err != nil {
			t.Errorf("second close: %v", err)
		}
	})
}

func TestCoalesceCloseOutOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunway()
		c := newCoalescer(roomy(), itself, r.fly)
		calls := gather(t, c, 2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := c.close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("close: %v: want the deadline", err)
		}
		calls[0].wantError(t, true, ErrClosed) // as the store answers when its context ends
		calls[1].wantError(t, true, ErrClosed)
		wantBatches(t, r.flown(), []int{1})
		if err := c.close(t.Context()); err != nil {
			t.Errorf("close when all is done: %v", err)
		}
		wantNothingPending(t, c)
	})
}

func TestCoalesceCloseAtRest(t *testing.T) {
	c := newCoalescer(roomy(), itself, tenfold)
	if err := c.close(t.Context()); err != nil {
		t.Errorf("close of an idle coalescer: %v", err)
	}
	if err := c.begin(); !errors.Is(err, ErrClosed) {
		t.Errorf("begin after close: %v", err)
	}
}

// Items of one goroutine take effect in order, and each caller gets its own answer,
// whatever flies together.
func TestCoalesceThousandsOfCallers(t *testing.T) {
	const callers, each = 2000, 5
	var flying, batches atomic.Int32
	last := make([]int, callers) // touched by flights alone
	fly := func(ctx context.Context, items []int) ([]int, error) {
		if flying.Add(1) != 1 {
			t.Error("two flights at a time")
		}
		defer flying.Add(-1)
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
	c := newCoalescer(roomy(), func(int) int64 { return 1 }, fly)
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for step := range each {
				n := caller*each + step
				if got, err := c.do(context.Background(), n); err != nil || got != n*10 {
					t.Errorf("item %d: answer %d, error %v", n, got, err)
				}
			}
		})
	}
	wg.Wait()
	if err := c.close(t.Context()); err != nil {
		t.Errorf("close: %v", err)
	}
	t.Logf("%d calls in %d batches", callers*each, batches.Load())
}

// Whatever callers leave and whatever batches fail: who got an answer flew, who got a
// definite error did not, and nobody else's answer is mixed up.
func TestCoalesceRandom(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		bounds := coalesceConfig{
			op:         "test",
			maxItems:   rapid.IntRange(1, 5).Draw(rt, "maxItems"),
			maxBytes:   int64(rapid.IntRange(1, 50).Draw(rt, "maxBytes")),
			maxPending: int64(rapid.IntRange(1, 200).Draw(rt, "maxPending")),
		}
		steps := rapid.SliceOfN(rapid.SampledFrom([]string{"call", "call", "call", "leave", "land", "fail"}), 1, 60).Draw(rt, "steps")
		leaving := rapid.SliceOfN(rapid.IntRange(0, 59), 60, 60).Draw(rt, "leaving")
		synctest.Test(t, func(t *testing.T) {
			if err := coalesceHistory(t, bounds, steps, leaving); err != nil {
				rt.Fatalf("%v", err)
			}
		})
	})
}

func coalesceHistory(t *testing.T, bounds coalesceConfig, steps []string, leaving []int) error {
	r := newRunway()
	c := newCoalescer(bounds, func(n int) int64 { return int64(n%7 + 1) }, r.fly)
	var calls []*call
	var cancels []context.CancelFunc
	inFlight := func() bool { synctest.Wait(); c.mu.Lock(); defer c.mu.Unlock(); return c.flying }
	for i, step := range steps {
		switch {
		case step == "call":
			ctx, cancel := context.WithCancel(t.Context())
			calls, cancels = append(calls, start(ctx, c, len(calls))), append(cancels, cancel)
		case step == "leave" && len(calls) > 0:
			cancels[leaving[i]%len(calls)]()
		case step == "land" && inFlight():
			r.land <- nil
		case step == "fail" && inFlight():
			r.land <- ErrNoSpace
		}
		synctest.Wait()
	}
	for inFlight() {
		r.land <- nil
	}
	for _, cancel := range cancels {
		defer cancel()
	}
	return judgeCalls(calls, r.flown(), bounds.maxItems)
}

func judgeCalls(calls []*call, batches [][]int, maxItems int) error {
	flown := map[int]int{}
	for _, b := range batches {
		if len(b) == 0 || len(b) > maxItems {
			return fmt.Errorf("a batch of %d items flew, at most %d may", len(b), maxItems)
		}
		for _, n := range b {
			flown[n]++
		}
	}
	for n, k := range calls {
		<-k.done
		waited := errors.Is(k.err, context.Canceled) || errors.Is(k.err, ErrOverloaded)
		switch {
		case k.err == nil && (k.answer != n*10 || flown[n] != 1):
			return fmt.Errorf("item %d: answer %d, flown %d times", n, k.answer, flown[n])
		case k.err != nil && waited && Definite(k.err) && flown[n] != 0:
			return fmt.Errorf("P13: item %d flew in spite of %w", n, k.err)
		case errors.Is(k.err, ErrIndeterminate) && flown[n] != 1:
			return fmt.Errorf("item %d: flown %d times with %w", n, flown[n], k.err)
		}
	}
	return nil
}

func BenchmarkCoalesce(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			var flights atomic.Int64
			c := newCoalescer(roomy(), itself, func(_ context.Context, items []int) ([]int, error) {
				flights.Add(1)
				return items, nil
			})
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						if _, err := c.do(ctx, 1); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/float64(max(flights.Load(), 1)), "items/flight")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "items/s")
		})
	}
}
