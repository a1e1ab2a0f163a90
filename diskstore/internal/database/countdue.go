package database

import (
	"sync/atomic"

	"github.com/punctualmq/punctual/diskstore/internal/record"
)

// LargeTopic is how many live messages make a topic large. For large topics the database keeps how
// many messages were due at the last count, and each transaction keeps that number right, so that a
// count reads only the messages that have become due since the last one. Smaller topics keep no
// count, and n messages make at most n / LargeTopic topics large.
const LargeTopic = 1000

// dueCount is how many live messages of a topic are due at upTo or before. It is guarded by the
// write lock, but for found.
type dueCount struct {
	upTo int64 // Unix milliseconds
	// n is how many these are. While the count is under way, n is how much their number has changed
	// since the count began.
	n int64
	// found is the result of the count, or stillCounting or nobodyCounts.
	found atomic.Int64
}

const (
	stillCounting = -1
	nobodyCounts  = -2
)

// add adds n messages that are due at ms to the count, which may be nil; n is negative when
// messages leave.
func (c *dueCount) add(ms, n int64) {
	if c != nil && ms <= c.upTo {
		c.n += n
	}
}

// addDue adds n live messages that are due at ms; n is negative when messages leave.
func (t *Topic) addDue(ms, n int64) {
	t.due.add(ms, n)
	t.counting.add(ms, n)
}

// Due says how many live messages of a topic are due, as far as that is known: Known of them lie
// before From. The caller counts the due messages from From on in the snapshot of the same moment.
type Due struct {
	From  record.Position
	Known int64
	count *dueCount // receives the result; nil if it is not kept
}

// CountDue begins a count of the messages that are due at now. Counted or Abandon must follow.
// Called with the write lock held, in the same moment in which the caller takes its snapshot. now
// never goes back, but for a step of the clock, which drops the counts (Tx.StepClock).
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
		out.count = t.counting
	}
	return out
}

// CountDue begins a count in each large topic, by the topic's number; see Topic.CountDue.
func (db *DB) CountDue(now int64) map[uint32]Due {
	counts := make(map[uint32]Due, len(db.large))
	for t := range db.large {
		counts[t.num] = t.CountDue(now)
	}
	return counts
}

// Counted ends a count: n is how many messages are due in all, as of the snapshot. It needs no
// lock.
func (d Due) Counted(n int64) {
	if d.count != nil {
		d.count.found.Store(n)
	}
}

// Abandon ends a count without a result, unless Counted was called before. It needs no lock.
func (d Due) Abandon() {
	if d.count != nil {
		d.count.found.CompareAndSwap(stillCounting, nobodyCounts)
	}
}

// noteLarge updates whether a topic is large, after its counts have changed.
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
