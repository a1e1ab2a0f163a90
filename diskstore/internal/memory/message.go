package memory

import (
	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/internal/heap"
)

// message is a message in memory. All fields but topic are guarded by Index.mu.
type message struct {
	topic *Topic
	state state
	// next is when the message next needs attention: its due time, or the end of its lease.
	next int64
	// rec is the stored record of a message that is pending or in the window, or nil if it must be
	// read.
	rec []byte
	// charged is what the message adds to the account of its state.
	charged int64
	// place is the index of the message in the list or queue of its state; see Topic.
	place int
	// lease is the last lease since the record was written; its token is 0 if there was none. Its
	// Topic and At are those of the message in any case.
	lease record.Lease
	// id is empty until the message is leased, or restored as leased or acked.
	id string
	// began is when the lease was made, in Unix milliseconds; 0 when the lease was made before the
	// store was opened.
	began int64
	// cancelled says that no attempt may follow the lease.
	cancelled bool
	// remembers says that the ID of a leased message is to be remembered when the message finishes,
	// whatever the topic's settings are.
	remembers bool
	// granted is the lease that a claim is writing to the claim log. If the process is killed after
	// the write the lease counts, so a new segment of the log must have the lease, too.
	granted *record.Lease
}

type state uint8

const (
	stateDetached state = iota // only transactions and claims under way refer to it
	statePending
	stateWindow
	stateReserved
	stateLeased
	stateAcked
)

// What a message costs beside its record and its ID. MessageBytes is for the message with its
// places in a list or heap and in Topic.messages. leaseBytes is for a lease with its place in
// Index.leased, failureBytes for each of record.Lease.Expired.
const (
	MessageBytes = 256
	leaseBytes   = 128
	failureBytes = 48
)

// cost is what a message costs in memory.
func (m *message) cost() int64 {
	n := MessageBytes + cap(m.rec)
	if m.lease.Token != 0 {
		n += leaseBytes + len(m.id) + failureBytes*len(m.lease.Expired)
	}
	return int64(n)
}

// put adds a message, and replaces the message that has the same number. Called with mu held.
func (x *Index) put(m *message, to state) {
	if old := m.topic.messages[m.lease.At.Seq]; old != nil {
		x.detach(old)
	}
	m.topic.messages[m.lease.At.Seq] = m
	x.move(m, to)
}

// move puts a message from one state into another, and charges its cost there. The caller has set
// the fields that the new state uses. Called with mu held.
func (x *Index) move(m *message, to state) {
	t, from := m.topic, m.state
	full := t.full()
	x.leave(m)
	x.enter(m, to)
	if full && !t.full() {
		x.wake(t, -Never)
	}
	x.inHand.update(t, len(t.pending)+len(t.reserved)+len(t.leases)+len(t.acked) > 0)
	if from == stateWindow || to == stateWindow {
		x.inWindow.update(t, len(t.window) > 0)
		x.planLoad(t)
	}
	x.roomMade()
}

// leave takes a message out of what its state keeps. Called with mu held.
func (x *Index) leave(m *message) {
	t, a := m.topic, &x.account
	switch m.state {
	case statePending:
		a.pending -= m.charged
		t.pending.remove(m)
	case stateWindow:
		a.window -= m.charged
		t.windowBytes -= m.charged
		byTime.Remove(&t.window, m)
	case stateReserved:
		a.leased -= m.charged
		t.reserved.remove(m)
	case stateLeased:
		if m.remembers {
			x.remembering--
		}
		delete(x.leased, m.lease.Token)
		a.leased -= m.charged
		byTime.Remove(&t.leases, m)
	case stateAcked:
		x.acked--
		t.acked.remove(m)
	}
}

// enter puts a message that has left its state into another one. Called with mu held.
func (x *Index) enter(m *message, to state) {
	t, a := m.topic, &x.account
	m.state, m.charged = to, 0
	if to != stateDetached && to != stateAcked {
		m.charged = m.cost()
	}
	switch to {
	case stateDetached:
		delete(t.messages, m.lease.At.Seq)
		m.rec, m.granted = nil, nil // so that a claim that still refers to the message does not keep them in memory
	case statePending:
		a.pending += m.charged
		t.pending.add(m)
	case stateWindow:
		a.window += m.charged
		t.windowBytes += m.charged
		byTime.Push(&t.window, m)
	case stateReserved:
		a.leased += m.charged
		t.reserved.add(m)
	case stateLeased:
		if m.remembers {
			x.remembering++
		}
		x.leased[m.lease.Token] = m
		a.leased += m.charged
		byTime.Push(&t.leases, m)
	case stateAcked:
		m.rec, m.granted = nil, nil
		x.acked++
		t.acked.add(m)
	}
}

// detach removes a message from memory. Called with mu held.
func (x *Index) detach(m *message) Detached {
	t := m.topic
	d := Detached{Topic: t, ID: m.id, Lease: m.lease, Began: m.began, Cancelled: m.cancelled, Acked: m.state == stateAcked}
	x.move(m, stateDetached)
	return d
}

// wake wakes the claims that wait for a topic and would sleep past at, unless deliveries of the
// topic are paused. Called with mu held.
func (x *Index) wake(t *Topic, at int64) {
	if !t.settings.DeliveryPaused {
		x.notify(t.Name, at)
	}
}

// byTime is the order of messages by message.next, and by number among those with equal times.
var byTime = heap.Order[*message]{
	Before: func(a, b *message) bool {
		return a.next < b.next || a.next == b.next && a.lease.At.Seq < b.lease.At.Seq
	},
	Place: func(m *message) *int { return &m.place },
}

// messages are messages in one state, in no order. message.place is the index of each.
type messages []*message

func (l *messages) add(m *message) {
	m.place = len(*l)
	*l = append(*l, m)
}

func (l *messages) remove(m *message) {
	list := *l
	last := list[len(list)-1]
	list[m.place], last.place = last, m.place
	list[len(list)-1] = nil
	*l = list[:len(list)-1]
	if len(*l) == 0 {
		*l = nil
	}
}
