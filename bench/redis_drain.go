package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// How fast 1, 8 and 32 processes claim and ack messages on Redis that are all due in one instant. The reference and
// asynq run beside them, with as many processes and as much concurrency.

// redisDrain is a way of draining.
type redisDrain struct {
	processes, slots int
	fsync            string
	rivals           bool // asynq, too
}

func (x redisDrain) name() string {
	return fmt.Sprintf("redis-drain/%dx%d%s", x.processes, x.slots, suffix(x.fsync))
}

func redisDrains() []redisDrain {
	return []redisDrain{
		{1, 16, everySecond, false},
		{1, 64, everySecond, true},
		{1, 256, everySecond, false},
		{8, 64, everySecond, true},
		{32, 64, everySecond, true},
		{1, 64, always, true},
	}
}

func redisDrainScenarios() []scenario {
	var all []scenario
	for _, x := range redisDrains() {
		all = append(all, scenario{
			name:  x.name(),
			about: fmt.Sprintf("claim and ack by %d processes with concurrency %d, appendfsync %s", x.processes, x.slots, x.fsync),
			takes: x.takes, run: x.run,
		})
	}
	return all
}

// takes: two systems fill and drain, asynq twice a smaller number.
func (x redisDrain) takes(z sizes) time.Duration {
	each := time.Duration(x.processes)*processStart + 2*time.Second
	d := 2*each + time.Duration(z.RedisBurst)*60*time.Microsecond
	if x.rivals {
		d += 2*each + time.Duration(drainSize(sysAsynq, z))*300*time.Microsecond + 3*time.Second
	}
	return d
}

// drainSize is how many messages a system gets: asynq and BullMQ a fifth, so that they take about as long.
func drainSize(system string, z sizes) int {
	switch system {
	case sysAsynq, sysAsynqFast, sysBullMQ:
		return max(1, z.RedisBurst/5)
	}
	return z.RedisBurst
}

// drainFill is how long a system may take to schedule them before they are due.
func drainFill(system string, z sizes) time.Duration {
	each := 20 * time.Microsecond
	switch system {
	case sysAsynq, sysAsynqFast:
		each = 60 * time.Microsecond
	case sysBullMQ:
		each = 150 * time.Microsecond
	}
	return time.Second + time.Duration(drainSize(system, z))*each
}

func (x redisDrain) run(ctx context.Context, e *env) error {
	own, err := x.drain(ctx, e, sysPunctual)
	if err != nil {
		return err
	}
	// Counted from the instant, so that the time it takes to notice is in it.
	rate := own.rateSince(own.due)
	e.out.set("rate", rate)
	e.out.setQuantiles("start", own.late.merged())
	e.out.set("first_ms", ms(own.first.Sub(own.due)))
	own.note(e.out, "")
	raw, err := x.drain(ctx, e, sysRaw)
	if err != nil {
		return err
	}
	e.out.set("raw_rate", raw.rateSince(raw.due))
	e.out.set("ratio", rate/raw.rateSince(raw.due))
	raw.note(e.out, "raw_")
	if x.rivals {
		return x.compare(ctx, e, rate)
	}
	return nil
}

// compare measures asynq, with its defaults and with its polls turned down. Its rate is counted
// from its first delivery. How long it waits before that has to do with its polls and not with how
// fast it is. The better one counts.
func (x redisDrain) compare(ctx context.Context, e *env, rate float64) error {
	best := 0.0
	for _, rival := range []contender{{sysAsynq, "asynq_"}, {sysAsynqFast, "asynq_fast_"}} {
		prefix := rival.prefix
		d, err := x.drain(ctx, e, rival.system)
		if err != nil {
			return err
		}
		d.note(e.out, prefix)
		e.out.set(prefix+"rate", d.rateSince(d.first))
		e.out.set(prefix+"first_ms", ms(d.first.Sub(d.due)))
		best = max(best, d.rateSince(d.first))
	}
	e.out.set("times_asynq", rate/best)
	return nil
}

// drained is what one system did.
type drained struct {
	outcome
	n    int64
	fill time.Duration // for scheduling them
	due  time.Time
	cost serverCost
	cpu  time.Duration // of the consumers
}

func (d *drained) rateSince(t time.Time) float64 { return float64(d.n) / d.last.Sub(t).Seconds() }

func (d *drained) note(out *Result, prefix string) {
	out.setCost(prefix, d.cost, d.n)
	out.set(prefix+"cpu_us_per_message", float64(d.cpu.Microseconds())/float64(d.n))
	out.set(prefix+"repeated", float64(d.twice))
	out.set(prefix+"early", float64(d.early))
}

// errLateFill tells that not everything was scheduled before it was due.
var errLateFill = errors.New("this machine is too slow or too busy for -redis-burst")

