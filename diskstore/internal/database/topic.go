package database

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/errkind"
	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/storekit"
)

// Topic is one topic of the database. All but its name and number is guarded by the write lock.
type Topic struct {
	name string
	num  uint32

	live, dead int64
	// lowest is a position below which no live message lies. It is stored.
	lowest record.Position
	// deadFrom is a position below which no dead message lies, MaxPosition if there are none.
	deadFrom record.Position
	// deadLeft counts the dead messages that were removed or requeued, so that a sweep notices
	// changes.
	deadLeft int64
	// removed counts the messages that were deleted or moved on disk since the reclaimer last read
	// all keys of the topic. When the database is opened the number is not known, and is set to the
	// number of messages.
	removed int64
	// large says that the topic has many live messages. Only large topics have due, the last count
	// of due messages, and counting, the count under way.
	large         bool
	due, counting *dueCount
	// version changes whenever a message of the topic is stored, moved or deleted, and whenever an
	// ID or a finished record is kept. It does not change when what was kept is deleted, because
	// whoever compares versions may delete such a key again.
	version uint64

	// remembers is DB.remembering when the topic last remembered an ID, or may have; 0 if it never
	// did. It changes with the write lock held.
	remembers atomic.Uint64

	countedIn *Tx // the last transaction that writes the counts
	loweredIn *Tx // the last transaction that writes lowest
	isStale   bool
	isGarbage bool
	deleted   bool
}

func newTopic(name string, num uint32) *Topic {
	return &Topic{name: name, num: num, lowest: record.MinPosition, deadFrom: record.MaxPosition}
}

// Name is the topic's name. It needs no lock.
func (t *Topic) Name() string { return t.name }

// Num is the topic's number, which no other topic ever gets. It needs no lock.
func (t *Topic) Num() uint32 { return t.num }

// Live is how many live messages there are.
func (t *Topic) Live() int64 { return t.live }

// Dead is how many dead messages there are.
func (t *Topic) Dead() int64 { return t.dead }

// Lowest is a position below which no live message lies.
func (t *Topic) Lowest() record.Position { return t.lowest }

// DeadFrom is a position below which no dead message lies, MaxPosition if there are none.
func (t *Topic) DeadFrom() record.Position { return t.deadFrom }

// mayRemember tells whether the topic may remember finished IDs. It needs no lock.
func (t *Topic) mayRemember(db *DB) bool { return t.remembers.Load() == db.remembering.Load() }

// SpareTopics is how many numbers are left for companions of events when no other topic gets a
// number any more. Nobody can be told that there is no number for such a companion, because it
// comes into being with a change that has happened.
const SpareTopics = 1 << 16

// AddTopics makes topics with the same settings: all of them or, when the store has too few numbers
// left, none. spare lets them have the numbers of SpareTopics. The largest number is never given
// out, because db.topicNum, the number after it, would overflow.
func (tx *Tx) AddTopics(names []string, set punctual.Settings, spare bool) ([]*Topic, error) {
	db := tx.db
	limit := uint32(math.MaxUint32)
	if !spare {
		limit -= SpareTopics
	}
	if uint64(db.topicNum)+uint64(len(names)) > uint64(limit) {
		return nil, fmt.Errorf("the store has made %d topics, and has no number for topic %s: %w; use a new store",
			db.topicNum-1, names[len(names)-1], punctual.ErrNoSpace)
	}
	made := make([]*Topic, len(names))
	for i, name := range names {
		made[i] = newTopic(name, db.topicNum)
		db.topicNum++
		tx.PutSettings(made[i], set)
	}
	tx.set([]byte(metaTopic), binary.BigEndian.AppendUint32(nil, db.topicNum))
	return made, nil
}

// PutSettings writes a topic's settings.
func (tx *Tx) PutSettings(t *Topic, set punctual.Settings) {
	settings, err := storekit.EncodeSettings(set)
	if err != nil {
		panic(err) // settings that were checked can always be encoded; the check refuses NaN
	}
	tx.set(nameKey(t.name), append(binary.BigEndian.AppendUint32(nil, t.num), settings...))
}

// SetLowest records that no live message of a topic lies below a position.
func (tx *Tx) SetLowest(t *Topic, p record.Position) {
	t.lowest = p
	tx.set(topicKey(keyWatermark, t.num), p.Append(nil))
}

