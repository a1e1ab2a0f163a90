package database

import "context"

// What is deleted keeps its place on disk until a compaction drops it, and the engine compacts
// only when it is written to. A store that is drained and then idle would keep its size, and a
// full disk would stay full however much is acked. So the reclaimer looks for stretches of keys in
// which nothing lives and has them compacted, which reads them once and writes next to nothing.
// What was deleted among messages that live is left to the engine.

const (
	reclaimBytes  = 64 << 20 // what a stretch must hold to be worth it,
	reclaimShare  = 4        // and which part of all tables
	reclaimLow    = 4 << 20  // the same when space is low
	reclaimLeast  = 1 << 20  // with less a topic is not looked at again until it has left more
	reclaimTopics = 1000     // looked at in one turn of the write lock
)

// Reclaimer gives the space of deleted messages back. It is for one goroutine.
type Reclaimer struct {
	db *DB
	// left is what earlier compactions could not drop because something was still reading it, by the
	// beginning of the stretch. It is not tried again for that alone.
	left map[string]uint64
}

// NewReclaimer returns a reclaimer.
func (db *DB) NewReclaimer() *Reclaimer { return &Reclaimer{db, make(map[string]uint64)} }

// stretch is a range of keys in which nothing lives.
type stretch struct{ from, to []byte }

func wholeStretch(order Order, topic uint32) stretch {
	prefix := topicKey(byte(order), topic)
	return stretch{prefix, after(prefix)}
}

// Worth is how many bytes a stretch must hold to be compacted. It needs no lock.
func (db *DB) Worth(spaceLow bool) uint64 {
	if spaceLow {
		return reclaimLow
	}
	return max(reclaimBytes, db.kv.Metrics().DiskSpaceUsage()/reclaimShare)
}

// Run compacts the stretches that hold at least so many bytes in tables. It is called without the write lock; locked calls
// a function with it held.
func (r *Reclaimer) Run(ctx context.Context, least uint64, locked func(context.Context, func()) error) error {
	db := r.db
	if db.kv.Metrics().DiskSpaceUsage() < least {
		return nil
	}
	var deleted []uint32 // one look at them is enough: what they leave does not grow
	var topics int
	err := locked(ctx, func() { deleted, db.deleted, topics = db.deleted, nil, len(db.garbage) })
	if err != nil {
		return err
	}
	for _, num := range deleted {
		if _, err := r.compact(ctx, []stretch{wholeStretch(Live, num), wholeStretch(Dead, num), wholeStretch(keyID, num)}, least); err != nil {
			return err
		}
	}
	for ; topics > 0; topics -= reclaimTopics {
		var found map[*Topic][]stretch
		if err := locked(ctx, func() { found = db.stretches(min(topics, reclaimTopics)) }); err != nil {
			return err
		}
		var again []*Topic // they may be worth it later
		for t, stretches := range found {
			held, err := r.compact(ctx, stretches, least)
			if err != nil {
				return err
			}
			if held >= reclaimLeast {
				again = append(again, t)
			}
		}
		if len(again) == 0 {
			continue
		}
		err := locked(ctx, func() {
			for _, t := range again {
				db.noteGarbage(t)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// compact compacts those stretches that are worth it, and returns what the largest one holds afterwards.
func (r *Reclaimer) compact(ctx context.Context, stretches []stretch, least uint64) (held uint64, err error) {
	kv := r.db.kv
	for _, st := range stretches {
		size, err := kv.EstimateDiskUsage(st.from, st.to)
		if err != nil {
			return held, err
		}
		if size >= r.left[string(st.from)]+least {
			if err := kv.Compact(ctx, st.from, st.to, false); err != nil {
				return held, err
			}
			if size, err = kv.EstimateDiskUsage(st.from, st.to); err != nil {
				return held, err
			}
			r.left[string(st.from)] = size
		}
		held = max(held, size)
	}
	return held, nil
}

// noteGarbage notes that deleted messages of a topic take room on disk.
func (db *DB) noteGarbage(t *Topic) {
	if !t.isGarbage {
		t.isGarbage = true
		db.garbage = append(db.garbage, t)
	}
}

// stretches takes up to n topics that have left something. It returns the ranges of keys in which nothing lives by
// their counts and lowest positions. Nothing is lost if they are wrong: a compaction drops only what was deleted.
func (db *DB) stretches(n int) map[*Topic][]stretch {
	// The oldest first: those that are noted again come behind them.
	ts := db.garbage[:min(n, len(db.garbage))]
	db.garbage = db.garbage[len(ts):]
	found := make(map[*Topic][]stretch, len(ts))
	for _, t := range ts {
		t.isGarbage = false
		if t.deleted {
			continue
		}
		live := stretch{topicKey(keyLive, t.num), posKey(Live, t.num, t.lowest)}
		dead := stretch{topicKey(keyDead, t.num), posKey(Dead, t.num, t.deadFrom)}
		if t.live == 0 {
			live = wholeStretch(Live, t.num)
		}
		if t.dead == 0 {
			dead = wholeStretch(Dead, t.num)
		}
		found[t] = []stretch{live, dead}
		if t.live == 0 && t.dead == 0 {
			found[t] = append(found[t], wholeStretch(keyID, t.num))
		}
	}
	return found
}
