package diskstore

import (
	"context"
	"time"

	"github.com/punctualmq/punctual/diskstore/internal/writer"
)

// Maintenance deletes acked messages by the thousand, writes down watermarks and the clock, and forgets what is past its
// retention. It keeps lease tokens in stock, and replaces full segments of the claim log. When maintenance runs matters for
// one thing alone: where the clock starts again after a power cut (clock.go).

const (
	maintenanceInterval = time.Second
	watermarkInterval   = 10 * time.Second // how often watermarks and the clock are written
	watermarksLimit     = 1000             // watermarks written in one transaction
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
			s.log.Warn("maintenance failed and will be tried again", "dir", s.dir, "error", err)
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
	full, clockLags := s.claims.Due()
	if full {
		if err := s.replaceFullSegment(ctx); err != nil {
			return err
		}
	}
	if err := s.writer.DeleteAcked(ctx); err != nil {
		return err
	}
	if withMarks || s.index.TokensLow() || clockLags {
		if err := s.writeWatermarks(ctx); err != nil {
			return err
		}
	}
	more, err := s.sweep(ctx)
	if more && err == nil {
		s.kickMaintenance()
	}
	return err
}

// writeWatermarks writes watermarks and the clock if there was anything to do since the last time. It
// also does so if a time was given out that a power cut would take.
func (s *Store) writeWatermarks(ctx context.Context) error {
	for {
		if more, err := s.writeSomeWatermarks(ctx); err != nil || !more {
			return err
		}
	}
}

// writeSomeWatermarks writes up to watermarksLimit watermarks, and tells whether there are more.
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

// saveWatermarks adds the clock and up to limit watermarks to a transaction, and tells whether there are more.
// Acked messages go first, since a watermark does not pass them: a power cut may still take the ack back.
func (s *Store) saveWatermarks(tx *writer.Tx, limit int) (more bool) {
	for tx.DeleteAcked() {
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

// replaceFullSegment replaces the segments of the claim log by one with what is still needed.
func (s *Store) replaceFullSegment(ctx context.Context) error {
	return s.claims.Replace(s.index.Leases, func() error { return s.writer.Barrier(ctx) })
}
