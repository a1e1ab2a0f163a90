package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/worker"
)

// These scenarios show how GOMAXPROCS changes the lateness of messages while handlers of another
// topic compute all the time.

const (
	busyTopic = "busy"
	busyRate  = 2_000
	busyMost  = 2 // the most busy handlers; there are scenarios with 0 to busyMost
)

// busyProcs are the values of GOMAXPROCS to compare.
var busyProcs = []int{2, 4}

func busyName(procs, busy int) string { return fmt.Sprintf("busy/procs-%d-busy-%d", procs, busy) }

func busyScenarios() []scenario {
	var all []scenario
	for _, procs := range busyProcs {
		for busy := range busyMost + 1 {
			all = append(all, scenario{
				name:  busyName(procs, busy),
				about: fmt.Sprintf("lateness at %d/s with GOMAXPROCS=%d and %d handlers that compute all the time", busyRate, procs, busy),
				procs: procs, maxRounds: 1,
				takes: func(z sizes) time.Duration { return busyWindow(z) + 5*time.Second },
				run: func(ctx context.Context, e *env) error {
					e.sizes.Window = busyWindow(e.sizes)
					return runSteady(ctx, e, &load{rate: busyRate, busy: busy})
				},
			})
		}
	}
	return all
}

// busyWindow returns the window of these scenarios. It is shorter than that of others because these
// are many.
func busyWindow(z sizes) time.Duration { return z.Window / 4 }

// keepBusy pushes one message for each busy handler and registers with w a handler that computes
// until the returned function is called.
func (l *load) keepBusy(ctx context.Context, w *worker.Worker) (stop func(), err error) {
	if l.busy == 0 {
		return func() {}, nil
	}
	var over atomic.Bool
	w.Handle(busyTopic, punctual.HandlerFunc(func(context.Context, *punctual.Delivery) error {
		for !over.Load() {
			burn()
		}
		return nil
	}))
	for range l.busy {
		if _, err := l.queue.Push(ctx, busyTopic, nil); err != nil {
			return nil, err
		}
	}
	return func() { over.Store(true) }, nil
}

// sink gets the result of burn, so that the compiler does not leave out the loop.
var sink atomic.Uint64

// burn computes for some microseconds.
func burn() {
	x := sink.Load() | 1
	for range 10_000 {
		x = x*6364136223846793005 + 1442695040888963407
	}
	sink.Store(x)
}
