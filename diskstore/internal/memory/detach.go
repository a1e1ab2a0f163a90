package memory

import (
	"cmp"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/record"
)

// Detaching a message removes it from memory alone: on disk it stays as it was until the
// transaction of the caller deletes or moves it. So every method here is called with the write lock
// held, and the store must end when the transaction fails, because otherwise nobody would ever
// deliver the message.

// Detached is a message that was removed from memory, so that nobody can claim it. Only this
// package makes one.
type Detached struct {
	Topic     *Topic
	ID        string       // known if the message is or was leased, or is acked
	Lease     record.Lease // its place on disk, and the last lease since the record was written; token 0 if there was none
	Began     int64        // when that lease was made, in Unix milliseconds; 0 when it was made before the store was opened
	Cancelled bool         // no attempt was to follow the lease
	Acked     bool         // the message was acked: the caller deletes it, and answers as if it had not been there
}

// State returns the state of a live message, its due time, and when the message next needs
// attention: the end of a lease that has not run out, else its due time. An acked message has
// StateNone. cancelled says that no attempt may follow the last lease of the message (P5).
func (t *Topic) State(p record.Position, now int64) (st punctual.State, due, next int64, cancelled bool) {
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	m := t.messages[p.Seq]
	if m != nil {
		p.Ms, cancelled = cmp.Or(m.lease.Due, p.Ms), m.cancelled
	}
	switch {
	case m != nil && m.state == stateAcked:
		return punctual.StateNone, p.Ms, 0, cancelled
	case m != nil && m.state == stateLeased && now < m.next:
		return punctual.StateLeased, p.Ms, m.next, cancelled
	case p.Ms <= now:
		return punctual.StateReady, p.Ms, p.Ms, cancelled
	}
	return punctual.StateScheduled, p.Ms, p.Ms, cancelled
}

// Detach removes a message from memory, whatever its state.
func (t *Topic) Detach(p record.Position) Detached {
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	return t.detach(p)
}

// DetachUnleased removes a message from memory unless a lease on the message is current at now;
// then ok is false.
func (t *Topic) DetachUnleased(p record.Position, now int64) (d Detached, ok bool) {
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	if m := t.messages[p.Seq]; m != nil && m.state == stateLeased && now < m.next {
		return Detached{}, false
	}
	return t.detach(p), true
}

// Cancel removes a message from memory. If a lease on the message is current at now, Cancel marks
// the message instead, so that no attempt follows that lease (P5), and ok is false. Both are one
// step, so no claim can come between.
func (t *Topic) Cancel(p record.Position, now int64) (d Detached, ok bool) {
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	if m := t.messages[p.Seq]; m != nil && m.state == stateLeased && now < m.next {
		m.cancelled = true
		return Detached{}, false
	}
	return t.detach(p), true
}

// detach is Detach, called with mu held. Of a message that is on disk alone it knows no more than
// topic and position.
func (t *Topic) detach(p record.Position) Detached {
	if m := t.messages[p.Seq]; m != nil {
		return t.x.detach(m)
	}
	return Detached{Topic: t, Lease: record.Lease{Topic: t.Num, At: p}}
}

// DetachHeld removes a leased message from memory if its lease still has the token of h.
func (x *Index) DetachHeld(h Held) (d Detached, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.leased[h.Lease.Token]
	if m == nil || m.topic != h.Topic || m.lease.At != h.Lease.At {
		return Detached{}, false
	}
	return x.detach(m), true
}

// Beside is a live message on which the follow-ups of a settlement depend.
type Beside struct {
	Topic *Topic
	At    record.Position
	Goes  bool // the message is to be detached, because a follow-up replaces it
}

// DetachTogether is DetachHeld for a settlement with follow-ups. In the same step it removes from
// memory what the follow-ups replace, in the order of beside. ok is false, and nothing is removed,
// when the lease has another token, or when one of beside is acked: acks need no write lock, so an
// ack may have come since the caller decided on the follow-ups.
func (x *Index) DetachTogether(h Held, beside []Beside) (d Detached, replaced []Detached, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.leased[h.Lease.Token]
	if m == nil || m.topic != h.Topic || m.lease.At != h.Lease.At {
		return Detached{}, nil, false
	}
	for _, b := range beside {
		if other := b.Topic.messages[b.At.Seq]; other != nil && other.state == stateAcked {
			return Detached{}, nil, false
		}
	}
	for _, b := range beside {
		if b.Goes {
			replaced = append(replaced, b.Topic.detach(b.At))
		}
	}
	return x.detach(m), replaced, true
}

// DetachReserved removes from memory a message that a claim has reserved and must not deliver. ok
// is false when another transaction has detached the message since, or when the clock has stepped
// back since: then the message goes back, because the claim has judged it by the time before.
func (x *Index) DetachReserved(c *Reserved) (d Detached, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if c.m.state == stateReserved && c.steps != x.steps {
		x.putBack(c)
	}
	if c.m.state != stateReserved {
		return Detached{}, false
	}
	return x.detach(c.m), true
}

// DetachAcked removes up to n acked messages from memory, which the caller deletes from disk. more
// says that some are left.
func (x *Index) DetachAcked(n int) (ds []Detached, more bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := len(x.inHand.topics) - 1; i >= 0 && x.acked > 0; i-- { // a topic that has nothing left leaves the list
		for t := x.inHand.topics[i]; len(t.acked) > 0; {
			if len(ds) == n {
				return ds, true
			}
			ds = append(ds, x.detach(t.acked[len(t.acked)-1]))
		}
	}
	return ds, false
}
