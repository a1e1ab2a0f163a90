package database

import (
	"bytes"
	"math"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/punctualmq/punctual/diskstore/internal/errkind"
	"github.com/punctualmq/punctual/diskstore/internal/record"
)

// A step of a sweep begins with the write lock held, reads without the lock, and removes what it
// read in a transaction. Each step begins where the last one ended, because an iterator has to pass
// deleted keys until a compaction drops them: if each step began at the first key, it would pass
// all that the steps before it have deleted.

// DeadSweep is one step of removing dead messages that died before a position.
type DeadSweep struct {
	db    *DB
	t     *Topic
	to    record.Position
	began int64 // Unix milliseconds
	steps int64 // how often the clock had stepped back when it began
	limit int
	left  int64 // t.deadLeft when it began
	it    *pebble.Iterator
	found []deadMessage
	next  record.Position // no dead message but those found lies below
}

type deadMessage struct {
	at record.Position
	id string
}

// SweepDead begins to remove up to limit dead messages that died before to. It returns nil when
// there are certainly none. Read must follow.
func (tx *Tx) SweepDead(t *Topic, to record.Position, limit int) (*DeadSweep, error) {
	if !t.deadFrom.Less(to) {
		return nil, nil
	}
	it, err := tx.db.iterate(tx.db.kv, Dead, t.num, t.deadFrom, record.MaxPosition)
	if err != nil {
		return nil, tx.db.state.ReadError("read topic "+t.name, err)
	}
	return &DeadSweep{db: tx.db, t: t, to: to, began: tx.now, steps: tx.db.step.Count, limit: limit, left: t.deadLeft, it: it}, nil
}

// Read finds the messages to remove. It needs no lock.
func (s *DeadSweep) Read() error {
	s.next = record.Position{Ms: s.began} // a message that dies after the step began has this time of death or a later one
	for ok := s.it.First(); ok; ok = s.it.Next() {
		p, err := parsePosKey(s.it.Key())
		if err != nil {
			return s.db.state.ReadError("sweep", errkind.JoinClose(err, s.it))
		}
		if len(s.found) == s.limit || !p.Less(s.to) {
			s.next = record.Position{Ms: p.Ms} // other messages may die in the same millisecond, and lie before p
			if n := len(s.found); n > 0 && s.next.Less(s.found[n-1].at) {
				s.next = s.found[n-1].at.Next() // no message dies any more in a millisecond that is past its retention
			}
			break
		}
		r, err := record.Decode(s.it.Value())
		if err != nil {
			return s.db.state.ReadError("sweep", errkind.JoinClose(err, s.it))
		}
		s.found = append(s.found, deadMessage{p, r.ID})
	}
	s.db.swept(Dead, s.it)
	return s.db.state.ReadError("sweep", errkind.JoinClose(s.it.Error(), s.it))
}

// RemoveSwept removes the messages that a step has found and that are still dead at the same
// position. more says that there may be others.
func (tx *Tx) RemoveSwept(s *DeadSweep) (more bool, err error) {
	t := s.t
	if t.deleted {
		return false, nil
	}
	found := s.found
	if t.deadLeft != s.left { // other transactions have removed or requeued dead messages meanwhile
		found = nil
		for _, d := range s.found {
			p, err := tx.Find(t, d.id, nil)
			if err != nil {
				return false, err
			}
			if p.Order == Dead && p.At == d.at {
				found = append(found, d)
			}
		}
	}
	for _, d := range found {
		tx.Remove(t, Place{Order: Dead, At: d.at}, d.id)
	}
	if t.deadFrom.Less(s.next) && s.steps == tx.db.step.Count { // after a step of the clock a message may have died below next
		t.deadFrom = s.next
	}
	return len(found) == s.limit, nil
}

// kept describes the finished IDs that are remembered, or the finished records. Both have two sets
// of keys: ids is by topic and ID, with values that begin with the end of the retention; ends is in
// the order of that time. All but at is guarded by the write lock.
type kept struct {
	ids, ends byte // the letters of the keys
	// from is a key below which there is no key of ends. at is the time in from.
	from []byte
	at   atomic.Int64
	// since has the keys of ids that were written since a step of a sweep began; nil while no step
	// is under way.
	since map[string]bool
}

