package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// These scenarios measure how fast 1, 8 and 32 processes claim and ack messages on Redis that are
// all due in one instant. The reference, and in most scenarios asynq, are measured in turn with
// Punctual, with as many processes and as much concurrency.

// redisDrain is a way of draining: how many consumer processes there are, the concurrency of each,
// and when the server syncs.
type redisDrain struct {
	processes, slots int
	fsync            string
	rivals           bool // asynq is measured, too
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

// takes guesses how long a round takes: Punctual and the reference fill and drain the whole number,
// and asynq, where it is measured, fills and drains a smaller number twice.
func (x redisDrain) takes(z sizes) time.Duration {
	each := time.Duration(x.processes)*processStart + 2*time.Second
	d := 2*each + time.Duration(z.RedisBurst)*60*time.Microsecond
	if x.rivals {
		d += 2*each + time.Duration(drainSize(sysAsynq, z))*300*time.Microsecond + 3*time.Second
	}
	return d
}

// drainSize returns how many messages a system gets. asynq and BullMQ get a fifth, so that they
// take about as long as the others.
func drainSize(system string, z sizes) int {
	switch system {
	case sysAsynq, sysAsynqFast, sysBullMQ:
		return max(1, z.RedisBurst/5)
	}
	return z.RedisBurst
}

// drainFill returns how long a system may take to schedule its messages before they are due.
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
	// The rate counts from the instant, so that the time until the first delivery is part of it.
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

// compare measures asynq, first with its defaults and then with shorter intervals between its
// polls, and notes how many times as fast as the faster of both Punctual is. asynq's rate counts
// from its first delivery, because how long it waits before depends on its polls and not on how
// fast it is.
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

// drained is a drain of n messages by one system, and what was measured.
type drained struct {
	outcome
	n    int64
	fill time.Duration // how long scheduling may take
	due  time.Time
	cost serverCost
	cpu  time.Duration // CPU time of the consumers
}

func (d *drained) rateSince(t time.Time) float64 { return float64(d.n) / d.last.Sub(t).Seconds() }

func (d *drained) note(out *Result, prefix string) {
	out.setCost(prefix, d.cost, d.n)
	out.set(prefix+"cpu_us_per_message", float64(d.cpu.Microseconds())/float64(d.n))
	out.set(prefix+"repeated", float64(d.twice))
	out.set(prefix+"early", float64(d.early))
}

// errLateFill says that some messages were scheduled only after they were due.
var errLateFill = errors.New("this machine is too slow or too busy for -redis-burst")

// drain measures a system. When the messages cannot be scheduled in time, because other programs
// keep the machine busy, it tries again with three times as much time, up to three times in all.
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

// drainOnce starts a fresh server and the consumers of a system, schedules messages for one
// instant, and waits until all are handled.
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
	// The instant is a whole second, because asynq's due times are whole seconds.
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

// joinStop stops a fleet and returns its CPU time. The error is err joined with that of stopping.
func joinStop(f *fleet, err error) (time.Duration, error) {
	cpu, serr := f.stop()
	return cpu, errors.Join(err, serr)
}

// measure schedules the messages, waits until just before the instant and then until all messages
// are handled, and notes what the server did in that second wait.
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
	// processStart is how long each consumer process may take to start.
	processStart = 50 * time.Millisecond
	// fillers is how many callers schedule for asynq at the same time, which needs many because it
	// has no call for many messages.
	fillers   = 64
	redisFill = 500 // messages of each push by a system that has such a call
)

// fillFor schedules n letters for one instant, with the number of callers and the size of lists
// with which the system is fast.
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

// inParallel has n goroutines call f once each and waits for them. f gets the number of its
// goroutine. The first error ends the context of the others, and is returned.
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
