package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// These scenarios measure lives on PostgreSQL while somebody holds a snapshot, as a report or a
// dump does. Until the snapshot is released, VACUUM cannot remove rows that were updated or deleted
// since. A queue updates and deletes rows all the time, so a claim that has to pass those rows
// takes longer with every minute, and fewer messages are claimed than are pushed. So rate and
// claims are noted for each part of the round, and not only for the whole of it.

const (
	// heldRate is how many messages a second are pushed at most. heldBatch is how many are in each
	// push, and at most in each claim.
	heldRate, heldBatch = 5_000, 100
	// heldParts is how many parts of the round have figures of their own.
	heldParts = 10
)

var heldSystems = []contender{{sysPunctual, ""}, {sysRiver, ""}}

func heldName(system string) string { return "postgres-held/" + system }

func heldScenarios() []scenario {
	var all []scenario
	for _, c := range heldSystems {
		all = append(all, scenario{
			name: heldName(c.system), about: fmt.Sprintf("PostgreSQL: lives and claims beside a held snapshot, %s", systemLabel(c.system)), maxRounds: 1,
			takes: func(z sizes) time.Duration { return z.PostgresHeld + 10*time.Second },
			run:   func(ctx context.Context, e *env) error { return heldPostgres(ctx, e, c.system) },
		})
	}
	return all
}

func heldPostgres(ctx context.Context, e *env, system string) error {
	return e.withPostgres(ctx, func(s *postgresServer) (err error) {
		sys, err := openPostgresSystem(ctx, system, s)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, sys.close()) }()
		own, ok := sys.(lifeSystem)
		if !ok {
			return fmt.Errorf("%s does not claim in batches", system)
		}
		switch sys := sys.(type) {
		case *punctualOnPostgres:
			sys.polls = true
		case *riverSystem:
			sys.atOnce = true
		}
		warm := &lives{sys: own, batch: heldBatch, enough: func(int64) bool { return true }, claimed: func(time.Duration) {}}
		if _, err := warm.run(ctx); err != nil { // unmeasured lives, by which the server makes its plans
			return err
		}
		held, err := s.holdSnapshot(ctx)
		if err != nil {
			return err
		}
		err = heldLives(ctx, e, s, own)
		if err == nil {
			err = held.check(ctx)
		}
		return errors.Join(err, held.release(), expectPending(ctx, sys, 0))
	})
}

// heldLives takes messages through their lives, as many a second as heldRate and the system allow,
// and notes the course of the round.
func heldLives(ctx context.Context, e *env, s *postgresServer, sys lifeSystem) error {
	e.say("a snapshot is held for %v", e.sizes.PostgresHeld)
	before, err := s.usage(ctx)
	if err != nil {
		return err
	}
	c := newCourse(e.sizes.PostgresHeld, time.Now())
	l := &lives{
		sys: sys, batch: heldBatch, rate: heldRate, claimed: func(took time.Duration) { c.claimed(time.Now(), took) },
		enough: func(done int64) bool {
			if part, ended := c.doneBy(time.Now(), done); ended {
				e.say("%d messages after %v", done, c.endOf(part).Round(time.Second))
			}
			return time.Since(c.begin) >= c.lasts
		},
	}
	n, err := l.run(ctx)
	if err != nil {
		return err
	}
	e.out.set("messages", float64(n))
	c.note(e.out)
	var size int64
	if err := s.pool.QueryRow(ctx, "select pg_database_size(current_database())").Scan(&size); err != nil {
		return err
	}
	e.out.set("database_bytes", float64(size))
	return s.note(ctx, e.out, "", before, n)
}

// course records what happens in each part of a round. Its methods are called by one goroutine at a
// time.
type course struct {
	begin  time.Time
	lasts  time.Duration
	parts  [heldParts]coursePart
	done   int64 // how many lives were done at the latest call of doneBy
	latest int   // the part in which the latest call of doneBy was that came within the round
}

