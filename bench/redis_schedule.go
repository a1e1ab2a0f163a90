package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// These scenarios measure how many messages a second can be scheduled on Redis, due 1 to 25 hours
// ahead. The reference and, where messages are pushed one by one, asynq are measured in turn with
// Punctual, each time on a fresh server.

// redisSchedule is a way of scheduling: how many callers there are, how many messages each pushes
// in one call, and when the server syncs.
type redisSchedule struct {
	callers, batch int
	fsync          string
}

func (x redisSchedule) name() string {
	kind := fmt.Sprintf("batch-%d", x.batch)
	if x.batch == 1 {
		kind = fmt.Sprintf("single-%d", x.callers)
	}
	return "redis-schedule/" + kind + suffix(x.fsync)
}

// suffix returns the end of a scenario's name, which tells a scenario with appendfsync always from
// one with everysec.
func suffix(fsync string) string {
	if fsync == always {
		return "-always"
	}
	return ""
}

func redisSchedules() []redisSchedule {
	var all []redisSchedule
	for _, fsync := range []string{everySecond, always} {
		all = append(all, redisSchedule{1, 1, fsync}, redisSchedule{64, 1, fsync}, redisSchedule{1, 100, fsync}, redisSchedule{1, 1000, fsync})
	}
	return all
}

func redisScheduleScenarios() []scenario {
	var all []scenario
	for _, x := range redisSchedules() {
		all = append(all, scenario{
			name: x.name(), about: fmt.Sprintf("%s, appendfsync %s", callersLabel(x.callers, x.batch), x.fsync),
			takes: func(z sizes) time.Duration { return 6*z.RedisSpan + time.Second }, run: x.run,
		})
	}
	return all
}

// run measures the systems one after the other: Punctual, asynq and Punctual with chosen IDs once
// each, a lone caller also with a context that can never end, and the references twice for half the
// time, before and after those. So if the machine becomes slower meanwhile, the references become
// slower too.
func (x redisSchedule) run(ctx context.Context, e *env) error {
	whole, half := e.sizes.RedisSpan, e.sizes.RedisSpan/2
	pairs, lists := &pushing{redisSchedule: x, system: sysRaw}, &pushing{redisSchedule: x, system: sysLists}
	// lists has one caller, which pushes in one list as many messages as all callers of x together
	// push at one time.
	lists.callers, lists.batch = 1, x.callers*x.batch
	// piped pushes as many messages at one time as lists, but with a pair of commands for each of
	// them.
	piped := &pushing{redisSchedule: lists.redisSchedule, system: sysRaw}
	own, rival := &pushing{redisSchedule: x, system: sysPunctual}, &pushing{redisSchedule: x, system: sysAsynq}
	chosen := &pushing{redisSchedule: x, system: sysChosen}
	endless := &pushing{redisSchedule: x, system: sysPunctual, endless: true}
	steps := []func() error{
		func() error { return pairs.measure(ctx, e, half) },
		func() error { return lists.measure(ctx, e, half) },
		func() error { return piped.measure(ctx, e, half) },
		func() error { return own.measure(ctx, e, whole) },
		func() error { return rival.measure(ctx, e, whole) },
		func() error { return endless.measure(ctx, e, whole) },
		func() error { return chosen.measure(ctx, e, whole) },
		func() error { return pairs.measure(ctx, e, half) },
		func() error { return lists.measure(ctx, e, half) },
		func() error { return piped.measure(ctx, e, half) },
	}
	nothing := func() error { return nil }
	if x.callers > 1 || x.batch > 1 { // only a call that comes alone is made in another way
		steps[5] = nothing
	}
	if x.batch > 1 { // asynq cannot push many messages in one call
		steps[4] = nothing
	}
	if x.callers == 1 { // with one caller piped would be the same as pairs
		steps[2], steps[len(steps)-1] = nothing, nothing
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	x.note(e.out, pairs, lists, piped, own, rival)
	chosen.note(e.out, "chosen_")
	if endless.items > 0 {
		endless.note(e.out, "endless_")
		e.out.set("endless_times_asynq", endless.rate()/rival.rate())
	}
	e.out.set("chosen_share", chosen.rate()/own.rate())
	return nil
}

func (x redisSchedule) note(out *Result, pairs, lists, piped, own, rival *pushing) {
	own.note(out, "")
	own.last.note(out)
	pairs.note(out, "raw_")
	lists.note(out, "lists_")
	out.set("ratio", own.rate()/pairs.rate())
	out.set("lists_ratio", own.rate()/lists.rate())
	if piped.items > 0 {
		piped.note(out, "piped_")
		out.set("piped_ratio", own.rate()/piped.rate())
	}
	if rival.items > 0 {
		rival.note(out, "asynq_")
		out.set("times_asynq", own.rate()/rival.rate())
	}
}

// pushing is a way of scheduling by one system, and the sums over its measurements.
type pushing struct {
	redisSchedule
	system  string
	endless bool // the callers' contexts can never end
	items   int64
	took    time.Duration
	cost    serverCost
	last    *tally // of the latest measurement
}

func (p *pushing) rate() float64 { return float64(p.items) / p.took.Seconds() }

func (p *pushing) note(out *Result, prefix string) {
	out.set(prefix+"rate", p.rate())
	out.setCost(prefix, p.cost, p.items)
}

// measure pushes to a fresh server until d is over, and checks that the server then has all
// messages.
func (p *pushing) measure(ctx context.Context, e *env, d time.Duration) error {
	e.say("%s for %v", p.system, d)
	return e.withRedis(ctx, p.fsync, func(s *redisServer) error {
		sys, err := openSystem(ctx, p.system, s, p.callers)
		if err != nil {
			return err
		}
		err = p.flatOut(ctx, s, sys, d)
		return errors.Join(err, sys.close())
	})
}

func (p *pushing) flatOut(ctx context.Context, s *redisServer, sys system, d time.Duration) error {
	from, err := s.usage(ctx)
	if err != nil {
		return err
	}
	var seq atomic.Uint32
	p.last, err = flatOut(ctx, p.callers, d, func(ctx context.Context, who int) (int, error) {
		if p.endless {
			ctx = context.WithoutCancel(ctx)
		}
		return p.batch, sys.push(ctx, who, farLetters(p.batch, &seq))
	})
	if err != nil {
		return err
	}
	to, err := s.usage(ctx)
	if err != nil {
		return err
	}
	p.items += p.last.items.Load()
	p.took += p.last.elapsed
	p.cost = p.cost.plus(cost(from, to, p.scripted()))
	return expectPending(ctx, sys, p.last.items.Load())
}

// scripted tells whether the system calls scripts, which only the references do not.
func (p *pushing) scripted() bool { return p.system != sysRaw && p.system != sysLists }

// farLetters returns n letters due 1 to 25 hours ahead. It takes their numbers from seq, so that
// callers that share seq never have the same number.
func farLetters(n int, seq *atomic.Uint32) []letter {
	now := time.Now()
	first := seq.Add(uint32(n)) - uint32(n)
	ls := make([]letter, n)
	for i := range ls {
		ls[i] = letter{first + uint32(i), ceilMillis(farDue(now))}
	}
	return ls
}

// expectPending returns an error unless a system has exactly n messages.
func expectPending(ctx context.Context, sys system, n int64) error {
	got, err := sys.pending(ctx)
	if err == nil && got != n {
		err = fmt.Errorf("%d messages are pending, and %d should be (P1)", got, n)
	}
	return err
}