// drain measures a system. When others keep the machine so busy that it cannot be filled in
// time, it tries again with more.
func (x redisDrain) drain(ctx context.Context, e *env, system string) (d *drained, err error) {
	fill := drainFill(system, e.sizes)
	for range 3 {
		if d, err = x.drainOnce(ctx, e, system, fill); !errors.Is(err, errLateFill) {
			return d, err
		}
		fill *= 3
	}
	return nil, err
}

// drainOnce has a system's consumers wait, schedules for one instant, and waits until all are
// handled.
func (x redisDrain) drainOnce(ctx context.Context, e *env, system string, fill time.Duration) (*drained, error) {
	d := &drained{n: int64(drainSize(system, e.sizes)), fill: fill}
	return d, e.withRedis(ctx, x.fsync, func(s *redisServer) error {
		sys, err := openSystem(ctx, system, s, fillers)
		if err != nil {
			return err
		}
		return errors.Join(x.drainServer(ctx, e, s, sys, system, d), sys.close())
	})
}

func (x redisDrain) drainServer(ctx context.Context, e *env, s *redisServer, sys system, system string, d *drained) error {
	start := time.Duration(x.processes) * processStart
	if system == sysBullMQ {
		start = time.Duration(x.processes) * bullmqStart
	}
	// A whole second, because asynq knows nothing finer.
	d.due = time.Now().Add(start + d.fill + time.Second).Truncate(time.Second)
	f, err := e.startFleet(ctx, x.processes, consumerTask{System: system, Addr: s.addr, Slots: x.slots, Instant: d.due})
	if err != nil {
		return err
	}
	err = d.measure(ctx, e, s, sys, system, f)
	d.cpu, err = joinStop(f, err)
	if err != nil {
		return err
	}
	if err := expectPending(ctx, sys, 0); err != nil {
		return err
	}
	return d.check(f, system)
}

// joinStop stops a fleet and returns its CPU time and the errors of both.
func joinStop(f *fleet, err error) (time.Duration, error) {
	cpu, serr := f.stop()
	return cpu, errors.Join(err, serr)
}

// measure fills the server, waits for the instant and for the last message.
func (d *drained) measure(ctx context.Context, e *env, s *redisServer, sys system, system string, f *fleet) error {
	e.say("%s: scheduling %d messages for one instant", system, d.n)
	if err := fillFor(ctx, sys, system, d.n, d.due); err != nil {
		return err
	}
	if late := time.Since(d.due); late > 0 {
		return fmt.Errorf("the last message of %s was pushed %v after it was due: %w", system, late, errLateFill)
	}
	if err := sleepUntil(ctx, d.due.Add(-20*time.Millisecond)); err != nil {
		return err
	}
	from, err := s.usage(ctx)
	if err != nil {
		return err
	}
	e.say("%s: draining", system)
	if err := f.await(ctx, d.n); err != nil {
		return err
	}
	to, err := s.usage(ctx)
	d.cost = cost(from, to, system != sysRaw)
	return err
}

func (d *drained) check(f *fleet, system string) error {
	list, err := f.deliveries()
	if err != nil {
		return err
	}
	if d.outcome, err = check(d.n, list); err != nil {
		return fmt.Errorf("%s: %w", system, err)
	}
	if system == sysPunctual {
		return d.strict()
	}
	return nil
}

const (
	// processStart is how long a consumer process may take to start.
	processStart = 50 * time.Millisecond
	// fillers schedule at the same time; asynq, which has no batches, needs many to be fast.
	fillers   = 64
	redisFill = 500 // messages of one list
)

// fillFor schedules n letters for one instant.
func fillFor(ctx context.Context, sys system, system string, n int64, due time.Time) error {
	if b, ok := sys.(*bullmqSystem); ok {
		_, err := b.ask(bullmqRequest{Do: "fill", N: n, Due: due.UnixMilli(), Callers: 2, Batch: bullmqBatch})
		return err
	}
	callers, batch := 2, int64(redisFill)
	if system == sysAsynq || system == sysAsynqFast {
		callers, batch = fillers, 1
	}
	var next atomic.Int64
	return inParallel(ctx, callers, func(ctx context.Context, who int) error {
		for ctx.Err() == nil {
			from := next.Add(batch) - batch
			if from >= n {
				return nil
			}
			ls := make([]letter, min(batch, n-from))
			for i := range ls {
				ls[i] = letter{uint32(from) + uint32(i), due}
			}
			if err := sys.push(ctx, who, ls); err != nil {
				return err
			}
		}
		return nil
	})
}

// inParallel has n goroutines call f, and returns the first error, which ends the others.
func inParallel(ctx context.Context, n int, f func(ctx context.Context, who int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for who := range n {
		wg.Go(func() {
			if err := f(ctx, who); err != nil {
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

func sleepUntil(ctx context.Context, t time.Time) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Until(t)):
		return nil
	}
}
