package memory

import (
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// A claim has three steps. Take reserves messages, so that no other claim meets them. Grant decides on their leases, which
// the claim then writes to the claim log. Confirm makes the leases. PutBack undoes the first two steps.

// Taken is a message that a claim has reserved. Only the claim that has it writes to it, but for what Grant sets.
type Taken struct {
	Topic    *Topic
	Settings *punctual.Settings // of the topic
	Now      int64              // when it was reserved
	Record   []byte             // the stored record; nil if it must be read
	Token    int64              // of the lease to come
	// Last is the last lease since the record was written, which has run out. Its token is 0 if there was none. Last has place
	// and topic of the message in any case.
	Last      record.Lease
	Cancelled bool // no attempt may follow the last lease (P5)

	// Set by the claim before Grant: the message with the attempt counted, and the Expired of the lease to come. The end of the
	// lease is not in Message but in Lease.
	Message *record.Record
	Expired []punctual.Failure
	// Set by Grant: the lease, and when it begins, in Unix milliseconds.
	Lease *record.Lease
	Began int64

	m *message
}

// Took is what a Take has reserved, and what is to be done for the next one.
type Took struct {
	Taken []*Taken
	// Next is when the topic next needs attention: now when more messages may be due, Never when there are none.
	Next int64
	// Load is the topic when its next due message is on disk alone and nothing was reserved; else nil.
	Load *Topic
	// TokensShort tells that the lease tokens are used up which the database has reserved.
	TokensShort bool
}

// Take reserves up to n messages of a topic whose time has come at now: those in the window, and those whose lease has run
// out.
func (x *Index) Take(topic string, now int64, n int) Took {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.topics[topic]
	if t == nil {
		return Took{Next: Never}
	}
	return x.take(t, now, n)
}

// take is Take, called with mu held.
func (x *Index) take(t *Topic, now int64, n int) (took Took) {
	for len(took.Taken) < n {
		var m *message // the one in memory that needs attention first
		if len(t.window) > 0 {
			m = t.window[0]
		}
		if len(t.leases) > 0 && (m == nil || t.leases[0].next < m.next) {
			m = t.leases[0]
		}
		took.Next = Never
		if t.diskNext != record.MaxPosition {
			took.Next = t.diskNext.Ms
		}
		onDisk := m == nil || took.Next < m.next
		if !onDisk {
			took.Next = m.next
		}
		switch {
		case t.settings.DeliveryPaused || took.Next == Never:
			took.Next = Never
			return took
		case took.Next > now:
			return took
		case onDisk && len(took.Taken) > 0:
			took.Next = now
			return took
		case onDisk:
			took.Load = t
			return took
		case x.tokens.next >= x.tokens.limit:
			took.Next, took.TokensShort = now+1, true
			return took
		}
		c := &Taken{Topic: t, Settings: t.settings, Now: now, Record: m.rec, Token: x.tokens.next, Last: m.lease, Cancelled: m.cancelled, m: m}
		x.tokens.next++
		m.rec = nil
		x.move(m, stateTaken) // from here on the holder of the last lease is too late
		took.Taken = append(took.Taken, c)
	}
	took.Next = now
	return took
}

// Grant decides on the leases of what a claim has reserved and no transaction has taken away since. They begin now, and a
// length of 0 is the topic's. A message that has expired since it was reserved goes back, and the next claim ends it.
func (x *Index) Grant(taken []*Taken, length time.Duration, now int64) (granted []*Taken, leases []record.Lease) {
	// Both have their full capacity from the beginning, because Taken.Lease points into leases.
	granted, leases = make([]*Taken, 0, len(taken)), make([]record.Lease, 0, len(taken))
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range taken {
		m := c.m
		switch {
		case m.state != stateTaken: // taken away meanwhile
		case c.Message.Expired(now):
			x.putBack(c)
		default:
			granted, leases = append(granted, c), append(leases, record.Lease{
				Topic: m.lease.Topic, At: m.lease.At, Token: c.Token, Attempt: c.Message.Attempts,
				Until: lifecycle.LeaseEnd(length, m.topic.settings, now), Expired: c.Expired,
			})
			c.Began, c.Lease = now, &leases[len(leases)-1]
			m.granted = c.Lease
		}
	}
	return granted, leases
}

// Confirm makes the leases that were granted, once the claim log has them. A lease that has run out by now is not made, and
// neither is that of a message which a transaction has taken away. In place of each of these the claim log is to have the one
// of ended: the lease before it, or a lease with attempt 0 if there was none.
func (x *Index) Confirm(granted []*Taken, now int64) (made []*Taken, ended []record.Lease) {
	made = make([]*Taken, 0, len(granted))
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range granted {
		m := c.m
		if m.state != stateTaken || c.Lease.Until <= now {
			// In the claim log the entry with the higher Renewed wins among those of one token.
			before := c.Last
			before.Token, before.Renewed = c.Token, 1
			ended = append(ended, before)
			if m.state == stateTaken {
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

// PutBack puts back what a claim has reserved and does not deliver, unless a transaction has taken it away.
func (x *Index) PutBack(taken []*Taken) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range taken {
		if c.m.state == stateTaken {
			x.putBack(c)
		}
	}
	x.makeRoom(0)
}

// Has tells whether no transaction has taken a reserved message away.
func (x *Index) Has(c *Taken) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return c.m.state == stateTaken
}

// putBack makes a message what it was before a claim reserved it. Called with mu held.
func (x *Index) putBack(c *Taken) {
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
