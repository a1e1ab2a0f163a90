package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/worker"
)

// This scenario measures how fast messages that are all due in one instant are claimed and acked,
// and how late the messages of another topic, the bystanders, are meanwhile.

const (
	drainHands    = 64          // the worker's concurrency
	bystander     = "bystander" // the topic of the bystanders
	bystanderTick = 10 * time.Millisecond
	drainBatch    = 1000 // messages of each push before the instant
)

func drainScenario() scenario {
	return scenario{
		name: "drain", about: "claim and ack of messages due in one instant by 64 handlers, with a bystander topic",
		takes: func(z sizes) time.Duration { return fillTime(z.Burst) + time.Duration(z.Burst)*30*time.Microsecond },
		run:   runDrain,
	}
}

// fillTime returns how long before its instant a round with n messages begins to measure the limit
// and to push.
func fillTime(n int) time.Duration { return time.Second + time.Duration(n)*20*time.Microsecond }

// burst is a round of drain.
type burst struct {
	size    int64
	due     time.Time
	handled atomic.Int64
	early   atomic.Int64
	done    chan struct{} // closed when the handler of the last message has begun
	doneAt  time.Time     // set before done is closed

	// Lateness and number of the bystanders that were due while the burst was handled: started is
	// how late their handler began, claimed how late they were claimed.
	started, claimed *recorder
	seen             atomic.Int64
	worst            worstCurve // the longest of started, over the time since due
	// pushed and arrived count all bystanders.
	pushed, arrived atomic.Int64
}

func runDrain(ctx context.Context, e *env) error {
	store, err := openStore(e)
	if err != nil {
		return err
	}
	b := &burst{
		size: int64(e.sizes.Burst), due: time.Now().Add(fillTime(e.sizes.Burst)).Truncate(time.Millisecond),
		done: make(chan struct{}), started: newRecorder(), claimed: newRecorder(),
	}
	err = e.against(drainHands, ackBytes, func() (float64, error) { return b.run(ctx, e, store) })
	return closeStore(store, err)
}

// run fills the store, starts a worker, waits for the instant, and returns how many messages a
// second were handled from then on.
func (b *burst) run(ctx context.Context, e *env, store punctual.Store) (rate float64, err error) {
	q := punctual.NewQueue(store, nil)
	e.say("pushing %d messages for one instant", b.size)
	if err := b.fill(ctx, q); err != nil {
		return 0, err
	}
	w := worker.New(store, &worker.Config{Concurrency: drainHands})
	w.Handle(topic, punctual.HandlerFunc(b.handle))
	w.Handle(bystander, punctual.HandlerFunc(b.handleBystander))
	if err := w.Start(ctx); err != nil {
		return 0, err
	}
	err = b.drain(ctx, e, q)
	if serr := stopWorker(w); err == nil {
		err = serr
	}
	if err == nil && b.early.Load() > 0 {
		err = fmt.Errorf("%d messages were delivered before they were due (P2)", b.early.Load())
	}
	if err != nil {
		return 0, err
	}
	b.worst.note(e.out, "bystander_worst_ms")
	e.out.set("bystanders", float64(b.seen.Load()))
	e.out.setQuantiles("start", b.started.merged())
	e.out.setQuantiles("claim", b.claimed.merged())
	return float64(b.size) / b.doneAt.Sub(b.due).Seconds(), nil
}

// drain waits for the instant, for the last message of the burst, and then for all bystanders.
func (b *burst) drain(ctx context.Context, e *env, q *punctual.Queue) error {
	ticking, stop := context.WithCancel(ctx)
	var pushing sync.WaitGroup
	defer pushing.Wait()
	defer stop()
	var pushErr error // the error of pushing bystanders: written until pushing is done, read after that
	pushing.Go(func() { pushErr = b.pushBystanders(ticking, q) })
	time.Sleep(time.Until(b.due) - 100*time.Millisecond)
	if err := resetPeak(); err != nil {
		return err
	}
	time.Sleep(time.Until(b.due))
	e.say("draining")
	cpu, err := cpuTime()
	if err != nil {
		return err
	}
	if err := b.watch(ctx, e.out); err != nil {
		return err
	}
	cpuEnd, err := cpuTime()
	if err != nil {
		return err
	}
	e.out.set("cpu_us_per_message", float64((cpuEnd-cpu).Microseconds())/float64(b.size))
	if err := e.out.setMemory(); err != nil {
		return err
	}
	stop()
	pushing.Wait()
	if pushErr != nil {
		return pushErr
	}
	return awaitCount(ctx, &b.arrived, &b.pushed)
}

