package memstore

import (
	"bytes"
	"maps"
	"slices"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/heap"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// topic has the settings, messages, finished IDs and finished records of a topic. Every message is
// in messages and in exactly one of live and dead. An ID is in messages or in remembered, never in
// both. The store's mu guards a topic and its messages.
type topic struct {
	number   int64 // topics that were made later have greater numbers
	settings punctual.Settings
	messages map[string]*message
	// live and dead are queues in the order byTime: live messages by the time at which they next
	// need attention, dead ones by the time at which they died.
	live, dead []*message
	swept      int       // the index in live at which sweepEvents has stopped
	remembered keptUntil // the IDs of finished messages that are still in use
	records    keptUntil // the finished records
	gate       lifecycle.Gate
	// leased has the messages of live with a lease, also one that has run out. It is nil while
	// there is no MaxLeases.
	leased map[*message]struct{}
}

func newTopic() *topic {
	return &topic{
		settings:   punctual.DefaultSettings(),
		messages:   make(map[string]*message),
		remembered: keptUntil{byID: make(map[string]*kept)},
		records:    keptUntil{byID: make(map[string]*kept)},
	}
}

// message is a stored message.
type message struct {
	lifecycle.Message
	id, topic string
	body      []byte            // nil when empty; never changed
	headers   map[string]string // nil when empty; never changed
	// attributes are those of the push, in whole milliseconds; never changed. The rules read
	// Remember from lifecycle.Message.
	attributes storekit.Attributes
	created    int64 // when the message was pushed, in Unix ms
	delivered  int64 // when its last lease began, in Unix ms
	failures   []punctual.Failure

	seq   uint64      // grows with each push, so that messages with equal times are claimed in the order of their pushes
	queue *[]*message // the queue of its topic that the message is in: live or dead
	index int         // the place of the message in that queue
}

// public returns the message as users see it. The result shares no memory with m.
func (m *message) public() punctual.Message {
	out := punctual.Message{
		ID: m.id, Topic: m.topic, Body: bytes.Clone(m.body), Headers: maps.Clone(m.headers), Created: storekit.FromMillis(m.created),
	}
	m.Fill(&out)
	m.attributes.Set(&out)
	return out
}

func (m *message) info(now instant) punctual.Info {
	i := punctual.Info{
		Message:         m.public(),
		State:           m.State(now.ms),
		CancelRequested: m.CancelRequested,
		Reason:          m.Reason,
		Failures:        slices.Clone(m.failures),
	}
	switch i.State {
	case punctual.StateLeased:
		i.LeaseUntil = storekit.FromMillis(m.LeaseUntil)
	case punctual.StateDead:
		i.Died = storekit.FromMillis(m.Died)
	}
	return i
}

func (m *message) delivery(now instant) punctual.Delivery {
	return punctual.Delivery{
		Message:    m.public(),
		Token:      m.Token,
		Delivered:  now.time(),
		LeaseUntil: storekit.FromMillis(m.LeaseUntil),
		Failures:   slices.Clone(m.failures),
	}
}

// add stores a live message whose ID no stored message has. If the ID is that of a finished
// message, it is not remembered any more.
func (t *topic) add(m *message) {
	t.remembered.forget(m.id)
	t.messages[m.id] = m
	m.queue = &t.live
	byTime.Push(m.queue, m)
}

// bound begins to keep leased, or stops that, as the settings ask for, and cuts the gate to the
// rate.
func (t *topic) bound(now instant) {
	t.gate.Opens(t.settings.MaxRate, now.fine.UnixMicro())
	switch {
	case t.settings.MaxLeases == 0:
		t.leased = nil
	case t.leased == nil:
		t.leased = map[*message]struct{}{}
		for _, m := range t.live {
			t.count(m)
		}
	}
}

// count notes whether a message of the topic has a lease.
func (t *topic) count(m *message) {
	if t.leased == nil {
		return
	}
	if m.queue == &t.live && m.Token != 0 {
		t.leased[m] = struct{}{}
	} else {
		delete(t.leased, m)
	}
}

// remove removes a message and keeps neither its ID nor a finished record.
func (t *topic) remove(m *message) {
	delete(t.messages, m.id)
	byTime.Remove(m.queue, m)
	m.queue = nil
	t.count(m)
}

// apply carries out a decision about a message of the topic. Package lifecycle has changed the
// fields of m.Message already. apply adds the failure to the history, moves or removes the message,
// and adds the event if the topic tells of it.
func (s *Store) apply(t *topic, m *message, d lifecycle.Decision, now instant) {
	if d.Failed {
		m.failures = storekit.AddFailure(m.failures, d.Failure)
	}
	switch d.To {
	case lifecycle.Waiting, lifecycle.Leased:
		m.moveTo(&t.live)
		t.count(m)
	case lifecycle.Dead:
		m.moveTo(&t.dead)
		t.count(m)
	case lifecycle.Finished:
		t.remove(m)
		t.keep(m, d.Outcome, now)
	case lifecycle.Removed:
		t.remove(m)
	}
	if e, tell := m.Event(d, &t.settings, m.delivered, now.ms); tell {
		s.tell(m, e, now)
	}
}

// moveTo moves a message to the place in a queue of its topic that its time gives it.
func (m *message) moveTo(queue *[]*message) {
	if m.queue == queue {
		byTime.Fix(*queue, m)
		return
	}
	byTime.Remove(m.queue, m)
	m.queue = queue
	byTime.Push(m.queue, m)
}

// byTime orders the queues of a topic by time, and messages with equal times by the order of their
// pushes.
var byTime = heap.Order[*message]{
	Before: func(a, b *message) bool {
		x, y := a.At(), b.At()
		return x < y || x == y && a.seq < b.seq
	},
	Place: func(m *message) *int { return &m.index },
}
