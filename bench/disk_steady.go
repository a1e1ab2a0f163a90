package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	mathrand "math/rand/v2"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/worker"
)

// These scenarios measure how late messages are delivered under a steady load: messages are pushed
// at a rate, each due 1 to 3 seconds ahead, and handled by a worker.

const (
	producers    = 4
	producerTick = 10 * time.Millisecond
	steadyBatch  = 1000
	minAhead     = time.Second
	maxAhead     = 3 * time.Second
	// steadySlots is the worker's concurrency. At 100k/s a slot is busy for the time of an ack,
	// some milliseconds, so hundreds are needed at once.
	steadySlots = 256
	// settleTime is after how long without a delivery a round fails while messages are still
	// missing.
	settleTime = 30 * time.Second
)

var steadyRates = []int{2_000, 20_000, 100_000}

func rateName(rate int) string { return fmt.Sprintf("%dk", rate/1000) }

func steadyScenarios() []scenario {
	var all []scenario
	for _, rate := range steadyRates {
		all = append(all, scenario{
			name: "steady/" + rateName(rate), about: fmt.Sprintf("lateness at %d messages a second", rate),
			maxRounds: 1, takes: windowPlus(6 * time.Second),
			run: func(ctx context.Context, e *env) error { return runSteady(ctx, e, &load{rate: rate}) },
		})
	}
	return all
}

// load is a steady load on one store.
type load struct {
	rate int // messages a second
	busy int // how many handlers of another topic compute all the time

	writes  *diskWrites
	queue   *punctual.Queue
	pushes  *recorder // duration of each PushMany
	claimed *recorder // how late messages were claimed, by the store's clock (Delivery.Late)
	started *recorder // how late the handler started

	// The window is the time between from and to. Lateness is noted for the messages that are due
	// within it: not for the first ones, because the load still builds up, and not for those due
	// after to, when nothing is pushed any more.
	from, to        time.Time
	pushed, handled atomic.Int64
	counted         atomic.Int64 // messages due within the window that were handled
	within          atomic.Int64 // messages handled within the window, whenever they were due
	early           atomic.Int64 // messages handled before they were due
}

// runSteady opens the round's store, puts the load on it, and notes lateness and cost.
func runSteady(ctx context.Context, e *env, l *load) error {
	l.writes = countDiskWrites()
	store, err := openStore(e)
	if err != nil {
		return err
	}
	return closeStore(store, l.run(ctx, e, store))
}

func (l *load) run(ctx context.Context, e *env, store punctual.Store) error {
	l.queue = punctual.NewQueue(store, nil)
	l.pushes, l.claimed, l.started = newRecorder(), newRecorder(), newRecorder()
	begin := time.Now()
	l.from = begin.Add(maxAhead)
	l.to = l.from.Add(e.sizes.Window)
	work, stopWork := context.WithCancel(ctx)
	defer stopWork()
	w := worker.New(store, &worker.Config{Concurrency: steadySlots})
	w.Handle(topic, punctual.HandlerFunc(l.handle))
	stopBusy, err := l.keepBusy(work, w)
	if err != nil {
		return err
	}
	if err := w.Start(work); err != nil {
		return err
	}
	e.say("%d messages a second for %v", l.rate, e.sizes.Window)
	err = l.measure(ctx, e)
	stopBusy()
	if serr := stopWorker(w); err == nil {
		err = serr
	}
	return err
}

func stopWorker(w *worker.Worker) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return w.Stop(ctx)
}

// measure pushes until the window is over, waits until all messages are handled, and notes lateness
// and cost.
func (l *load) measure(ctx context.Context, e *env) error {
	if err := resetPeak(); err != nil {
		return err
	}
	cpu, err := cpuTime()
	if err != nil {
		return err
	}
	written := l.writes.now()
	begin := time.Now()
	if err := l.produce(ctx); err != nil {
		return err
	}
	if err := awaitCount(ctx, &l.handled, &l.pushed); err != nil {
		return err
	}
	cpuEnd, err := cpuTime()
	if err != nil {
		return err
	}
	if n := l.early.Load(); n > 0 {
		return fmt.Errorf("%d messages were delivered before they were due (P2)", n)
	}
	l.note(e, cpuEnd-cpu, time.Since(begin))
	l.writes.note(e.out, written, l.handled.Load())
	return e.out.setMemory()
}

