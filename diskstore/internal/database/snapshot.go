package database

import (
	"context"

	"github.com/cockroachdb/pebble/v2"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/errkind"
	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/storekit"
)

// Snapshot is the database at one instant. Its methods need no lock. All but Close are safe for
// concurrent use.
type Snapshot struct {
	db   *DB
	snap *pebble.Snapshot
}

// Snapshot returns the database as it is now. It must be closed.
func (db *DB) Snapshot() *Snapshot { return &Snapshot{db, db.kv.NewSnapshot()} }

// Close ends the snapshot.
func (s *Snapshot) Close() error { return s.snap.Close() }

func (s *Snapshot) get(key []byte) ([]byte, error) { return get(s.db.state, s.snap, key) }

// Find returns where the message with an ID is.
func (s *Snapshot) Find(topic uint32, id string) (Place, error) {
	v, err := s.get(idKey(keyID, topic, id))
	if err != nil || v == nil {
		return Place{}, err
	}
	p, err := parsePlace(v)
	return p, s.db.state.ReadError("read the place of "+id, err)
}

// Get returns the record of a message, nil if it is not there.
func (s *Snapshot) Get(topic uint32, order Order, at record.Position) ([]byte, error) {
	return s.get(posKey(order, topic, at))
}

// Finished returns the finished record of an ID; ok is false if there is none.
func (s *Snapshot) Finished(topic uint32, id string) (f punctual.Finished, ok bool, err error) {
	v, err := s.get(idKey(keyRecord, topic, id))
	if err != nil || v == nil {
		return f, false, err
	}
	f, err = record.DecodeFinished(v)
	f.ID = id
	return f, err == nil, s.db.state.ReadError("read the finished record of "+id, err)
}

// FinishedByID calls f for the finished records of a topic, in the order of their IDs, until f
// returns false.
func (s *Snapshot) FinishedByID(ctx context.Context, topic uint32, f func(*punctual.Finished) bool) error {
	prefix := topicKey(keyRecord, topic)
	it, err := s.snap.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return s.db.state.ReadError("read finished records", err)
	}
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		if n++; n%scanChecks == 0 {
			if err := s.db.state.Check(ctx); err != nil {
				return errkind.JoinClose(err, it)
			}
		}
		r, err := record.DecodeFinished(it.Value())
		if err != nil {
			return s.db.state.ReadError("read finished records", errkind.JoinClose(err, it))
		}
		r.ID = string(it.Key()[len(prefix):])
		if !f(&r) {
			break
		}
	}
	return s.db.state.ReadError("read finished records", errkind.JoinClose(it.Error(), it))
}

// FinishedRange is a part of the order in which finished records are deleted: from a place up to
// another one, which is not included.
type FinishedRange struct {
	From, To  storekit.FinishedPlace
	Backwards bool // the range is read from its end
}

// FinishedByEnd calls f for the finished records of a topic in a range, in the order in which they
// are deleted or backwards, until f returns false. The keys in that order are those of all topics
// together, and some lead to records that later ones have replaced. FinishedByEnd also calls f
// without a record: for each key of the topic whose record was replaced or deleted, and each time
// it passes over keys of other topics. at is the place up to which the range has been read.
func (s *Snapshot) FinishedByEnd(ctx context.Context, topic uint32, r FinishedRange, f func(at storekit.FinishedPlace, rec *punctual.Finished) bool) error {
	it, err := s.snap.NewIter(&pebble.IterOptions{
		LowerBound: forgetKey(keyRecordEnd, r.From.Until, topic, r.From.ID),
		UpperBound: forgetKey(keyRecordEnd, r.To.Until, topic, r.To.ID),
	})
	if err != nil {
		return s.db.state.ReadError("read finished records", err)
	}
	begin, next := it.First, it.Next
	if r.Backwards {
		begin, next = it.Last, it.Prev
	}
	n := 0
	for ok := begin(); ok; {
		if n++; n%scanChecks == 0 {
			if err := s.db.state.Check(ctx); err != nil {
				return errkind.JoinClose(err, it)
			}
		}
		until, of, id, err := parseForgetKey(it.Key())
		if err != nil {
			return s.db.state.ReadError("read finished records", errkind.JoinClose(err, it))
		}
		if of != topic {
			at, seek := passOver(it, until, of, topic, r.Backwards)
			if !f(at, nil) {
				break
			}
			ok = seek()
			continue
		}
		rec, found, err := s.Finished(topic, id)
		if err != nil {
			return errkind.JoinClose(err, it)
		}
		var current *punctual.Finished // nil when the record of this key was replaced or deleted
		if found && storekit.Millis(rec.KeptUntil) == until {
			current = &rec
		}
		if !f(storekit.FinishedPlace{Until: until, ID: id}, current) {
			break
		}
		ok = next()
	}
	return s.db.state.ReadError("read finished records", errkind.JoinClose(it.Error(), it))
}