func (k *kept) setFrom(key []byte) {
	k.from = key
	k.at.Store(record.Time(key[1:]))
}

// endsFrom is the key at which the keys of ends of a time begin.
func (k *kept) endsFrom(ms int64) []byte { return record.AppendTime([]byte{k.ends}, ms) }

// kept returns the remembered IDs (Remembered) or the finished records (FinishedRecords).
func (db *DB) kept(of Order) *kept {
	if of == FinishedRecords {
		return &db.finished
	}
	return &db.remembered
}

// ForgetSweep is one step of deleting finished IDs, or finished records, that are past their
// retention. The caller runs at most one of each at a time.
type ForgetSweep struct {
	db    *DB
	of    *kept
	now   int64
	steps int64 // how often the clock had stepped back when it began
	limit int
	it    *pebble.Iterator
	found []forgotten
	next  []byte // the first key of ends that stays, of those that existed when the step began
}

// forgotten is an ID that is past its retention: its key of ends, and its key of ids if that is
// deleted, too.
type forgotten struct{ end, key []byte }

// ForgetDue tells whether some finished IDs (Remembered) or FinishedRecords may be past their
// retention. It needs no lock.
func (db *DB) ForgetDue(of Order, now int64) bool { return db.kept(of).at.Load() <= now }

// SweepFinished begins to delete up to limit finished IDs (Remembered) or FinishedRecords. Read
// must follow, and then Tx.ForgetSwept.
func (tx *Tx) SweepFinished(of Order, limit int) (*ForgetSweep, error) {
	db, k := tx.db, tx.db.kept(of)
	it, err := db.kv.NewIter(&pebble.IterOptions{LowerBound: k.from, UpperBound: []byte{k.ends + 1}})
	if err != nil {
		return nil, db.state.ReadError("read what is kept of finished messages", err)
	}
	k.since = make(map[string]bool)
	return &ForgetSweep{db: db, of: k, now: tx.now, steps: db.step.Count, limit: limit, it: it}, nil
}

// Read finds the keys to delete. It needs no lock.
func (s *ForgetSweep) Read() error {
	s.next = s.of.endsFrom(math.MaxInt64)
	for ok := s.it.First(); ok; ok = s.it.Next() {
		end := bytes.Clone(s.it.Key())
		until, num, id, err := parseForgetKey(end)
		if err != nil {
			return s.db.state.ReadError("sweep", errkind.JoinClose(err, s.it))
		}
		if len(s.found) == s.limit || until > s.now {
			s.next = end
			break
		}
		o := forgotten{end: end}
		key := idKey(s.of.ids, num, id)
		v, err := s.db.get(key)
		if err != nil {
			return errkind.JoinClose(err, s.it)
		}
		// If the condition is false, the topic was deleted since, or the ID has finished again and
		// is kept longer, or a remembered ID was pushed again.
		if len(v) >= 8 && record.Time(v) <= s.now {
			o.key = key
		}
		s.found = append(s.found, o)
	}
	s.db.swept(Order(s.of.ends), s.it)
	return s.db.state.ReadError("sweep", errkind.JoinClose(s.it.Error(), s.it))
}

// ForgetSwept deletes the keys that a step has found. more says that there may be others.
func (tx *Tx) ForgetSwept(s *ForgetSweep) (more bool) {
	since := s.of.since
	s.of.since = nil
	for _, o := range s.found {
		tx.set(o.end, nil)
		if o.key != nil && !since[string(o.key)] {
			tx.set(o.key, nil)
		}
	}
	if s.steps != tx.db.step.Count { // after a step of the clock something may be kept until a time below next
		return true
	}
	next := s.next
	if from := s.of.endsFrom(s.now + 1); len(since) > 0 && bytes.Compare(from, next) < 0 {
		next = from // what was written since the step began is kept at least until then
	}
	if s.of == &tx.db.remembered && bytes.Equal(next, s.of.endsFrom(math.MaxInt64)) {
		tx.db.remembering.Add(1) // nothing is remembered in any topic, because every remembered ID has its key of ends
	}
	s.of.setFrom(next)
	return len(s.found) == s.limit
}

func (db *DB) swept(order Order, it *pebble.Iterator) {
	if db.opt.Swept != nil {
		db.opt.Swept(order, it.Stats().ForwardStepCount[pebble.InternalIterCall])
	}
}
