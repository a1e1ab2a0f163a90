package database

import (
	"bytes"
	"cmp"
	"context"

	"github.com/cockroachdb/pebble/v2"

	"github.com/punctualmq/punctual/diskstore/internal/errkind"
)

// A deleted message takes room on disk until a compaction drops its keys, and the engine compacts
// only when it is written to. A store that is drained and then idle would keep its size, and a full
// disk would stay full however much is acked. So the reclaimer goes through ranges of keys, called
// stretches. It has those compacted in which all keys are deleted, which reads them once and writes
// next to nothing. Where many messages were deleted among others that stay, it compacts the
// stretches in which at most half of the bytes are not deleted.

const (
	reclaimBytes  = 64 << 20 // how many bytes a stretch must hold at least to be compacted
	reclaimShare  = 4        // a stretch must also hold a quarter of what all files take
	reclaimLow    = 4 << 20  // how many bytes a stretch must hold, in place of both, when space is low
	reclaimLeast  = 1 << 20  // a topic whose stretches hold less is not examined again until more of its messages are deleted
	reclaimTopics = 1000     // how many topics are examined at a time while the write lock is held
	removedShare  = 4        // all keys of a topic are read when as many messages have left it as a quarter of those that stay
)

// Reclaimer frees the space of deleted messages. It is for one goroutine.
type Reclaimer struct {
	db *DB
	// left has, for the first key of each stretch that was compacted, how many bytes the stretch
	// still held afterwards, because they are not deleted or a reader used them. The stretch is
	// compacted again only when it holds more than that by the argument least of Run.
	left map[string]uint64
}

// NewReclaimer returns a reclaimer.
func (db *DB) NewReclaimer() *Reclaimer { return &Reclaimer{db, make(map[string]uint64)} }

// stretch is a range of keys.
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

// Run compacts the stretches that hold least bytes or more in tables. It is called without the
// write lock; locked calls a function with the lock held.
func (r *Reclaimer) Run(ctx context.Context, least uint64, locked func(context.Context, func()) error) error {
	db := r.db
	if db.kv.Metrics().DiskSpaceUsage() < least {
		return nil
	}
	var deleted []uint32 // each is examined once, because what a deleted topic leaves does not grow
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
		var again []*Topic // topics to examine again, because they may be worth a compaction later
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

// compact compacts those stretches that hold least bytes more than after their last compaction, and
// returns what the largest one of all holds afterwards.
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

// mark is a key in a stretch, with how many bytes of the stretch before it are not deleted.
type mark struct {
	key  []byte
	live int64 // bytes, not compressed
}

// markEvery is about how many bytes that are not deleted lie between two marks.
const markEvery = 64 << 10

// compactAmong compacts the parts of a stretch in which at most half of the bytes are not deleted.
// Until a part is compacted, the copy of these bytes takes room in addition, so no part that is
// compacted has more than reclaimBytes of them.
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

// divide compacts the keys between the first mark and the last one, or parts of them.
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

// marks reads the keys in a stretch that are not deleted. The first mark is at the beginning of the
// stretch, the last one at its end.
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

// noteGarbage adds a topic to those whose deleted messages take room on disk.
func (db *DB) noteGarbage(t *Topic) {
	if !t.isGarbage {
		t.isGarbage = true
		db.garbage = append(db.garbage, t)
	}
}

// garbage says where deleted messages of a topic may take room.
type garbage struct {
	stretches []stretch // the stretches in which all keys are deleted
	among     bool      // many messages were deleted, perhaps among others that stay
}

// stretches removes up to n topics from db.garbage. For each that is not deleted it returns the
// stretches in which all keys are deleted, by the topic's counts and lowest positions. If these are
// wrong nothing is lost, because a compaction drops only deleted keys.
func (db *DB) stretches(n int) map[*Topic]garbage {
	// The oldest come first, because topics to examine again are added at the end.
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
		// among has the reclaimer read all keys of the topic, so it is set only when many messages
		// were deleted.
		if g.among = t.removed > 0 && t.removed >= (t.live+t.dead)/removedShare; g.among {
			t.removed = 0
		}
		found[t] = g
	}
	return found
}