// note notes the number, the rate and the lateness of the messages due within the window, how many
// were handled within it, and the durations of pushes and the CPU time of the whole load.
func (l *load) note(e *env, cpu, took time.Duration) {
	n := float64(l.counted.Load())
	e.out.set("messages", n)
	e.out.set("rate", n/e.sizes.Window.Seconds())
	e.out.set("cpu_us_per_message", float64(cpu.Microseconds())/float64(l.handled.Load()))
	e.out.set("cpu_cores", cpu.Seconds()/took.Seconds())
	e.out.set("handled_rate", float64(l.within.Load())/e.sizes.Window.Seconds())
	e.out.setQuantiles("claim", l.claimed.merged())
	e.out.setQuantiles("start", l.started.merged())
	e.out.setQuantiles("push", l.pushes.merged())
}

// handle handles a message: it counts the delivery and records how late it is.
func (l *load) handle(_ context.Context, d *punctual.Delivery) error {
	now := time.Now()
	late := now.Sub(d.Due)
	if late < 0 {
		l.early.Add(1)
	}
	if !now.Before(l.from) && now.Before(l.to) {
		l.within.Add(1)
	}
	if !d.Due.Before(l.from) && d.Due.Before(l.to) {
		l.claimed.record(d.Late())
		l.started.record(late)
		l.counted.Add(1)
	}
	l.handled.Add(1)
	return nil
}

// produce pushes at the load's rate until the window is over.
func (l *load) produce(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for i := range producers {
		wg.Go(func() {
			if err := l.producer(ctx, i); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// producer pushes its share of the rate. At each tick it pushes as many messages as are missing, so
// that it catches up after a slow push. It pushes at most steadyBatch at a time, so that one push
// is one call of the store.
func (l *load) producer(ctx context.Context, i int) error {
	share := float64(l.rate) / producers
	start := time.Now()
	pushed := 0
	time.Sleep(time.Duration(i) * producerTick / producers)
	for now := time.Now(); now.Before(l.to) && ctx.Err() == nil; now = time.Now() {
		if missing := min(steadyBatch, int(share*now.Sub(start).Seconds())-pushed); missing > 0 {
			if err := checkPushed(l.queue.PushMany(ctx, soonMessages(missing))); err != nil {
				return err
			}
			l.pushes.record(time.Since(now))
			pushed += missing
			l.pushed.Add(int64(missing))
			if missing == steadyBatch {
				continue // without a pause, because more may be missing
			}
		}
		time.Sleep(time.Until(now.Add(producerTick)))
	}
	return nil
}

// soonMessages returns n messages due 1 to 3 seconds ahead.
func soonMessages(n int) []punctual.NewMessage {
	ms := make([]punctual.NewMessage, n)
	for i := range ms {
		ms[i] = punctual.NewMessage{Topic: topic, Body: randomBody(), Delay: minAhead + mathrand.N(maxAhead-minAhead)}
	}
	return ms
}

// awaitCount waits until as many messages have arrived as were pushed (P1), however long that
// takes. It returns an error when none has arrived for settleTime.
func awaitCount(ctx context.Context, arrived, pushed *atomic.Int64) error {
	progress, seen := time.Now(), arrived.Load()
	for arrived.Load() < pushed.Load() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if n := arrived.Load(); n > seen {
			progress, seen = time.Now(), n
		}
		if time.Since(progress) > settleTime {
			return fmt.Errorf("%d of %d messages arrived, and none within the last %v", seen, pushed.Load(), settleTime)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}
