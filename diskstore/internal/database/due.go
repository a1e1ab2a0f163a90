package database

import (
	"sync/atomic"

	"github.com/punctualmq/punctual/diskstore/internal/record"
)

// LargeTopic is how many live messages make a topic large. Of large topics the database knows how many messages are due up to
// the last look, and each transaction keeps that number right. So a look reads only what has become due since the one before.
// Smaller topics cost nothing, and a backlog of n messages has at most n / LargeTopic large ones.
const LargeTopic = 1000

// dueCount is how many live messages of a topic are due up to a time. It is guarded by the write lock, but for found.
type dueCount struct {
	upTo int64
	// n is that number; while they are still being counted it is how it has changed since that began.
	n int64
	// found is what was counted, or stillCounting or nobodyCounts.
	found atomic.Int64
}

const (
	stillCounting = -1
	nobodyCounts  = -2
)

// add notes that messages due at a time came, or went.
func (c *dueCount) add(ms, n int64) {
	if c != nil && ms <= c.upTo {
		c.n += n
	}
}

// addDue notes that live messages due at a time came, or went.
func (t *Topic) addDue(ms, n int64) {
	t.due.add(ms, n)
	t.counting.add(ms, n)
}

// Due is how many live messages of a topic are due, as far as that is known: Known before From. Those behind are to be
// counted in the snapshot of the same moment.
type Due struct {
	From  record.Position
	Known int64
	tell  *dueCount // nil when nobody wants to know
}

// CountDue begins a count of the messages due up to now. Counted or Abandon must follow. Called with the write lock held, by
// whoever takes a snapshot at that moment. now never goes back.
func (t *Topic) CountDue(now int64) Due {
	if c := t.counting; c != nil {
		switch n := c.found.Load(); n {
		case stillCounting:
		case nobodyCounts:
			t.counting = nil
		default:
			c.n += n
			t.due, t.counting = c, nil
		}
	}
	out := Due{From: record.MinPosition}
	if t.due != nil {
		out.From, out.Known = record.Position{Ms: t.due.upTo + 1}, t.due.n
	}
	if t.large && t.counting == nil {
		t.counting = &dueCount{upTo: now}
		t.counting.found.Store(stillCounting)
		out.tell = t.counting
	}
	return out
}

// CountDue does the same for each large topic, by number.
func (db *DB) CountDue(now int64) map[uint32]Due {
	counts := make(map[uint32]Due, len(db.large))
	for t := range db.large {
		counts[t.num] = t.CountDue(now)
	}
	return counts
}

// Counted tells how many messages are due in all, as of the snapshot. It needs no lock.
func (d Due) Counted(n int64) {
	if d.tell != nil {
		d.tell.found.Store(n)
	}
}

// Abandon tells that nobody counts any more, if Counted has not been called. It needs no lock.
func (d Due) Abandon() {
	if d.tell != nil {
		d.tell.found.CompareAndSwap(stillCounting, nobodyCounts)
	}
}

// noteLarge notes whether a topic is large, once its counts have changed.
func (db *DB) noteLarge(t *Topic) {
	large := !t.deleted && t.live >= db.largeFrom
	if large == t.large {
		return
	}
	t.large = large
	if large {
		db.large[t] = struct{}{}
		return
	}
	delete(db.large, t)
	t.due, t.counting = nil, nil
}
