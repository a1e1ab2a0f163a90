package diskstore

import (
	"context"
	"log/slog"
	"time"

	"github.com/punctualmq/punctual/diskstore/internal/writer"
)

// Maintenance deletes acked messages by the thousand, writes down watermarks and the clock, and
// removes what is past its retention. It has the store's clock follow the machine's, and moves what
// a step of the clock moves. It reserves lease tokens before they are used up, and replaces full
// segments of the claim log. As long as lease tokens are left, no answer depends on when
// maintenance runs. But where the clock starts again after a power cut does (clock.go).

const (
	maintenanceInterval = time.Second
	watermarkInterval   = 10 * time.Second // how often watermarks and the clock are written
	watermarksLimit     = 1000             // how many watermarks one transaction writes at most
)

// runMaintenance is maintenance's goroutine; it ends with the store.
func (s *Store) runMaintenance() {
	ticker := time.NewTicker(maintenanceInterval)
	defer ticker.Stop()
	marked := time.Now()
	for {
		select {
		case <-s.state.Ended():
			return
		case <-ticker.C:
		case <-s.maintenanceKick:
		}
		withMarks := time.Since(marked) >= watermarkInterval
		if withMarks {
			marked = time.Now()
		}
		if err := s.maintain(withMarks); err != nil && s.state.Usable() == nil {
			s.state.LogSeldom(slog.LevelWarn, "maintenance failed and will be tried again", "error", err)
		}
	}
}

// kickMaintenance has maintenance run now, and not only at its next tick.
func (s *Store) kickMaintenance() {
	select {
	case s.maintenanceKick <- struct{}{}:
	default:
	}
}

func (s *Store) maintain(withMarks bool) error {
	ctx := context.Background()
	s.db.CountUnwritten() // because pushes may be refused until the database has written its log into tables
	full, clockLags := s.claims.Due()
	if full {
		if err := s.replaceFullSegment(ctx); err != nil {
			return err
		}
	}
	if err := s.writer.DeleteAcked(ctx); err != nil {
		return err
	}
	s.clock.Now() // because nobody else may read the clock for a while, and the last readings decide whether a step is due
	if err := s.followClock(ctx); err != nil {
		return err
	}
	unmoved, err := s.carryOn(ctx)
	if err != nil {
		return err
	}
	if withMarks || s.index.TokensLow() || clockLags {
		if err := s.writeWatermarks(ctx); err != nil {
			return err
		}
	}
	more, err := s.sweep(ctx)
	if (more || unmoved) && err == nil {
		s.kickMaintenance()
	}
	return err
}

// writeWatermarks writes watermarks and the clock, and reserves lease tokens if they run short. It
// writes nothing when lease tokens suffice, no message was pushed, moved or removed since the last
// time, and no time was given out that a power cut would take back.
func (s *Store) writeWatermarks(ctx context.Context) error {
	for {
		if more, err := s.writeSomeWatermarks(ctx); err != nil || !more {
			return err
		}
	}
}

// writeSomeWatermarks makes one transaction of saveWatermarks, and tells whether there is more to
// write.
func (s *Store) writeSomeWatermarks(ctx context.Context) (more bool, err error) {
	tx, err := s.writer.Begin(ctx)
	if err != nil {
		return false, err
	}
	defer tx.Close(&err)
	if s.db.NextNumber() == s.watermarksAt && !s.index.TokensLow() && !s.db.HasStale() && s.claims.ClockLogged() <= s.db.Clock() {
		return false, nil
	}
	more = s.saveWatermarks(tx, watermarksLimit)
	return more, tx.Commit(ctx)
}

// saveWatermarks adds the clock and up to limit watermarks to a transaction, and tells whether
// there is more to write. Acked messages are deleted first, because a watermark does not pass them
// while a power cut may still take the ack back. While there are more of them than one transaction
// deletes, saveWatermarks adds no watermark. A deletion is durable no later than the watermark that
// passes the message, because transactions become durable in their order.
func (s *Store) saveWatermarks(tx *writer.Tx, limit int) (more bool) {
	if tx.DeleteAcked() {
		return true
	}
	s.watermarksAt = s.db.NextNumber()
	tx.Maintenance().SetClock()
	stale, more := s.db.Stale(limit)
	for _, t := range stale {
		if p := s.topics.Get(t.Name()).Memory.Lowest(tx.Ms); p != t.Lowest() {
			tx.Maintenance().SetLowest(t, p)
		}
	}
	return more
}

// replaceFullSegment replaces the segments of the claim log, whether full or not, by one with what
// is still needed.
func (s *Store) replaceFullSegment(ctx context.Context) error {
	return s.claims.Replace(s.index.Leases, func() error { return s.writer.Barrier(ctx) })
}