// watch waits until the whole burst is handled, and notes the rate of each 100 ms. It returns an
// error when nothing of the burst was handled for settleTime.
func (b *burst) watch(ctx context.Context, out *Result) error {
	tick := time.NewTicker(curveSlot)
	defer tick.Stop()
	last, lastAt, progress := b.handled.Load(), time.Now(), time.Now()
	for {
		select {
		case <-b.done:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		now, n := time.Now(), b.handled.Load()
		out.add("rate", now.Sub(b.due).Seconds(), float64(n-last)/now.Sub(lastAt).Seconds())
		if n > last {
			progress = now
		}
		if now.Sub(progress) > settleTime {
			return fmt.Errorf("%d of %d messages were handled, and none within the last %v", n, b.size, settleTime)
		}
		last, lastAt = n, now
	}
}

// curveSlot is the time between two points of the curves of a drain.
const curveSlot = 100 * time.Millisecond

// worstCurve keeps the longest of the durations for each curveSlot of time.
type worstCurve struct {
	mu    sync.Mutex
	slots []time.Duration // guarded by mu
}

func (w *worstCurve) add(at, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := int(at / curveSlot)
	for len(w.slots) <= i {
		w.slots = append(w.slots, 0)
	}
	w.slots[i] = max(w.slots[i], d)
}

// note notes the curve: seconds on the horizontal axis, milliseconds on the vertical one.
func (w *worstCurve) note(out *Result, series string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, d := range w.slots {
		out.add(series, (time.Duration(i) * curveSlot).Seconds(), ms(d))
	}
}

func (b *burst) fill(ctx context.Context, q *punctual.Queue) error {
	ms := make([]punctual.NewMessage, 0, drainBatch)
	for left := int(b.size); left > 0; left -= len(ms) {
		ms = ms[:min(left, drainBatch)]
		for i := range ms {
			ms[i] = punctual.NewMessage{Topic: topic, Body: randomBody(), Due: b.due}
		}
		if err := checkPushed(q.PushMany(ctx, ms)); err != nil {
			return err
		}
	}
	if late := time.Since(b.due); late > 0 {
		return fmt.Errorf("the last message was pushed %v after it was due: this machine is too slow or too busy for -burst %d", late, b.size)
	}
	return nil
}

// handle handles a message of the burst. The burst counts as handled when the last handler begins,
// before that message is acked.
func (b *burst) handle(_ context.Context, d *punctual.Delivery) error {
	if time.Now().Before(d.Due) {
		b.early.Add(1)
	}
	if b.handled.Add(1) == b.size {
		b.doneAt = time.Now()
		close(b.done)
	}
	return nil
}

// handleBystander handles a bystander, and records its lateness if it was due while the burst was
// handled. That includes a bystander that arrives only after the burst.
func (b *burst) handleBystander(_ context.Context, d *punctual.Delivery) error {
	late := time.Since(d.Due)
	defer b.arrived.Add(1)
	if d.Due.Before(b.due) {
		return nil
	}
	select {
	case <-b.done:
		if d.Due.After(b.doneAt) {
			return nil
		}
	default:
	}
	b.started.record(late)
	b.worst.add(d.Due.Sub(b.due), late)
	b.claimed.record(d.Late())
	b.seen.Add(1)
	return nil
}

// pushBystanders pushes a message every 10 ms, due 100 ms later, until ctx ends. Each push has a
// goroutine of its own, so that a slow push does not delay the next one. In the end pushBystanders
// waits for the pushes under way, and returns the first error.
func (b *burst) pushBystanders(ctx context.Context, q *punctual.Queue) error {
	tick := time.NewTicker(bystanderTick)
	defer tick.Stop()
	var wg sync.WaitGroup
	failed := make(chan error, 1)
	for {
		select {
		case <-ctx.Done():
			wg.Wait()
			select {
			case err := <-failed:
				return err
			default:
				return nil
			}
		case now := <-tick.C:
			wg.Go(func() {
				m := punctual.At(now.Add(100 * time.Millisecond))
				if _, err := q.Push(context.Background(), bystander, randomBody(), m); err == nil {
					b.pushed.Add(1)
				} else {
					select {
					case failed <- err:
					default: // the first error is enough
					}
				}
			})
		}
	}
}