// Stale removes up to n topics from the list of those whose lowest position may be raised, and
// returns them without deleted ones. more says that the list has others.
func (db *DB) Stale(n int) (ts []*Topic, more bool) {
	cut := max(0, len(db.stale)-n)
	for _, t := range db.stale[cut:] {
		if t.isStale = false; !t.deleted {
			ts = append(ts, t)
		}
	}
	clear(db.stale[cut:])
	db.stale = db.stale[:cut]
	return ts, cut > 0
}

// HasStale tells whether the list of Stale has topics, deleted ones included.
func (db *DB) HasStale() bool { return len(db.stale) > 0 }

// A deletion of a range costs every reader until the deletion is flushed. The engine keeps such
// deletions of its buffer in one list, and the first reader after each of them makes the list anew.
// So a topic of few messages is deleted key by key, and after some ranges the buffer is flushed.
const (
	DeleteSingly = 1000 // keys of IDs of each kind (messages, remembered, finished records) that are deleted one by one at most
	DeleteRanges = 64   // deleted ranges after which the engine's buffer is flushed
)

// TopicKeys are the keys of the messages, IDs and finished records of a small topic, at one version
// of the topic.
type TopicKeys struct {
	db      *DB
	t       *Topic
	version uint64
	snap    *pebble.Snapshot
	all     bool // no such key of the topic is missing
	keys    [][]byte
}

// TopicKeys begins to read the keys of a topic. Read must follow.
func (db *DB) TopicKeys(t *Topic) *TopicKeys {
	return &TopicKeys{db: db, t: t, version: t.version, snap: db.kv.NewSnapshot(), all: true}
}

// Len is how many keys were read; 0 when there are too many of them.
func (k *TopicKeys) Len() int { return len(k.keys) }

// Read reads the keys. It needs no lock.
func (k *TopicKeys) Read() (err error) {
	for _, kind := range []byte{keyID, keyFinished, keyRecord} {
		if k.all && err == nil {
			err = k.read(kind)
		}
	}
	return k.db.state.ReadError("read topic "+k.t.name, errkind.JoinClose(err, k.snap))
}

// read adds the keys of one kind, with those of the messages that have the IDs.
func (k *TopicKeys) read(kind byte) error {
	prefix := topicKey(kind, k.t.num)
	it, err := k.snap.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return err
	}
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		if n++; n > DeleteSingly {
			k.all, k.keys = false, nil
			break
		}
		k.keys = append(k.keys, bytes.Clone(it.Key()))
		if kind == keyID {
			p, err := parsePlace(it.Value())
			if err != nil {
				return errkind.JoinClose(err, it)
			}
			k.keys = append(k.keys, posKey(p.Order, k.t.num, p.At))
		}
	}
	return errkind.JoinClose(it.Error(), it)
}

// DeleteTopic deletes a topic with its messages, IDs and finished records. It deletes key by key if
// k has all keys of the topic as it is now, and by ranges otherwise. The topic must not be used
// afterwards. The keys of 'x' and 'u' stay; a sweep deletes them when their time is over.
func (tx *Tx) DeleteTopic(t *Topic, k *TopicKeys) {
	tx.set(nameKey(t.name), nil)
	tx.set(topicKey(keyCounts, t.num), nil)
	tx.set(topicKey(keyWatermark, t.num), nil)
	if k != nil && k.t == t && k.all && k.version == t.version {
		for _, key := range k.keys {
			tx.set(key, nil)
		}
	} else {
		for _, kind := range []byte{keyLive, keyDead, keyID, keyFinished, keyRecord} {
			tx.deleteRange(topicKey(kind, t.num))
		}
	}
	t.deadLeft += t.dead
	t.live, t.dead, t.deleted, t.deadFrom = 0, 0, true, record.MaxPosition
	tx.db.noteLarge(t)
	tx.db.deleted = append(tx.db.deleted, t.num)
}

// DeletedRanges is how many ranges were deleted since the engine's buffer was flushed for that. It
// needs no lock. Tests use it.
func (db *DB) DeletedRanges() int { return int(db.ranges.Load()) }

// FlushRanges begins to flush the engine's buffer if DeleteRanges ranges or more were deleted in
// it. It needs no lock.
func (db *DB) FlushRanges() error {
	if db.ranges.Load() < DeleteRanges {
		return nil
	}
	db.ranges.Store(0)
	return db.state.Do("flush the database", func() error {
		_, err := db.StartFlush()
		return err
	})
}
