package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// These scenarios measure the store on PostgreSQL, in most of them beside rows with SKIP LOCKED or
// beside River, each on a fresh server. This file has scheduling, the drain of a backlog by one
// process and by eight, and lateness at 2,000 messages a second. Whole lives are in
// postgres_life.go, and what a held snapshot changes is in postgres_held.go.

// postgresSystems are the systems whose drain by one process is measured, with the prefixes of
// their values.
var postgresSystems = []contender{{sysPunctual, ""}, {sysRows, "rows_"}, {sysRiver, "river_"}, {sysRiverFast, "river_fast_"}}

// postgresSchedules are the ways of scheduling: how many callers there are, and how many messages
// each pushes in one call.
var postgresSchedules = []struct{ callers, batch int }{{1, 1}, {64, 1}, {1, 1000}}

const (
	postgresDrain    = "postgres-drain/64"
	postgresFleet    = "postgres-drain/8x64"
	postgresLateness = "postgres-lateness/2k"
	postgresRate     = 2000 // messages a second of postgresLateness
)

func postgresScheduleName(callers, batch int) string {
	if batch == 1 {
		return fmt.Sprintf("postgres-schedule/single-%d", callers)
	}
	return fmt.Sprintf("postgres-schedule/batch-%d", batch)
}

func postgresScenarios() []scenario {
	var all []scenario
	for _, x := range postgresSchedules {
		all = append(all, scenario{
			name: postgresScheduleName(x.callers, x.batch), about: fmt.Sprintf("PostgreSQL: %s, beside rows and River", callersLabel(x.callers, x.batch)),
			takes: func(z sizes) time.Duration { return 4*z.RedisSpan + 12*time.Second },
			run:   func(ctx context.Context, e *env) error { return schedulePostgres(ctx, e, x.callers, x.batch) },
		})
	}
	all = append(all,
		scenario{
			name: postgresDrain, about: "PostgreSQL: a backlog drained by 64 handlers, beside rows, River, and River with " + commas(fastWorkers) + " workers", maxRounds: 2,
			takes: func(z sizes) time.Duration {
				return 20*time.Second + time.Duration(z.RedisBurst)*600*time.Microsecond
			}, run: drainPostgres,
		},
		scenario{
			name: postgresFleet, about: "PostgreSQL: a backlog drained by 8 processes with 64 handlers each, beside River with " + commas(fastWorkers) + " workers each", maxRounds: 2,
			takes: func(z sizes) time.Duration {
				return 20*time.Second + time.Duration(z.RedisBurst)*300*time.Microsecond
			}, run: drainPostgresByMany,
		},
		scenario{
			name: postgresLife, about: "PostgreSQL: whole lives in batches of 1000, beside rows",
			takes: func(z sizes) time.Duration { return 2*z.RedisSpan + 10*time.Second }, run: lifePostgres,
		},
		scenario{
			name: postgresSize, about: "PostgreSQL: the table after many lives", maxRounds: 1,
			takes: func(z sizes) time.Duration {
				return 10*time.Second + time.Duration(z.PostgresLives)*60*time.Microsecond
			}, run: sizePostgres,
		},
		scenario{
			name: postgresLateness, about: "PostgreSQL: lateness at 2,000 messages a second", maxRounds: 2,
			takes: func(z sizes) time.Duration { return z.RedisWindow + 10*time.Second }, run: latenessPostgres,
		})
	return append(all, heldScenarios()...)
}

// postgresSchedulers are the systems whose scheduling is measured, with the prefixes of their
// values. sysRiverFast is left out, because it schedules as sysRiver does.
var postgresSchedulers = []contender{{sysPunctual, ""}, {sysChosen, "chosen_"}, {sysRows, "rows_"}, {sysRiver, "river_"}}

// eachOnPostgres runs f with one system after the other, each on a fresh server.
func (e *env) eachOnPostgres(ctx context.Context, systems []contender, f func(s *postgresServer, sys postgresSystem, c contender) error) error {
	for _, c := range systems {
		err := e.withPostgres(ctx, func(s *postgresServer) error {
			sys, err := openPostgresSystem(ctx, c.system, s)
			if err != nil {
				return err
			}
			return errors.Join(f(s, sys, c), sys.close())
		})
		if err != nil {
			return fmt.Errorf("%s: %w", c.system, err)
		}
	}
	return nil
}

