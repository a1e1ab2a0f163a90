package main

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync/atomic"
	"time"
)

// These scenarios measure what a message costs the Redis server: memory while it is pending, and
// commands and CPU time for its whole life under load. They also measure commands and CPU time
// while nothing happens.

// idleProcesses are the systems and the numbers of consumer processes whose idle cost is measured.
var idleProcesses = []struct {
	system    string
	processes int
}{{sysPunctual, 1}, {sysPunctual, 8}, {sysPunctual, 32}, {sysAsynq, 8}, {sysAsynqFast, 8}}

const memoryScenario = "redis-cost/memory"

// lifeSlots are the concurrencies of the consumer process with which whole lives are measured.
var lifeSlots = []int{64, 256}

func lifeName(slots int) string { return fmt.Sprintf("redis-cost/life-%d", slots) }

func idleName(system string, processes int) string {
	return fmt.Sprintf("redis-cost/idle-%s-%d", system, processes)
}

func redisCostScenarios() []scenario {
	all := []scenario{
		{
			name: memoryScenario, about: "Redis memory as messages become pending, beside the reference and asynq", maxRounds: 1,
			takes: func(z sizes) time.Duration { return time.Duration(z.RedisPending) * 45 * time.Microsecond }, run: runRedisMemory,
		},
	}
	for _, slots := range lifeSlots {
		all = append(all, scenario{
			name: lifeName(slots), about: fmt.Sprintf("commands and CPU per message while 64 callers push and one process with concurrency %d handles", slots),
			takes: func(z sizes) time.Duration { return 3*z.RedisSpan + 5*time.Second },
			run:   func(ctx context.Context, e *env) error { return runRedisLife(ctx, e, slots) },
		})
	}
	for _, x := range idleProcesses {
		all = append(all, scenario{
			name: idleName(x.system, x.processes), about: fmt.Sprintf("commands of %d idle processes, %s", x.processes, x.system), maxRounds: 1,
			takes: func(z sizes) time.Duration { return idleWindow(z) + 3*time.Second },
			run:   func(ctx context.Context, e *env) error { return runRedisIdle(ctx, e, x.system, x.processes) },
		})
	}
	return all
}

// memoryPoints is how many points a curve of memory has.
const memoryPoints = 40

