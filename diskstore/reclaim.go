package diskstore

import (
	"context"
	"time"
)

// What is deleted keeps its place on disk until a compaction drops it, and the database compacts
// only when it is written to. A store that is drained and then idle would keep its size, and a
// full disk would stay full however much is acked. So the reclaimer looks for stretches of keys in
// which nothing lives and has them compacted, which reads them once and writes next to nothing.
// What was deleted among messages that live is left to the database.

const (
	reclaimInterval = time.Minute
	reclaimBytes    = 64 << 20 // what a stretch must hold to be worth it,
	reclaimShare    = 4        // and which part of all tables
	reclaimLow      = 4 << 20  // the same when space is low
)

// stretch is a range of keys in which nothing lives.
type stretch struct{ from, to []byte }

// runReclaimer is the reclaimer's goroutine; it ends with the store.
func (s *Store) runReclaimer() {
	ctx, end := s.whileOpen()
	defer end()
	ticker := time.NewTicker(dutyInterval)
	defer ticker.Stop()
	left, looked := make(map[string]uint64), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		low := s.space.low()
		if !low && time.Since(looked) < reclaimInterval {
			continue
		}
		looked = time.Now()
		if err := s.reclaim(ctx, left, s.worthReclaiming(low)); err != nil && s.usable() == nil {
			s.log.Warn("giving space back failed and will be tried again", "dir", s.dir, "error", err)
		}
	}
}

// whileOpen is a context that ends when the store closes or fails.
func (s *Store) whileOpen() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	s.duties.Go(func() {
		select {
		case <-s.closing:
		case <-s.failed:
		case <-ctx.Done():
		}
		cancel()
	})
	return ctx, cancel
}

// worthReclaiming is how many bytes a stretch must hold to be compacted.
func (s *Store) worthReclaiming(low bool) uint64 {
	if low {
		return reclaimLow
	}
	return max(reclaimBytes, s.db.Metrics().DiskSpaceUsage()/reclaimShare)
}

// reclaim compacts the stretches that hold at least so many bytes in tables. left is what earlier
// compactions could not drop, by the beginning of the stretch, because something was still reading
// it; it is not tried again for that alone.
func (s *Store) reclaim(ctx context.Context, left map[string]uint64, least uint64) error {
	stretches, err := s.stretches(ctx)
	if err != nil {
		return err
	}
	for _, st := range stretches {
		size, err := s.db.EstimateDiskUsage(st.from, st.to)
		if err != nil {
			return err
		}
		if size < left[string(st.from)]+least {
			continue
		}
		if err := s.db.Compact(ctx, st.from, st.to, false); err != nil {
			return err
		}
		after, err := s.db.EstimateDiskUsage(st.from, st.to)
		if err != nil {
			return err
		}
		left[string(st.from)] = after
	}
	return nil
}

// stretches are the ranges of keys of which the counts and timelines say that nothing in them
// lives. Nothing is lost if they are wrong: a compaction drops only what was deleted.
func (s *Store) stretches(ctx context.Context) (out []stretch, err error) {
	tx, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer s.abort(tx)
	whole := func(kind byte, topic uint32) {
		prefix := topicKey(kind, topic)
		out = append(out, stretch{prefix, upper(prefix)})
	}
	for _, t := range s.allTopics() {
		if t.live == 0 {
			whole(keyLive, t.num)
		} else {
			out = append(out, stretch{topicKey(keyLive, t.num), posKey(keyLive, t.num, s.lowest(t, tx.ms))})
		}
		if t.dead == 0 {
			whole(keyDead, t.num)
		}
		if t.live == 0 && t.dead == 0 {
			whole(keyID, t.num)
		}
	}
	for _, num := range s.takeDeleted() {
		for _, kind := range []byte{keyLive, keyDead, keyID} {
			whole(kind, num)
		}
	}
	return out, nil
}

// takeDeleted returns the numbers of the topics that were deleted since the last call. One look is
// enough: what they leave does not grow.
func (s *Store) takeDeleted() (nums []uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	nums, s.deleted = s.deleted, nil
	return nums
}
