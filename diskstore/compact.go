package diskstore

import (
	"context"
	"log/slog"
	"time"

	"github.com/punctualmq/punctual/diskstore/internal/database"
	"github.com/punctualmq/punctual/diskstore/internal/writer"
)

const reclaimInterval = time.Minute

// runReclaimer is the reclaimer's goroutine; it ends with the store.
func (s *Store) runReclaimer() {
	ctx := s.state.Context()
	ticker := time.NewTicker(maintenanceInterval)
	defer ticker.Stop()
	reclaimer, looked := s.db.NewReclaimer(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		free, err := s.owned.FreeSpace()
		low := err == nil && free < 2*s.opt.ReserveBytes // pushes are refused, or will be soon
		if !low && time.Since(looked) < reclaimInterval {
			continue
		}
		looked = time.Now()
		if err := s.reclaim(ctx, reclaimer, s.db.Worth(low)); err != nil && s.state.Usable() == nil {
			s.state.LogSeldom(slog.LevelWarn, "giving space back failed and will be tried again", "error", err)
		}
	}
}

// reclaim gives back the space of what was deleted. It writes the watermarks first, because they
// tell where that is.
func (s *Store) reclaim(ctx context.Context, r *database.Reclaimer, least uint64) error {
	return r.Run(ctx, least, func(ctx context.Context, look func()) error {
		if err := s.writeWatermarks(ctx); err != nil {
			return err
		}
		return s.writer.Locked(ctx, func(*writer.Tx) error {
			look()
			return nil
		})
	})
}
