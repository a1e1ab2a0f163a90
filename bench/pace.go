package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// tally is what flatOut has measured.
type tally struct {
	items   atomic.Int64
	calls   *recorder     // the duration of each call
	elapsed time.Duration // from the begin until the last call has returned
	cpu     time.Duration // CPU time of this process
}

func (t *tally) rate() float64 { return float64(t.items.Load()) / t.elapsed.Seconds() }

// note notes the quantiles of the calls' durations, and the CPU time for each item.
func (t *tally) note(out *Result) {
	out.setQuantiles("call", t.calls.merged())
	out.set("cpu_us_per_message", float64(t.cpu.Microseconds())/float64(t.items.Load()))
}

// flatOut has n goroutines call f, each again as soon as its last call has returned, until d is
// over. f gets the number of its goroutine and returns how many items it did; a goroutine ends
// early when f returns 0 because nothing is left. The first error ends all of them.
func flatOut(ctx context.Context, n int, d time.Duration, f func(ctx context.Context, who int) (items int, err error)) (*tally, error) {
	t := &tally{calls: newRecorder()}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cpu, err := cpuTime()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	var wg sync.WaitGroup
	for who := range n {
		wg.Go(func() {
			for ctx.Err() == nil && time.Since(start) < d {
				began := time.Now()
				items, err := f(ctx, who)
				if err != nil {
					cancel(err)
				}
				if err != nil || items == 0 {
					return
				}
				t.calls.record(time.Since(began))
				t.items.Add(int64(items))
			}
		})
	}
	wg.Wait()
	t.elapsed = time.Since(start)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	cpuEnd, err := cpuTime()
	t.cpu = cpuEnd - cpu
	return t, err
}
