package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// These scenarios measure how late messages are delivered on Redis under a steady load, with 1, 8
// and 32 consumer processes. The due times are spread evenly. They also note how early messages
// were delivered, because asynq's due times are whole seconds.

const (
	redisHands = 64 // concurrency of each process
	// redisCallers is how many callers push one message each, again and again.
	redisCallers = 64
	// lateLead is how long before it is due a message is pushed.
	lateLead = 2 * time.Second
)

var redisRates = []int{2_000, 10_000, 20_000}

// redisLateness is a load, and the system and the number of consumer processes that handle it.
type redisLateness struct {
	rate      int
	system    string
	processes int
}

func (x redisLateness) name() string {
	return fmt.Sprintf("redis-lateness/%s-%s-%d", rateName(x.rate), x.system, x.processes)
}

// redisLatenesses returns what is measured at a rate. It leaves out the systems and numbers of
// processes that cannot keep up with that rate on the machine of the published results.
func redisLatenesses(rate int) []redisLateness {
	all := []redisLateness{{rate, sysPunctual, 1}, {rate, sysPunctual, 8}}
	if rate <= 10_000 {
		all = append(all, redisLateness{rate, sysPunctual, 32})
	}
	if rate <= 2_000 {
		all = append(all, redisLateness{rate, sysAsynq, 8}, redisLateness{rate, sysBullMQ, 1}, redisLateness{rate, sysBullMQ, 8})
	}
	if rate <= 10_000 {
		all = append(all, redisLateness{rate, sysAsynqFast, 8})
	}
	return all
}

func redisLatenessScenarios() []scenario {
	var all []scenario
	for _, rate := range redisRates {
		for _, x := range redisLatenesses(rate) {
			all = append(all, scenario{
				name:  x.name(),
				about: fmt.Sprintf("lateness at %d messages a second, %s, %d processes", x.rate, x.system, x.processes), maxRounds: 2,
				takes: func(z sizes) time.Duration {
					return z.RedisWindow + lateLead + 2*time.Second + time.Duration(x.processes)*processStart
				},
				run: x.run,
			})
		}
	}
	return all
}

func (x redisLateness) run(ctx context.Context, e *env) error {
	return e.withRedis(ctx, everySecond, func(s *redisServer) error {
		sys, err := openSystem(ctx, x.system, s, redisCallers)
		if err != nil {
			return err
		}
		return errors.Join(x.runServer(ctx, e, s, sys), sys.close())
	})
}

func (x redisLateness) runServer(ctx context.Context, e *env, s *redisServer, sys system) error {
	f, err := e.startFleet(ctx, x.processes, consumerTask{System: x.system, Addr: s.addr, Slots: redisHands})
	if err != nil {
		return err
	}
	if err := x.load(ctx, e, s, sys, f); err != nil {
		return err
	}
	return expectPending(ctx, sys, 0)
}

// load pushes messages at the rate, waits until the consumers have handled all of them, stops the
// consumers, and notes lateness and cost.
func (x redisLateness) load(ctx context.Context, e *env, s *redisServer, sys system, f *fleet) error {
	n := int64(float64(x.rate) * e.sizes.RedisWindow.Seconds())
	var overdue int64
	from, err := s.usage(ctx)
	if err == nil {
		e.say("%d messages a second for %v", x.rate, e.sizes.RedisWindow)
		overdue, err = pushEvenly(ctx, sys, n, x.rate)
	}
	if err == nil {
		err = f.await(ctx, n)
	}
	to, uerr := s.usage(ctx)
	cpu, err := joinStop(f, errors.Join(err, uerr))
	if err != nil {
		return err
	}
	e.out.set("overdue_share", float64(overdue)/float64(n))
	e.out.set("cpu_us_per_message", float64(cpu.Microseconds())/float64(n))
	e.out.setCost("", cost(from, to, true), n)
	return x.note(e.out, f, n)
}

// note notes the lateness. It returns an error if a message was not delivered, or if Punctual
// delivered one early or twice.
func (x redisLateness) note(out *Result, f *fleet, n int64) error {
	list, err := f.deliveries()
	if err != nil {
		return err
	}
	v, err := check(n, list)
	if err != nil {
		return err
	}
	out.set("messages", float64(n))
	out.set("early", float64(v.early))
	out.set("early_share", float64(v.early)/float64(n))
	out.set("earliest_ms", ms(v.earliest))
	out.set("repeated", float64(v.twice))
	out.setQuantiles("start", v.late.merged())
	if x.system == sysPunctual {
		return v.strict()
	}
	return nil
}

// pushEvenly pushes n letters one by one at a rate, each lateLead before it is due. It returns how
// many were stored only after they were due, because the system or the machine was too busy.
func pushEvenly(ctx context.Context, sys system, n int64, rate int) (overdue int64, err error) {
	if b, ok := sys.(*bullmqSystem); ok {
		a, err := b.ask(bullmqRequest{Do: "evenly", N: n, Rate: rate, Callers: redisCallers, LeadMS: lateLead.Milliseconds()})
		return a.Overdue, err
	}
	begin := time.Now()
	var next, behind atomic.Int64
	err = inParallel(ctx, redisCallers, func(ctx context.Context, who int) error {
		for {
			i := next.Add(1) - 1
			if i >= n {
				return nil
			}
			at := begin.Add(time.Duration(i) * time.Second / time.Duration(rate))
			if err := sleepUntil(ctx, at); err != nil {
				return err
			}
			l := letter{uint32(i), ceilMillis(at.Add(lateLead))}
			if err := sys.push(ctx, who, []letter{l}); err != nil {
				return err
			}
			if time.Now().After(l.due) {
				behind.Add(1)
			}
		}
	})
	return behind.Load(), err
}
