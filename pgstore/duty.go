package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/punctualmq/punctual"
)

const (
	// tickEvery is how often the tables are checked, and the clock is written down if it has moved.
	tickEvery = time.Second
	// checkEvery is how often the server's settings are checked, and what is past its retention is removed.
	checkEvery = 30 * time.Second
	// restored is how far the clock in the tables may go back before the store stops. With synchronous_commit=off a crash of the server
	// takes back up to three wal_writer_delay, of 10 s at most each.
	restored = 30 * time.Second
	// sweepItems bounds the rows of one kind that one statement of a sweep or a purge removes.
	sweepItems = 5000
	// writeClockTimeout bounds how long Close waits until the server has written down the clock.
	writeClockTimeout = 2 * time.Second
)

// watch checks the tables each tickEvery, and each checkEvery checks the server and sweeps, until Close.
func (s *Store) watch() {
	every := s.opt.checkEvery
	if every == 0 {
		every = checkEvery
	}
	tick, check := time.NewTicker(tickEvery), time.NewTicker(every)
	defer tick.Stop()
	defer check.Stop()
	for {
		var err error
		select {
		case <-tick.C:
			err = s.checkTables(s.life)
		case <-check.C:
			if err = s.checkServer(s.life); err == nil {
				err = s.sweep(s.life)
			}
		case <-s.closing:
			return
		}
		if err != nil && s.life.Err() == nil {
			s.opt.Logger.Debug("postgres store: a check of the server failed", "error", err)
		}
	}
}

// checkTables checks that the tables are still those that were opened, and stops the store if they are not. Through the table store it also
// exchanges clocks with other processes.
func (s *Store) checkTables(ctx context.Context) error {
	d, err := s.readStore(ctx)
	if err != nil {
		return err
	}
	switch last := s.clock.keptMicros(); {
	case d.identity != s.data.identity:
		return s.calls.Fail(fmt.Errorf("the tables in schema %s are those of another store than was opened: %w", s.opt.Schema, punctual.ErrStoreFailed))
	case d.timeline == s.data.timeline && d.micros < last-restored.Microseconds():
		return s.calls.Fail(fmt.Errorf("the tables in schema %s are older than what this process has seen, as after a backup was restored: open the store again: %w", s.opt.Schema, punctual.ErrStoreFailed))
	}
	if d.timeline != s.data.timeline {
		// A promotion begins another timeline. The clock may have gone back by what the standby did not have, and keepClock writes it down
		// anew.
		s.clock.forgetKept()
	}
	s.data = d
	s.clock.kept(d.micros)
	return s.keepClock(ctx, d.server)
}

// keepClock writes down how far the clock is, if it has moved by tickEvery since any process last wrote it down. server is the server's own
// clock. While that is behind, the store's clock pauses. Then keepClock writes down any difference, so that all processes pause at the time
// of the one that is ahead.
func (s *Store) keepClock(ctx context.Context, server int64) error {
	at := s.clock.latestMicros()
	ahead := tickEvery.Microseconds()
	if server < at-time.Millisecond.Microseconds() {
		ahead = 1
	}
	if at < s.clock.keptMicros()+ahead {
		return nil
	}
	return s.writeClockAt(ctx, at)
}

func (s *Store) writeClockAt(ctx context.Context, at int64) error {
	err := s.write(ctx, func() *step { return s.step().add("store_clock", []any{at}, nil) })
	if err == nil {
		s.clock.kept(at)
	}
	return err
}

// writeClock writes the clock down for the next process. When that fails, the next process begins with what was written down before, or
// with the server's own time if that is later.
func (s *Store) writeClock() {
	ctx, end := context.WithTimeout(context.Background(), writeClockTimeout)
	defer end()
	if err := s.writeClockAt(ctx, s.clock.latestMicros()); err != nil {
		s.opt.Logger.Debug("the store's clock was not written down", "error", err)
	}
}

// sweep removes what no answer depends on any more: dead messages, finished records and remembered IDs past their retention, and the
// rows of deleted topics.
func (s *Store) sweep(ctx context.Context) error {
	expired, err := s.numbers(ctx, "topics_past_retention", s.reading())
	if err != nil {
		return err
	}
	for _, number := range expired {
		if err := s.sweepPastRetention(ctx, number); err != nil {
			return err
		}
	}
	dropped, err := s.numbers(ctx, "topics_dropped", nil)
	if err != nil {
		return err
	}
	for _, number := range dropped {
		if err := s.sweepTopic(ctx, number); err != nil {
			return err
		}
	}
	return nil
}

// numbers reads the numbers of topics that the statement returns.
func (s *Store) numbers(ctx context.Context, statement string, args []any) (found []int32, err error) {
	err = s.read(ctx, func() *step {
		found = nil
		return s.step().add(statement, args, func(rows scanner) error {
			var n int32
			err := rows.Scan(&n)
			found = append(found, n)
			return err
		})
	})
	return found, err
}

// sweepPastRetention removes the dead messages, finished records and remembered IDs of a topic that are past their retention.
func (s *Store) sweepPastRetention(ctx context.Context, number int32) error {
	for _, sweep := range []string{"past_retention", "finished_past_retention"} {
		if err := s.repeat(ctx, sweep, func() []any { return s.writing(number, sweepItems) }); err != nil {
			return err
		}
	}
	return nil
}

// sweepTopic removes the messages and finished records of a deleted topic, and then forgets the topic.
func (s *Store) sweepTopic(ctx context.Context, number int32) error {
	for _, sweep := range []string{"topic_sweep", "finished_sweep"} {
		if err := s.repeat(ctx, sweep, func() []any { return []any{number, sweepItems} }); err != nil {
			return err
		}
	}
	return s.write(ctx, func() *step { return s.step().add("topic_swept", []any{number}, nil) })
}

// repeat runs a statement that removes some rows, each time in a transaction of its own, until it finds none.
func (s *Store) repeat(ctx context.Context, statement string, args func() []any) error {
	for {
		var n int64
		err := s.write(ctx, func() *step {
			x := s.step()
			x.Queue(s.sql.text(statement), args()...).Query(func(rows pgx.Rows) error {
				rows.Close()
				n = rows.CommandTag().RowsAffected()
				return rows.Err()
			})
			return x
		})
		if err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
	}
}
