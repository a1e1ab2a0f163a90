package database

import (
	"bytes"
	"cmp"
	"context"

	"github.com/cockroachdb/pebble/v2"

	"github.com/punctualmq/punctual/diskstore/internal/errkind"
)

// What is deleted keeps its place on disk until a compaction drops it, and the engine compacts
// only when it is written to. A store that is drained and then idle would keep its size, and a
// full disk would stay full however much is acked. So the reclaimer looks for stretches of keys in
// which nothing lives and has them compacted, which reads them once and writes next to nothing. Where much was
// deleted among messages that live, it has those stretches compacted in which at most half lives.

const (
	reclaimBytes  = 64 << 20 // what a stretch must hold to be worth it,
	reclaimShare  = 4        // and which part of all tables
	reclaimLow    = 4 << 20  // the same when space is low
	reclaimLeast  = 1 << 20  // with less a topic is not looked at again until it has left more
	reclaimTopics = 1000     // looked at in one turn of the write lock
	removedShare  = 4        // the part of its messages that must have left a topic before all its keys are read
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
		var found map[*Topic]garbage
		if err := locked(ctx, func() { found = db.stretches(min(topics, reclaimTopics)) }); err != nil {
			return err
		}
		var again []*Topic // they may be worth it later
		for t, g := range found {
			held, err := r.compact(ctx, g.stretches, least)
			if err == nil && g.among {
				for _, kind := range []byte{keyLive, keyDead, keyID} {
					err = cmp.Or(err, r.compactAmong(ctx, wholeStretch(Order(kind), t.num), least))
				}
			}
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

// mark is a place among keys that live, with what lives before it.
type mark struct {
	key  []byte
	live int64 // bytes, not compressed
}

// markEvery is about how many bytes live between two marks.
const markEvery = 64 << 10

// compactAmong compacts the parts of a stretch in which at most half lives. While a part is compacted it takes as much more
// space as lives in it, so no part is larger than reclaimBytes.
func (r *Reclaimer) compactAmong(ctx context.Context, st stretch, least uint64) error {
	if size, err := r.db.kv.EstimateDiskUsage(st.from, st.to); err != nil || size < least {
		return err
	}
	marks, err := r.db.marks(ctx, st)
	if err != nil {
		return err
	}
	return r.divide(ctx, marks, least)
}

// divide compacts what lies between the first mark and the last one, or parts of it.
func (r *Reclaimer) divide(ctx context.Context, marks []mark, least uint64) error {
	first, last := marks[0], marks[len(marks)-1]
	size, err := r.db.kv.EstimateDiskUsage(first.key, last.key)
	if err != nil || size < least {
		return err
	}
	if live := uint64(last.live - first.live); live <= size/2 && live <= reclaimBytes {
		_, err := r.compact(ctx, []stretch{{first.key, last.key}}, least)
		return err
	}
	if len(marks) == 2 {
		return nil
	}
	half := len(marks) / 2
	if err := r.divide(ctx, marks[:half+1], least); err != nil {
		return err
	}
	return r.divide(ctx, marks[half:], least)
}

// marks reads the keys that live in a stretch.
func (db *DB) marks(ctx context.Context, st stretch) ([]mark, error) {
	it, err := db.kv.NewIter(&pebble.IterOptions{LowerBound: st.from, UpperBound: st.to})
	if err != nil {
		return nil, db.state.ReadError("read what is deleted", err)
	}
	marks, live := []mark{{key: st.from}}, int64(0)
	for ok := it.First(); ok && ctx.Err() == nil; ok = it.Next() {
		if live-marks[len(marks)-1].live >= markEvery {
			marks = append(marks, mark{bytes.Clone(it.Key()), live})
		}
		value := it.LazyValue()
		live += int64(len(it.Key()) + value.Len())
	}
	err = errkind.JoinClose(it.Error(), it)
	return append(marks, mark{st.to, live}), db.state.ReadError("read what is deleted", cmp.Or(err, ctx.Err()))
}

// noteGarbage notes that deleted messages of a topic take room on disk.
func (db *DB) noteGarbage(t *Topic) {
	if !t.isGarbage {
		t.isGarbage = true
		db.garbage = append(db.garbage, t)
	}
}

// garbage is where a topic may have left something.
type garbage struct {
	stretches []stretch // in which nothing lives
	among     bool      // much was deleted, perhaps among what lives
}

// stretches takes up to n topics that have left something. It returns the ranges of keys in which nothing lives by
// their counts and lowest positions. Nothing is lost if they are wrong: a compaction drops only what was deleted.
func (db *DB) stretches(n int) map[*Topic]garbage {
	// The oldest first: those that are noted again come behind them.
	ts := db.garbage[:min(n, len(db.garbage))]
	db.garbage = db.garbage[len(ts):]
	found := make(map[*Topic]garbage, len(ts))
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
		g := garbage{stretches: []stretch{live, dead}}
		if t.live == 0 && t.dead == 0 {
			g.stretches = append(g.stretches, wholeStretch(keyID, t.num))
		}
		// All keys are read then, so it is not done before many have gone.
		if g.among = t.removed > 0 && t.removed >= (t.live+t.dead)/removedShare; g.among {
			t.removed = 0
		}
		found[t] = g
	}
	return found
}
