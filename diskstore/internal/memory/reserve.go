package memory

import (
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// A claim has three steps. Reserve reserves messages, so that no other claim encounters them. Grant
// decides on their leases, which the claim then writes to the claim log. Confirm makes the leases.
// PutBack undoes the first two steps.

// Reserved is a message that a claim has reserved. Only the claim that has it, or whoever ends the
// message for that claim, writes to it, but for what Grant sets.
type Reserved struct {
	Topic    *Topic
	Settings *punctual.Settings // of the topic
	Now      int64              // the time at which the claim judges what is due
	Record   []byte             // the stored record; nil if it must be read
	Token    int64              // of the lease to come
	// Last is the last lease since the record was written, which has run out. Its token is 0 if
	// there was none. Last has place and topic of the message in any case.
	Last      record.Lease
	Cancelled bool // no attempt may follow the last lease (P5)

	// Set by the claim before Grant: the message with the attempt counted, and the Expired of the
	// lease to come. The end of the lease is not in Message but in Lease.
	Message *record.Record
	Expired []punctual.Failure
	// Set by Grant: the lease, and when it begins, in Unix milliseconds.
	Lease *record.Lease
	Began int64

	m     *message
	steps uint64 // Index.steps when the message was reserved
}

// ReserveResult has the messages that Reserve has reserved, and says what the claim does next.
type ReserveResult struct {
	Reserved []*Reserved
	// Next is when the claim polls the topic next: now when more messages may be due, a millisecond
	// after now when tokens are short, else the next due time of the topic. Next is Never when
	// nothing is to become due, or deliveries are paused.
	Next int64
	// Load is the topic when its next due message is on disk alone and nothing was reserved; else
	// nil.
	Load *Topic
	// Full says that the topic has as many leases as it may.
	Full bool
	// TokensShort says that the lease tokens which the database has reserved are used up.
	TokensShort bool
}

// Reserve reserves up to n messages of a topic that are due at now, those whose lease has run out
// among them.
func (x *Index) Reserve(topic string, now int64, n int) ReserveResult {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.topics[topic]
	if t == nil {
		return ReserveResult{Next: Never}
	}
	return x.reserve(t, now, n)
}

// reserve is Reserve, called with mu held.
func (x *Index) reserve(t *Topic, now int64, n int) (result ReserveResult) {
	for len(result.Reserved) < n {
		full := t.full() // then only a message whose lease has run out has a place
		var m *message   // the message in memory with the earliest next due time
		if len(t.window) > 0 && !full {
			m = t.window[0]
		}
		if len(t.leases) > 0 && (m == nil || t.leases[0].next < m.next) {
			m = t.leases[0]
		}
		result.Next, result.Full = Never, full
		if t.diskNext != record.MaxPosition && !full {
			result.Next = t.diskNext.Ms
		}
		onDisk := m == nil || result.Next < m.next
		if !onDisk {
			result.Next = m.next
		}
		result.Next = max(result.Next, t.opens(now))
		switch {
		case t.settings.DeliveryPaused || result.Next == Never:
			result.Next = Never
			return result
		case result.Next > now:
			return result
		case onDisk && len(result.Reserved) > 0:
			result.Next = now
			return result
		case onDisk:
			result.Load = t
			return result
		case x.tokens.next >= x.tokens.limit:
			result.Next, result.TokensShort = now+1, true
			return result
		}
		result.Reserved = append(result.Reserved, x.take(m, now))
	}
	result.Next = now
	return result
}

// take reserves a message for a claim that judges by now what is due. Called with mu held, while
// there are tokens.
func (x *Index) take(m *message, now int64) *Reserved {
	t := m.topic
	c := &Reserved{Topic: t, Settings: t.settings, Now: now, Record: m.rec, Token: x.tokens.next, Last: m.lease, Cancelled: m.cancelled, m: m, steps: x.steps}
	x.tokens.next++
	m.rec = nil
	x.move(m, stateReserved) // from here on the holder of the last lease is too late, unless the message is put back before Confirm
	return c
}

// ReserveAt reserves the live message at a position on disk, also one that is on disk alone, if a
// claim at now may lease it. Called with the write lock held, because no message may be deleted
// from disk, or moved there, before it is in memory.
func (t *Topic) ReserveAt(p record.Position, now int64) (result ReserveResult) {
	x := t.x
	x.mu.Lock()
	defer x.mu.Unlock()
	m := t.messages[p.Seq]
	if m == nil {
		m = &message{topic: t, next: p.Ms, lease: record.Lease{Topic: t.Num, At: p}}
	}
	result.Full = m.lease.Token == 0 && t.full()
	result.TokensShort = x.tokens.next >= x.tokens.limit
	held := m.state == statePending || m.state == stateReserved || m.state == stateAcked
	if held || m.next > now || t.settings.DeliveryPaused || t.opens(now) > now || result.Full || result.TokensShort {
		return result
	}
	t.messages[p.Seq] = m
	result.Reserved = []*Reserved{x.take(m, now)}
	return result
}

// Grant decides on the leases of the messages that a claim has reserved and no transaction has
// detached since. The leases begin now, by the store's clock, which Grant reads under its lock. A
// length of 0 is the topic's. A message that has expired since it was reserved goes back, and the
// next claim ends it. What was reserved before a step of the clock goes back, too (Step).
func (x *Index) Grant(reserved []*Reserved, length time.Duration, clock func() int64) (granted []*Reserved, leases []record.Lease) {
	// leases has its full capacity from the beginning, because Reserved.Lease points into it.
	granted, leases = make([]*Reserved, 0, len(reserved)), make([]record.Lease, 0, len(reserved))
	x.mu.Lock()
	defer x.mu.Unlock()
	now := clock()
	for _, c := range reserved {
		m := c.m
		switch {
		case m.state != stateReserved: // a transaction has detached the message
		case c.steps != x.steps || c.Message.Expired(now):
			x.putBack(c)
		default:
			granted, leases = append(granted, c), append(leases, record.Lease{
				Topic: m.lease.Topic, At: m.lease.At, Token: c.Token, Attempt: c.Message.Attempts,
				Until: lifecycle.LeaseEnd(length, m.topic.settings, now), Since: now, Due: m.lease.Due, Expired: c.Expired,
			})
			c.Began, c.Lease = now, &leases[len(leases)-1]
			m.topic.gate.Begin(m.topic.settings.MaxRate, now*1000, 1)
			m.granted = c.Lease
		}
	}
	return granted, leases
}

// Confirm makes the leases that were granted, once the claim log has them. A lease that has run out
// by now is not made, and neither is the lease of a message which a transaction has detached. For
// each of these, ended has what the caller writes to the claim log instead: under the new token the
// lease before it, or a lease with attempt 0 if there was none. In memory, too, the lease before
// has the new token from then on. So its holder gets ErrLeaseLost, as after any other claim of the
// message. If the holder could still extend the lease under the old token, a kill would undo the
// extension, because in the claim log the new token counts.
//
// clock is the store's clock, which Confirm reads under its lock. A lease that a step of the clock
// has moved since Grant is made as it is now.
func (x *Index) Confirm(granted []*Reserved, clock func() int64) (made []*Reserved, ended []record.Lease) {
	made = make([]*Reserved, 0, len(granted))
	x.mu.Lock()
	defer x.mu.Unlock()
	now := clock()
	for _, c := range granted {
		m, before := c.m, c.Last
		if m.state == stateReserved {
			c.Lease, before = m.granted, m.lease
			c.Began = c.Lease.Since
		}
		if m.state != stateReserved || c.Lease.Until <= now {
			// In the claim log the entry with the higher Renewed wins among those of one token.
			// Each step of the clock may have renewed the lease that was granted.
			before.Token, before.Renewed = c.Token, 1+x.steps-c.steps
			ended = append(ended, before)
			if m.state == stateReserved {
				if m.lease.Token != 0 {
					m.lease = before
				}
				x.putBack(c)
			}
			continue
		}
		m.granted, m.next, m.id, m.lease, m.began = nil, c.Lease.Until, c.Message.ID, *c.Lease, c.Began
		m.remembers = c.Message.Remember > 0
		x.move(m, stateLeased)
		if n := len(made); n == 0 || made[n-1].Topic != c.Topic {
			x.wake(c.Topic, m.next) // a claim that read the timeline meanwhile did not see these messages
		}
		made = append(made, c)
	}
	x.makeRoom(0)
	return made, ended
}

// PutBack puts back messages that a claim has reserved and does not deliver, except those that a
// transaction has detached.
func (x *Index) PutBack(reserved []*Reserved) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range reserved {
		if c.m.state == stateReserved {
			x.putBack(c)
		}
	}
	x.makeRoom(0)
}

// Has tells whether a message is still reserved by its claim: no transaction has detached it.
func (x *Index) Has(c *Reserved) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return c.m.state == stateReserved
}

// putBack makes a message what it was before a claim reserved it, but for what Confirm changes of
// its last lease. Called with mu held.
func (x *Index) putBack(c *Reserved) {
	m := c.m
	m.granted = nil
	if m.lease.Token != 0 {
		x.move(m, stateLeased)
	} else {
		m.rec = c.Record
		x.move(m, stateWindow)
	}
	x.wake(m.topic, m.next)
}
