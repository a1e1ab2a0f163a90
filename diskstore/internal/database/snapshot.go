package database

import (
	"context"

	"github.com/cockroachdb/pebble/v2"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/errkind"
	"github.com/punctualmq/punctual/diskstore/internal/record"
)

// Snapshot is the database at one instant. Its methods need no lock. All but Close are safe for concurrent use.
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
	return parsePlace(v)
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

// Topics reads all topics, sorted by name.
func (s *Snapshot) Topics() ([]Info, error) {
	infos, err := readTopics(s.snap)
	return infos, s.db.state.ReadError("read", err)
}

// scanChecks is after how many messages a scan checks whether its context has ended. It is small, because the caller may read
// each message, with a body of some MiB.
const scanChecks = 64

// Scan calls f for the messages of a topic in one order, from a position up to another, until f returns false.
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
