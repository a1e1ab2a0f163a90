package database

import (
	"bytes"
	"math"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/punctualmq/punctual/diskstore/internal/errkind"
	"github.com/punctualmq/punctual/diskstore/internal/record"
)

// A step of a sweep begins with the write lock held, reads without it, and removes what it read in a transaction.
// Each step begins where the last one ended. A deleted key stays in the way of an iterator until a
// compaction drops it. So to begin anew each time would cost more with every step.

// DeadSweep is one step of removing dead messages that died before a position.
type DeadSweep struct {
	db    *DB
	t     *Topic
	to    record.Position
	began int64 // Unix milliseconds
	limit int
	left  int64 // t.deadLeft when it began
	it    *pebble.Iterator
	found []deadMessage
	next  record.Position // below it there are no others
}

type deadMessage struct {
	at record.Position
	id string
}

// SweepDead begins to remove up to limit dead messages that died before to. It returns nil when there is none for certain.
// Read must follow.
func (tx *Tx) SweepDead(t *Topic, to record.Position, limit int) (*DeadSweep, error) {
	if !t.deadFrom.Less(to) {
		return nil, nil
	}
	it, err := tx.db.iterate(tx.db.kv, Dead, t.num, t.deadFrom, record.MaxPosition)
	if err != nil {
		return nil, tx.db.state.ReadError("read topic "+t.name, err)
	}
	return &DeadSweep{db: tx.db, t: t, to: to, began: tx.now, limit: limit, left: t.deadLeft, it: it}, nil
}

// Read finds what is to go. It needs no lock.
func (s *DeadSweep) Read() error {
	s.next = record.Position{Ms: s.began} // who has died since, has died later
	for ok := s.it.First(); ok; ok = s.it.Next() {
		p, err := parsePosKey(s.it.Key())
		if err != nil {
			return s.db.state.ReadError("sweep", errkind.JoinClose(err, s.it))
		}
		if len(s.found) == s.limit || !p.Less(s.to) {
			s.next = record.Position{Ms: p.Ms} // others may die in the same millisecond, and lie before it
			if n := len(s.found); n > 0 && s.next.Less(s.found[n-1].at) {
				s.next = s.found[n-1].at.Next() // nobody dies in a millisecond whose retention is over
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

// RemoveSwept removes what a step has found and is still dead as it was. more tells that there may be others.
func (tx *Tx) RemoveSwept(s *DeadSweep) (more bool, err error) {
	t := s.t
	if t.deleted {
		return false, nil
	}
	found := s.found
	if t.deadLeft != s.left { // others have taken dead messages away meanwhile
		found = nil
		for _, d := range s.found {
			p, err := tx.Find(t, d.id)
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
	if t.deadFrom.Less(s.next) {
		t.deadFrom = s.next
	}
	return len(found) == s.limit, nil
}

// kept is what is kept of finished messages for a time. One set of keys is by topic and ID, and their values begin
// with the time until which they are kept. The other set is in the order of that time. All but at is guarded by the
// write lock.
type kept struct {
	ids, ends byte // the letters of the keys
	// from: below it there is no key of ends. at is the time of it.
	from []byte
	at   atomic.Int64
	// since has the keys of ids that were written since a sweep began to read them; nil while none does.
	since map[string]bool
}

func (k *kept) setFrom(key []byte) {
	k.from = key
	k.at.Store(record.Time(key[1:]))
}

// floor is where the keys of ends of a time begin.
func (k *kept) floor(ms int64) []byte { return record.AppendTime([]byte{k.ends}, ms) }

// kept is what the keys of an order keep: Remembered or Stories.
func (db *DB) kept(of Order) *kept {
	if of == Stories {
		return &db.stories
	}
	return &db.remembered
}

// ForgetSweep is one step of forgetting finished IDs, or stories, whose time is over. One of each runs at a time.
type ForgetSweep struct {
	db    *DB
	of    *kept
	now   int64
	limit int
	it    *pebble.Iterator
	found []forgotten
	next  []byte // of the keys of ends that were there when it began, the first that stays
}

// forgotten is an ID whose time is over: its key of ends, and its key of ids if that goes too.
type forgotten struct{ end, key []byte }

// ForgetDue tells whether there may be something whose time is over: finished IDs (Remembered) or Stories. It needs no lock.
func (db *DB) ForgetDue(of Order, now int64) bool { return db.kept(of).at.Load() <= now }

// SweepFinished begins to forget up to limit finished IDs (Remembered) or Stories. Read must follow, and then Tx.ForgetSwept.
func (tx *Tx) SweepFinished(of Order, limit int) (*ForgetSweep, error) {
	db, k := tx.db, tx.db.kept(of)
	it, err := db.kv.NewIter(&pebble.IterOptions{LowerBound: k.from, UpperBound: []byte{k.ends + 1}})
	if err != nil {
		return nil, db.state.ReadError("read what is kept of finished messages", err)
	}
	k.since = make(map[string]bool)
	return &ForgetSweep{db: db, of: k, now: tx.now, limit: limit, it: it}, nil
}

// Read finds what is to go. It needs no lock.
func (s *ForgetSweep) Read() error {
	s.next = s.of.floor(math.MaxInt64)
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
		// Else the ID was pushed again since, or has finished again and is kept longer.
		if len(v) >= 8 && record.Time(v) <= s.now {
			o.key = key
		}
		s.found = append(s.found, o)
	}
	s.db.swept(Order(s.of.ends), s.it)
	return s.db.state.ReadError("sweep", errkind.JoinClose(s.it.Error(), s.it))
}

// ForgetSwept forgets what a step has found. more tells that there may be others.
func (tx *Tx) ForgetSwept(s *ForgetSweep) (more bool) {
	since := s.of.since
	s.of.since = nil
	for _, o := range s.found {
		tx.set(o.end, nil)
		if o.key != nil && !since[string(o.key)] {
			tx.set(o.key, nil)
		}
	}
	next := s.next
	if floor := s.of.floor(s.now + 1); len(since) > 0 && bytes.Compare(floor, next) < 0 {
		next = floor // the time of what was written since then ends later
	}
	s.of.setFrom(next)
	return len(s.found) == s.limit
}

func (db *DB) swept(order Order, it *pebble.Iterator) {
	if db.opt.Swept != nil {
		db.opt.Swept(order, it.Stats().ForwardStepCount[pebble.InternalIterCall])
	}
}
