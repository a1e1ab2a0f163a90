package memory

import (
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/record"
)

// What is taken out of memory here is on disk as it was, until the transaction of the caller deletes or moves it. So all of
// these are called with the write lock held, and when the transaction does not come about the store ends.

// Detached is a message that is in memory no more, and that nobody can claim. Only this package makes one.
type Detached struct {
	Topic     *Topic
	ID        string       // known if it was leased
	Lease     record.Lease // its place on disk, and the last lease since the record was written; token 0 if there was none
	Began     int64        // when that lease was made, in Unix milliseconds; 0 when it was made before the store was opened
	Cancelled bool         // no attempt was to follow the lease
	Finished  bool         // it was acked: it is to be deleted, and nobody is to be told that it was there
}

// State is the state of a live message, and when it next needs attention: its due time, or the end of its lease. A finished message
// has StateNone.
func (t *Topic) State(p record.Position, now int64) (st punctual.State, next int64) {
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	m := t.messages[p.Seq]
	switch {
	case m != nil && m.state == stateFinished:
		return punctual.StateNone, 0
	case m != nil && m.state == stateLeased && now < m.next:
		return punctual.StateLeased, m.next
	case p.Ms <= now:
		return punctual.StateReady, p.Ms
	}
	return punctual.StateScheduled, p.Ms
}

// Detach takes a message out of memory, whatever its state.
func (t *Topic) Detach(p record.Position) Detached {
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	return t.detach(p)
}

// DetachUnleased does the same unless somebody holds a lease on the message at now.
func (t *Topic) DetachUnleased(p record.Position, now int64) (d Detached, ok bool) {
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	if m := t.messages[p.Seq]; m != nil && m.state == stateLeased && now < m.next {
		return Detached{}, false
	}
	return t.detach(p), true
}

// Cancel does the same, and in the same step sees to it that no attempt follows the lease that somebody holds (P5).
func (t *Topic) Cancel(p record.Position, now int64) (d Detached, ok bool) {
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	if m := t.messages[p.Seq]; m != nil && m.state == stateLeased && now < m.next {
		m.cancelled = true
		return Detached{}, false
	}
	return t.detach(p), true
}

// detach is Detach, called with mu held. A message that is on disk alone is let go as it is.
func (t *Topic) detach(p record.Position) Detached {
	if m := t.messages[p.Seq]; m != nil {
		return t.x.detach(m)
	}
	return Detached{Topic: t, Lease: record.Lease{Topic: t.Num, At: p}}
}

// DetachHeld takes a leased message out of memory if the lease is still that of h, with the same token.
func (x *Index) DetachHeld(h Held) (d Detached, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.leased[h.Lease.Token]
	if m == nil || m.topic != h.Topic || m.lease.At != h.Lease.At {
		return Detached{}, false
	}
	return x.detach(m), true
}

// DetachTaken takes a message out of memory that a claim has taken and must not deliver, unless somebody else has.
func (x *Index) DetachTaken(c *Taken) (d Detached, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if c.m.state != stateTaken {
		return Detached{}, false
	}
	return x.detach(c.m), true
}

// TakeFinished takes up to n finished messages out of memory, which are to be deleted from disk, and tells whether there are more.
func (x *Index) TakeFinished(n int) (ds []Detached, more bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := len(x.inHand.topics) - 1; i >= 0 && x.finished > 0; i-- { // a topic that has nothing left leaves the list
		for t := x.inHand.topics[i]; len(t.finished) > 0; {
			if len(ds) == n {
				return ds, true
			}
			ds = append(ds, x.detach(t.finished[len(t.finished)-1]))
		}
	}
	return ds, false
}