// timesRiver notes how many times as fast as River Punctual is. Where sysRiver and sysRiverFast
// were measured, the faster one counts.
func (r *Result) timesRiver() {
	r.set("times_river", r.Values["rate"]/max(r.Values["river_rate"], r.Values["river_fast_rate"]))
}

func schedulePostgres(ctx context.Context, e *env, callers, batch int) error {
	err := e.eachOnPostgres(ctx, postgresSchedulers, func(s *postgresServer, sys postgresSystem, c contender) error {
		e.say("%s for %v", c.system, e.sizes.RedisSpan)
		var seq atomic.Uint32
		warm := farLetters(batch, &seq) // an unmeasured push, by which the server makes its plans
		if err := sys.push(ctx, 0, warm); err != nil {
			return err
		}
		before, err := s.usage(ctx)
		if err != nil {
			return err
		}
		t, err := flatOut(ctx, callers, e.sizes.RedisSpan, func(ctx context.Context, who int) (int, error) {
			return batch, sys.push(ctx, who, farLetters(batch, &seq))
		})
		if err != nil {
			return err
		}
		e.out.set(c.prefix+"rate", t.rate())
		e.out.set(c.prefix+"cpu_us_per_message", float64(t.cpu.Microseconds())/float64(t.items.Load()))
		if err := s.note(ctx, e.out, c.prefix, before, t.items.Load()); err != nil {
			return err
		}
		return expectPending(ctx, sys, t.items.Load()+int64(batch))
	})
	e.out.timesRiver()
	return err
}

// handled records the letters that the handlers of one process get.
type handled struct {
	want int64
	late *recorder     // how late handlers started; an early one counts as 0
	done chan struct{} // closed when want letters were handled

	mu          sync.Mutex
	seen        map[uint32]bool // guarded by mu: the numbers of the letters handled
	first, last time.Time       // guarded by mu: when the first and the last handler started, without repetitions
	early       int64           // guarded by mu: deliveries before the due time
	twice       int64           // guarded by mu: deliveries beyond the first of a letter
	bad         error           // guarded by mu: the error of the latest body that is not that of a letter
}

func newHandled(want int64) *handled {
	return &handled{want: want, late: newRecorder(), done: make(chan struct{}), seen: make(map[uint32]bool, want)}
}

func (h *handled) handle(body []byte) {
	now := time.Now()
	l, err := parseLetter(body)
	h.late.record(max(0, now.Sub(l.due)))
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.bad = err
	}
	if now.Before(l.due) {
		h.early++
	}
	if h.seen[l.seq] {
		h.twice++
		return
	}
	if len(h.seen) == 0 {
		h.first = now
	}
	h.seen[l.seq], h.last = true, now
	if int64(len(h.seen)) == h.want {
		close(h.done)
	}
}

// await waits until want letters were handled, for five minutes at most.
func (h *handled) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	select {
	case <-h.done:
		return nil
	case <-ctx.Done():
		h.mu.Lock()
		defer h.mu.Unlock()
		return fmt.Errorf("%d of %d messages were handled (P1): %w", len(h.seen), h.want, context.Cause(ctx))
	}
}

// drainPostgres schedules a backlog that is due, and then starts the handlers in this process. The
// rate counts from the first delivery. River as shipped gets a twentieth of the messages, because
// it is much slower than the others.
func drainPostgres(ctx context.Context, e *env) error {
	err := e.eachOnPostgres(ctx, postgresSystems, func(s *postgresServer, sys postgresSystem, c contender) error {
		n := int64(e.sizes.RedisBurst)
		if c.system == sysRiver {
			n = max(1, n/20)
		}
		e.say("%s: scheduling %d messages", c.system, n)
		before, err := s.usage(ctx)
		if err != nil {
			return err
		}
		if err := fillFor(ctx, sys, sysPunctual, n, ceilMillis(time.Now())); err != nil {
			return err
		}
		e.say("%s: draining", c.system)
		h := newHandled(n)
		cpu, err := cpuTime()
		if err != nil {
			return err
		}
		stop, err := sys.consume(ctx, h.handle)
		if err != nil {
			return err
		}
		if err := errors.Join(h.await(ctx), stop()); err != nil {
			return err
		}
		used, err := cpuTime()
		if err != nil {
			return err
		}
		e.out.set(c.prefix+"rate", float64(n)/h.last.Sub(h.first).Seconds())
		e.out.set(c.prefix+"cpu_us_per_message", float64((used-cpu).Microseconds())/float64(n))
		e.out.set(c.prefix+"repeated", float64(h.twice))
		if err := s.note(ctx, e.out, c.prefix, before, n); err != nil { // since before the push, so for whole lives
			return err
		}
		return errors.Join(h.bad, expectPending(ctx, sys, 0))
	})
	e.out.timesRiver()
	return err
}

