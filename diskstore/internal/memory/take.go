package memory

import (
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// A claim has three steps. Take takes messages from all others. Grant decides on their leases, which the claim writes to its
// log. Confirm makes them. PutBack undoes the first two.

// Taken is a message that a claim has taken. Its fields do not change until Grant.
type Taken struct {
	Topic    *Topic
	Settings *punctual.Settings // of the topic
	Now      int64              // when it was taken
	Record   []byte             // nil if it must be read
	Token    int64              // of the lease to come
	// Last is the last lease since the record was written, which has run out. Its token is 0 if there was none. Place and topic
	// are those of the message in any case.
	Last      record.Lease
	Cancelled bool // no attempt is to follow the last lease

	// Set by the claim before Grant: the message with the attempt counted, and what Lease.Expired is to be.
	Message *record.Record
	Expired []punctual.Failure
	// Set by Grant: the lease, and when it begins.
	Lease *record.Lease
	Began int64

	m *message
}

// Took is what Take has brought.
type Took struct {
	Taken []*Taken
	// Next is when the topic next needs attention: now when there may be more, Never if it does not.
	Next int64
	// Load is the topic, when its next due message is on disk and nothing was taken.
	Load *Topic
	// TokensShort tells that lease tokens are used up.
	TokensShort bool
}

// Take takes up to n messages of a topic that are due at now, in the window or with a lease that ran out.
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
		var m *message // which needs attention first
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
		x.move(m, stateTaken) // a holder whose lease ran out is too late from here on
		took.Taken = append(took.Taken, c)
	}
	took.Next = now
	return took
}

// Grant decides on the leases of what a claim has taken, as far as it is still there. They begin now. What has expired on the
// way goes back, for the next claim to end it. A length of 0 is that of the topic.
func (x *Index) Grant(taken []*Taken, length time.Duration, now int64) (granted []*Taken, leases []record.Lease) {
	granted, leases = make([]*Taken, 0, len(taken)), make([]record.Lease, 0, len(taken)) // which is not made anew: Lease points into it
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

// Confirm makes the leases that were granted, once the claim log has them. It makes none that is over by now, and none of a
// message that was taken away. ended are the leases that the log is to have instead of these: those before them, which are
// over, or none (attempt 0).
func (x *Index) Confirm(granted []*Taken, now int64) (made []*Taken, ended []record.Lease) {
	made = make([]*Taken, 0, len(granted))
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range granted {
		m := c.m
		if m.state != stateTaken || c.Lease.Until <= now {
			// The lease before takes the place of one that was renewed 0 times.
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
			x.wake(c.Topic, m.next) // whoever looked at the timeline meanwhile did not see these
		}
		made = append(made, c)
	}
	x.makeRoom(0)
	return made, ended
}

// PutBack puts back what a claim took and does not hand out, as far as it was not taken away.
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

// Has tells whether a message that a claim has taken was not taken away since.
func (x *Index) Has(c *Taken) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return c.m.state == stateTaken
}

// putBack makes a message what it was before a claim took it. Called with mu held.
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