func runRedisMemory(ctx context.Context, e *env) error {
	for _, c := range []contender{{sysPunctual, ""}, {sysRaw, "raw_"}, {sysAsynq, "asynq_"}} {
		err := e.withRedis(ctx, everySecond, func(s *redisServer) error {
			sys, err := openSystem(ctx, c.system, s, fillers)
			if err != nil {
				return err
			}
			return errors.Join(growMemory(ctx, e, s, sys, c), sys.close())
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// growMemory pushes messages and notes a curve of the memory for each message, which rises and
// falls because the server makes its hash tables larger step by step. The figure is the last point
// of the curve, with all messages pending. The worst is the highest point beyond the first tenth of
// the curve.
func growMemory(ctx context.Context, e *env, s *redisServer, sys system, c contender) error {
	e.say("%s: %d messages pending", c.system, e.sizes.RedisPending)
	empty, err := s.usage(ctx)
	if err != nil {
		return err
	}
	var seq atomic.Uint32
	var each, worst float64
	for i := range memoryPoints {
		n := e.sizes.RedisPending*(i+1)/memoryPoints - e.sizes.RedisPending*i/memoryPoints
		if err := pushFar(ctx, sys, c.system, n, &seq); err != nil {
			return err
		}
		u, err := s.usage(ctx)
		if err != nil {
			return err
		}
		count := float64(seq.Load())
		each = float64(u.memory-empty.memory) / count
		e.out.add(c.prefix+"bytes_per_message", count, each)
		if i >= memoryPoints/10 {
			worst = max(worst, each)
		}
	}
	e.out.set(c.prefix+"bytes_per_message", each)
	e.out.set(c.prefix+"worst_bytes_per_message", worst)
	return expectPending(ctx, sys, int64(e.sizes.RedisPending))
}

// pushFar pushes n letters due 1 to 25 hours ahead, with the number of callers and the size of
// lists with which the system is fast.
func pushFar(ctx context.Context, sys system, system string, n int, seq *atomic.Uint32) error {
	callers, batch := 2, redisFill
	if system == sysAsynq {
		callers, batch = fillers, 1
	}
	var next atomic.Int64
	return inParallel(ctx, callers, func(ctx context.Context, who int) error {
		for ctx.Err() == nil {
			from := int(next.Add(int64(batch))) - batch
			if from >= n {
				return nil
			}
			if err := sys.push(ctx, who, farLetters(min(batch, n-from), seq)); err != nil {
				return err
			}
		}
		return nil
	})
}

// runRedisLife has callers push messages as fast as they can, due within a second, while one
// process handles them.
func runRedisLife(ctx context.Context, e *env, slots int) error {
	for _, c := range []contender{{sysPunctual, ""}, {sysAsynqFast, "asynq_"}} {
		err := e.withRedis(ctx, everySecond, func(s *redisServer) error {
			sys, err := openSystem(ctx, c.system, s, redisCallers)
			if err != nil {
				return err
			}
			return errors.Join(liveLives(ctx, e, s, sys, c, slots), sys.close())
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func liveLives(ctx context.Context, e *env, s *redisServer, sys system, c contender, slots int) error {
	f, err := e.startFleet(ctx, 1, consumerTask{System: c.system, Addr: s.addr, Slots: slots})
	if err != nil {
		return err
	}
	var n int64
	from, err := s.usage(ctx)
	if err == nil {
		e.say("%s: pushing and handling for %v", c.system, e.sizes.RedisSpan)
		n, err = pushSoon(ctx, sys, e.sizes.RedisSpan)
	}
	if err == nil {
		err = f.await(ctx, n)
	}
	to, uerr := s.usage(ctx)
	if _, err = joinStop(f, errors.Join(err, uerr)); err != nil {
		return err
	}
	if err := expectPending(ctx, sys, 0); err != nil {
		return err
	}
	e.out.setCost(c.prefix, cost(from, to, true), n)
	e.out.set(c.prefix+"rate", float64(n)/to.at.Sub(from.at).Seconds())
	list, err := f.deliveries()
	if err != nil {
		return err
	}
	v, err := check(n, list)
	if err == nil && c.system == sysPunctual {
		err = v.strict()
	}
	return err
}

// pushSoon has redisCallers callers push letters one by one, due within a second, until d is over,
// and returns how many were pushed.
func pushSoon(ctx context.Context, sys system, d time.Duration) (int64, error) {
	var seq atomic.Uint32
	t, err := flatOut(ctx, redisCallers, d, func(ctx context.Context, who int) (int, error) {
		l := letter{seq.Add(1) - 1, ceilMillis(time.Now().Add(mathrand.N(time.Second)))}
		return 1, sys.push(ctx, who, []letter{l})
	})
	if err != nil {
		return 0, err
	}
	return t.items.Load(), nil
}

// idleWindow returns how long idle processes are watched. That is shorter than for lateness,
// because commands a second are a mean, which needs less time than a quantile.
func idleWindow(z sizes) time.Duration { return z.RedisWindow / 2 }

// runRedisIdle notes the commands and the CPU time of processes that wait for one message, which is
// due in 1 to 25 hours.
func runRedisIdle(ctx context.Context, e *env, system string, processes int) error {
	return e.withRedis(ctx, everySecond, func(s *redisServer) error {
		sys, err := openSystem(ctx, system, s, 1)
		if err != nil {
			return err
		}
		var seq atomic.Uint32
		err = sys.push(ctx, 0, farLetters(1, &seq))
		if err = errors.Join(err, sys.close()); err != nil {
			return err
		}
		f, err := e.startFleet(ctx, processes, consumerTask{System: system, Addr: s.addr, Slots: redisHands})
		if err != nil {
			return err
		}
		begun := time.Now()
		c, err := watchIdle(ctx, e, s)
		cpu, err := joinStop(f, err)
		if err != nil {
			return err
		}
		each := c.took.Seconds() * float64(processes)
		e.out.set("commands_per_s", float64(c.calls)/each)
		e.out.set("scripts_per_s", float64(c.scripts)/each)
		e.out.set("script_commands_per_s", float64(c.others)/each)
		e.out.set("redis_cpu", c.cpu.Seconds()/c.took.Seconds())
		e.out.set("all_cpu", c.cpu.Seconds()/c.took.Seconds()+cpu.Seconds()/time.Since(begun).Seconds())
		if n := f.handled.Load(); n > 0 {
			return fmt.Errorf("%d messages were delivered hours before they were due (P2)", n)
		}
		return nil
	})
}

// watchIdle waits for two seconds, so that the commands of the processes' start are over, and then
// watches the server.
func watchIdle(ctx context.Context, e *env, s *redisServer) (serverCost, error) {
	if err := sleepUntil(ctx, time.Now().Add(2*time.Second)); err != nil {
		return serverCost{}, err
	}
	from, err := s.usage(ctx)
	if err != nil {
		return serverCost{}, err
	}
	e.say("watching them do nothing for %v", idleWindow(e.sizes))
	if err := sleepUntil(ctx, from.at.Add(idleWindow(e.sizes))); err != nil {
		return serverCost{}, err
	}
	to, err := s.usage(ctx)
	return cost(from, to, true), err
}