// fleetProcesses is how many consumer processes drainPostgresByMany starts.
const fleetProcesses = 8

// drainPostgresByMany schedules a backlog that is due, and then starts the consumer processes. The
// rate counts from the first delivery.
func drainPostgresByMany(ctx context.Context, e *env) error {
	for _, c := range []contender{{sysPunctual, ""}, {sysRiverFast, "river_fast_"}} {
		err := e.withPostgres(ctx, func(s *postgresServer) error {
			sys, err := openPostgresSystem(ctx, c.system, s)
			if err != nil {
				return err
			}
			return errors.Join(drainByFleet(ctx, e, s, sys, c), sys.close())
		})
		if err != nil {
			return fmt.Errorf("%s: %w", c.system, err)
		}
	}
	e.out.set("times_river", e.out.Values["rate"]/e.out.Values["river_fast_rate"])
	return nil
}

func drainByFleet(ctx context.Context, e *env, s *postgresServer, sys postgresSystem, c contender) error {
	n := int64(e.sizes.RedisBurst)
	e.say("%s: scheduling %d messages", c.system, n)
	before, err := s.usage(ctx)
	if err != nil {
		return err
	}
	if err := fillFor(ctx, sys, sysPunctual, n, ceilMillis(time.Now())); err != nil {
		return err
	}
	f, err := e.startFleet(ctx, fleetProcesses, consumerTask{System: postgresConsumer(c.system), Addr: s.URL("postgres"), Slots: postgresHands})
	if err != nil {
		return err
	}
	e.say("%s: draining", c.system)
	cpu, err := joinStop(f, f.await(ctx, n))
	if err != nil {
		return err
	}
	list, err := f.deliveries()
	if err != nil {
		return err
	}
	got, err := check(n, list)
	if err != nil {
		return err
	}
	e.out.set(c.prefix+"rate", float64(n)/got.last.Sub(got.first).Seconds())
	e.out.set(c.prefix+"cpu_us_per_message", float64(cpu.Microseconds())/float64(n))
	e.out.set(c.prefix+"repeated", float64(got.twice))
	if c.system == sysPunctual {
		err = got.strict()
	}
	return errors.Join(err, s.note(ctx, e.out, c.prefix, before, n), expectPending(ctx, sys, 0))
}

// latenessPostgres pushes messages that are due evenly and notes how late their handlers start.
// River is not measured, because its scheduler looks for due jobs only every 5 s.
func latenessPostgres(ctx context.Context, e *env) error {
	return e.withPostgres(ctx, func(s *postgresServer) (err error) {
		sys, err := openPostgresSystem(ctx, sysPunctual, s)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, sys.close()) }()
		n := int64(e.sizes.RedisWindow.Seconds() * postgresRate)
		h := newHandled(n)
		stop, err := sys.consume(ctx, h.handle)
		if err != nil {
			return err
		}
		before, err := s.usage(ctx)
		if err != nil {
			return errors.Join(err, stop())
		}
		behind, err := pushEvenly(ctx, sys, n, postgresRate)
		if err == nil {
			err = h.await(ctx)
		}
		if err = errors.Join(err, stop()); err != nil {
			return err
		}
		e.out.setQuantiles("start", h.late.merged())
		e.out.set("overdue_share", float64(behind)/float64(n))
		e.out.set("early", float64(h.early))
		e.out.set("repeated", float64(h.twice))
		if h.early > 0 {
			return fmt.Errorf("%d messages were delivered early (P2)", h.early)
		}
		return errors.Join(h.bad, s.note(ctx, e.out, "", before, n))
	})
}