type coursePart struct {
	done   int64                   // lives finished in the part
	claims *hdrhistogram.Histogram // microseconds of each claim that found messages
}

func newCourse(lasts time.Duration, begin time.Time) *course {
	c := &course{begin: begin, lasts: lasts}
	for i := range c.parts {
		c.parts[i].claims = newHistogram()
	}
	return c
}

// at returns the part into which now falls. ok is false after the end of the round.
func (c *course) at(now time.Time) (part int, ok bool) {
	part = int(now.Sub(c.begin) * heldParts / c.lasts)
	return part, part < heldParts
}

// endOf returns how long after the begin of the round a part ends.
func (c *course) endOf(part int) time.Duration { return c.lasts * time.Duration(part+1) / heldParts }

func (c *course) claimed(now time.Time, took time.Duration) {
	if part, ok := c.at(now); ok {
		_ = c.parts[part].claims.RecordValue(min(took, time.Hour).Microseconds()) // no error, because the histogram takes up to an hour
	}
}

// doneBy notes how many lives are done in all at a time. ended is true if this call is the first in
// a later part than the call before, and part is then the part of the call before.
func (c *course) doneBy(now time.Time, done int64) (part int, ended bool) {
	was := c.latest
	if p, ok := c.at(now); ok {
		c.parts[p].done += done - c.done
		c.latest = p
	}
	c.done = done
	return was, c.latest > was
}

// note notes the curves of rate and claims, with a point for each part, and also the values of the
// first and of the last part.
func (c *course) note(out *Result) {
	for i := range c.parts {
		p, end := &c.parts[i], c.endOf(i)
		values := map[string]float64{
			"rate":         float64(p.done) / (c.lasts / heldParts).Seconds(),
			"claim_p50_ms": float64(p.claims.ValueAtQuantile(50)) / 1000,
			"claim_p99_ms": float64(p.claims.ValueAtQuantile(99)) / 1000,
		}
		for name, v := range values {
			out.add(name, end.Seconds(), v)
			switch i {
			case 0:
				out.set("first_"+name, v)
			case heldParts - 1:
				out.set("last_"+name, v)
			}
		}
	}
}

// heldTable has a row for each part of the round, with three columns for each system. Below it
// stands heldCost.
func heldTable(r run) string {
	rounds := make([]Result, len(heldSystems))
	head, rule := "| with the snapshot held for |", "|--:|"
	for i, c := range heldSystems {
		for _, res := range r.results {
			if res.Scenario == heldName(c.system) && res.Error == "" {
				rounds[i] = res
			}
		}
		head += fmt.Sprintf(" %s, lives/s | claim p50 ms | p99 ms |", systemLabel(c.system))
		rule += "--:|--:|--:|"
	}
	text := head + "\n" + rule + "\n"
	for part := range heldParts {
		row, after := "", "tenth "+strconv.Itoa(part+1)
		for _, res := range rounds {
			for _, name := range []string{"rate", "claim_p50_ms", "claim_p99_ms"} {
				points := res.Series[name]
				if part >= len(points) {
					row += " not measured |"
					continue
				}
				after = time.Duration(points[part].X * float64(time.Second)).Round(100 * time.Millisecond).String()
				row += " " + digits(points[part].Y) + " |"
			}
		}
		text += "| " + after + " |" + row + "\n"
	}
	return text + heldCost(r)
}

// heldCost returns the table of what the whole round of each system has cost.
func heldCost(r run) string {
	var rows []row
	for _, c := range heldSystems {
		rows = append(rows, row{systemLabel(c.system), heldName(c.system)})
	}
	return "\n" + scenarioTable(r, "in the whole round", rows,
		value("lives", "messages", func(v float64) string { return commas(int64(v)) }),
		value("database MB in the end", "database_bytes", inMB),
		value("server's CPU µs per life", "server_us_per_message", digits),
		value("bytes of WAL", "wal_bytes_per_message", digits),
		othersColumn)
}
