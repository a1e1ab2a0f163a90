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

// How fast messages that are all due in one instant are claimed and acked, and how late
// another topic's messages are meanwhile.

const (
	drainHands    = 64
	bystander     = "bystander"
	bystanderTick = 10 * time.Millisecond
	drainBatch    = 1000
)

func drainScenario() scenario {
	return scenario{
		name: "drain", about: "claim and ack of messages due in one instant by 64 handlers, with a bystander topic",
		takes: func(z sizes) time.Duration { return fillTime(z.Burst) + time.Duration(z.Burst)*30*time.Microsecond },
		run:   runDrain,
	}
}

// fillTime is how long n messages may take to be pushed in batches before they are due.
func fillTime(n int) time.Duration { return time.Second + time.Duration(n)*20*time.Microsecond }

// burst is a round of drain.
type burst struct {
	size    int64
	due     time.Time
	handled atomic.Int64
	early   atomic.Int64
	done    chan struct{} // closed when the last one was handled
	doneAt  time.Time     // set before done is closed

	// Bystanders that were due while the burst was handled.
	started, claimed *recorder
	seen             atomic.Int64
	worst            worstCurve // of started, over the seconds since due
	// All bystanders.
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

// run fills the store, waits for the instant and returns the rate of the drain.
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

// drain waits for the instant, for the last message of the burst and for all bystanders.
func (b *burst) drain(ctx context.Context, e *env, q *punctual.Queue) error {
	ticking, stop := context.WithCancel(ctx)
	var pushing sync.WaitGroup
	defer pushing.Wait()
	defer stop()
	var pushErr error // of the bystanders; written before pushing is done
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

// watch waits until the burst is handled and notes the rate of each 100 ms. A burst of which
// nothing is handled for settleTime fails.
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

// curveSlot is the distance of the points of the curves of a drain.
const curveSlot = 100 * time.Millisecond

// worstCurve is the longest of the durations in each slot of time.
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

// note notes the curve, in milliseconds over seconds.
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

// handle counts one message of the burst. The ack of the last one is not waited for.
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

// handleBystander counts a bystander, and its lateness if it was due while the burst was
// handled. One that arrives only after the burst counts like the others.
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

// pushBystanders pushes a message each 10 ms, due 100 ms later, until ctx ends, and waits
// for the pushes under way. They do not wait for each other.
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
