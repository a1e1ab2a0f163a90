package database

import (
	"bytes"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"github.com/punctualmq/punctual/diskstore/internal/errkind"
	"github.com/punctualmq/punctual/diskstore/internal/record"
)

// A step of a sweep begins with the write lock held, reads without it, and removes what it read in a transaction.
// Each step begins where the last one ended. A deleted key stays in the way of an iterator until a
// compaction drops it, so to begin anew each time costs more with every step.

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

// ForgetSweep is one step of forgetting finished IDs whose time is over. One runs at a time.
type ForgetSweep struct {
	db    *DB
	now   int64
	limit int
	it    *pebble.Iterator
	found []forgottenID
	next  []byte // of the 'x' keys that were there when it began, the first that stays
}

// forgottenID is a finished ID whose time is over: its 'x' key, and its 'f' key if that goes too.
type forgottenID struct{ forget, finished []byte }

// ForgetDue tells whether there may be a finished ID whose time is over. It needs no lock.
func (db *DB) ForgetDue(now int64) bool { return db.forgetAt.Load() <= now }

// SweepRemembered begins to forget up to limit finished IDs. Read must follow, and then Tx.ForgetSwept.
func (tx *Tx) SweepRemembered(limit int) (*ForgetSweep, error) {
	db := tx.db
	it, err := db.kv.NewIter(&pebble.IterOptions{LowerBound: db.forgetFrom, UpperBound: []byte{keyForget + 1}})
	if err != nil {
		return nil, db.state.ReadError("read finished IDs", err)
	}
	db.rememberedSince = make(map[string]bool)
	return &ForgetSweep{db: db, now: tx.now, limit: limit, it: it}, nil
}

// Read finds what is to go. It needs no lock.
func (s *ForgetSweep) Read() error {
	s.next = forgetFloor(math.MaxInt64)
	for ok := s.it.First(); ok; ok = s.it.Next() {
		key := bytes.Clone(s.it.Key())
		until, num, id, err := parseForgetKey(key)
		if err != nil {
			return s.db.state.ReadError("sweep", errkind.JoinClose(err, s.it))
		}
		if len(s.found) == s.limit || until > s.now {
			s.next = key
			break
		}
		o := forgottenID{forget: key}
		finished := idKey(keyFinished, num, id)
		v, err := s.db.get(finished)
		if err != nil {
			return errkind.JoinClose(err, s.it)
		}
		// Else the ID was pushed again since, or has finished again and is remembered longer.
		if len(v) == 8 && record.Time(v) <= s.now {
			o.finished = finished
		}
		s.found = append(s.found, o)
	}
	s.db.swept(Forgotten, s.it)
	return s.db.state.ReadError("sweep", errkind.JoinClose(s.it.Error(), s.it))
}

// ForgetSwept forgets what a step has found. more tells that there may be others.
func (tx *Tx) ForgetSwept(s *ForgetSweep) (more bool) {
	db := tx.db
	since := db.rememberedSince
	db.rememberedSince = nil
	for _, o := range s.found {
		tx.set(o.forget, nil)
		if o.finished != nil && !since[string(o.finished)] {
			tx.set(o.finished, nil)
		}
	}
	next := s.next
	if floor := forgetFloor(s.now + 1); len(since) > 0 && bytes.Compare(floor, next) < 0 {
		next = floor // the time of what was remembered since then ends later
	}
	db.setForgetFrom(next)
	return len(s.found) == s.limit
}

func (db *DB) setForgetFrom(key []byte) {
	db.forgetFrom = key
	db.forgetAt.Store(record.Time(key[1:]))
}

// forgetFloor is where the 'x' keys of a time begin.
func forgetFloor(ms int64) []byte { return record.AppendTime([]byte{keyForget}, ms) }

func (db *DB) swept(order Order, it *pebble.Iterator) {
	if db.opt.Swept != nil {
		db.opt.Swept(order, it.Stats().ForwardStepCount[pebble.InternalIterCall])
	}
}