// passOver says where the keys of topic go on when an iterator has come to a key of another topic,
// whose number is of and whose time is until. at is the place up to which the keys of topic have
// been read, and seek moves the iterator there.
func passOver(it *pebble.Iterator, until int64, of, topic uint32, backwards bool) (at storekit.FinishedPlace, seek func() bool) {
	at.Until = until
	if of > topic { // the key sorts after those that topic may have at the same time
		at.Until++
	}
	if backwards {
		// The keys of topic before at are still to be read, so the iterator goes to the last of
		// those whose time is before at.Until.
		return at, func() bool { return it.SeekLT(forgetKey(keyRecordEnd, at.Until-1, topic+1, "")) }
	}
	return at, func() bool { return it.SeekGE(forgetKey(keyRecordEnd, at.Until, topic, "")) }
}

// Topics reads all topics, sorted by name.
func (s *Snapshot) Topics() ([]Info, error) {
	infos, err := readTopics(s.snap)
	return infos, s.db.state.ReadError("read", err)
}

// scanChecks is after how many messages a scan checks whether its context has ended. It is small,
// because the caller may read each message, with a body of some MiB.
const scanChecks = 64

// Scan calls f for the messages of a topic in one order, from a position up to another one, which
// is not included unless it is MaxPosition, until f returns false.
func (s *Snapshot) Scan(ctx context.Context, topic uint32, order Order, from, to record.Position, f func(record.Position) (bool, error)) error {
	return s.scan(ctx, topic, order, from, to, (*pebble.Iterator).First, (*pebble.Iterator).Next, f)
}

// ScanBack is Scan in the reverse order: it begins with the last message before to.
func (s *Snapshot) ScanBack(ctx context.Context, topic uint32, order Order, from, to record.Position, f func(record.Position) (bool, error)) error {
	return s.scan(ctx, topic, order, from, to, (*pebble.Iterator).Last, (*pebble.Iterator).Prev, f)
}

func (s *Snapshot) scan(ctx context.Context, topic uint32, order Order, from, to record.Position, first, next func(*pebble.Iterator) bool, f func(record.Position) (bool, error)) error {
	it, err := s.db.iterate(s.snap, order, topic, from, to)
	if err != nil {
		return s.db.state.ReadError("read", err)
	}
	n := 0
	for ok := first(it); ok; ok = next(it) {
		if n++; n%scanChecks == 0 {
			if err := s.db.state.Check(ctx); err != nil {
				return errkind.JoinClose(err, it)
			}
		}
		p, err := parsePosKey(it.Key())
		if err != nil {
			return s.db.state.ReadError("read", errkind.JoinClose(err, it))
		}
		if more, err := f(p); err != nil || !more {
			return errkind.JoinClose(err, it)
		}
	}
	return s.db.state.ReadError("read", errkind.JoinClose(it.Error(), it))
}

// Keys counts the keys of each kind.
func (s *Snapshot) Keys() (map[Order]int, error) {
	n := make(map[Order]int)
	return n, each(s.snap, nil, func(key, _ []byte) error {
		n[Order(key[0])]++
		return nil
	})
}
