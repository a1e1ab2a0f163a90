package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// tally counts how often something was done, how long each time took, and for how long.
type tally struct {
	items   atomic.Int64
	calls   *recorder
	elapsed time.Duration
	cpu     time.Duration
}

func (t *tally) rate() float64 { return float64(t.items.Load()) / t.elapsed.Seconds() }

// note writes down what every measurement of a rate has.
func (t *tally) note(out *Result) {
	out.setQuantiles("call", t.calls.merged())
	out.set("cpu_us_per_message", float64(t.cpu.Microseconds())/float64(t.items.Load()))
}

// flatOut has n goroutines call f one time after the other for as long as d. f returns how
// many items it did, 0 when there is nothing left to do.
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
