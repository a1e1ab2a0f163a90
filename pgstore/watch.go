package pgstore

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
)

const (
	// tickEvery is how often the tables are checked, and the clock is written down if it has moved.
	tickEvery = time.Second
	// checkEvery is how often the server's settings are checked, and how often what is past its
	// retention is removed.
	checkEvery = 30 * time.Second
	// restored is how far the clock in the tables may go back before the store stops. With
	// synchronous_commit=off a crash of the server takes back up to three wal_writer_delay, of 10 s
	// at most each.
	restored = 30 * time.Second
	// writeClockTimeout bounds how long Close waits until the server has written down the clock.
	writeClockTimeout = 2 * time.Second
)

// watch checks the tables each tickEvery, and the server each checkEvery, until Close.
func (s *Store) watch() {
	tick, check := time.NewTicker(tickEvery), time.NewTicker(cmp.Or(s.opt.checkEvery, checkEvery))
	defer tick.Stop()
	defer check.Stop()
	for {
		var err error
		select {
		case <-tick.C:
			err = s.checkTables(s.life)
		case <-check.C:
			err = s.given.checkServer(s.life)
		case <-s.closing:
			return
		}
		if err != nil && s.life.Err() == nil {
			s.opt.Logger.Debug("postgres store: a check of the server failed", "error", err)
		}
	}
}

// sweeps calls remover.sweep and healKeys every 30 s (checkEvery) until Close. It has a goroutine
// of its own, because a sweep may take minutes.
func (s *Store) sweeps() {
	check := time.NewTicker(cmp.Or(s.opt.checkEvery, checkEvery))
	defer check.Stop()
	var keys keyPlace
	for {
		select {
		case <-check.C:
		case <-s.closing:
			return
		}
		err := s.remover.sweep(s.life)
		if err == nil {
			keys, err = s.remover.healKeys(s.life, keys, s.opt.Logger)
		}
		if err != nil && s.life.Err() == nil {
			s.opt.Logger.Debug("postgres store: not all that is past its retention was removed, or not all keys were looked at", "error", err)
		}
	}
}

// checkTables checks that the tables are still those that were opened, and stops the store if they
// are not. Through the table store it also exchanges clocks with other processes.
func (s *Store) checkTables(ctx context.Context) error {
	d, err := s.db.readStore(ctx)
	if err != nil {
		return err
	}
	switch last := s.db.clock.keptMicros(); {
	case d.identity != s.data.identity:
		return s.calls.Fail(fmt.Errorf("the tables in schema %s are those of another store than was opened: %w", s.opt.Schema, punctual.ErrStoreFailed))
	case d.timeline == s.data.timeline && d.steps <= s.data.steps && d.micros < last-restored.Microseconds():
		return s.calls.Fail(fmt.Errorf("the tables in schema %s are older than what this process has seen, as after a backup was restored: open the store again: %w", s.opt.Schema, punctual.ErrStoreFailed))
	}
	if d.timeline != s.data.timeline {
		// A promotion begins another timeline. The clock may have gone back by what the standby did
		// not have, and keepClock writes it down anew.
		s.db.clock.forgetKept()
	}
	if d, err = s.db.currentEpoch(ctx, d); err != nil {
		return err
	}
	s.data = d
	s.db.clock.kept(d.micros, d.steps)
	if s.db.clock.rule.Due(s.db.clock.here(), time.UnixMicro(s.db.clock.latestMicros()).Sub(time.UnixMicro(d.server))) {
		return s.steps.followServer(ctx)
	}
	if !d.carried {
		s.steps.carryOver(d.clockSteps)
	}
	return s.db.keepClock(ctx, d.server)
}

// keepClock writes down how far the clock is, if it has moved by tickEvery since any process last
// wrote it down. server is the server's own clock. While that is behind, the store's clock pauses.
// Then keepClock writes down any difference, so that all processes pause at the time of the one
// that is ahead.
func (db *database) keepClock(ctx context.Context, server int64) error {
	latest, _ := db.clock.args()
	at := latest[0]
	ahead := tickEvery.Microseconds()
	if server < at-time.Millisecond.Microseconds() {
		ahead = 1
	}
	if at < db.clock.keptMicros()+ahead {
		return nil
	}
	return db.writeClockAt(ctx, at, latest[1])
}

// writeClockAt writes down the time at, which this process has heard after so many steps.
func (db *database) writeClockAt(ctx context.Context, at, steps int64) error {
	err := db.write(ctx, func() *step { return db.step().add("store_clock", []any{at, steps}, nil) })
	if err == nil {
		db.clock.wrote(at, steps)
	}
	return err
}

// writeClock writes the clock down for the next process. When that fails, the next process begins
// with what was written down before, or with the server's own time if that is later.
func (s *Store) writeClock() {
	ctx, end := context.WithTimeout(context.Background(), writeClockTimeout)
	defer end()
	latest, _ := s.db.clock.args()
	if err := s.db.writeClockAt(ctx, latest[0], latest[1]); err != nil {
		s.opt.Logger.Debug("the store's clock was not written down", "error", err)
	}
}
