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

// topic holds a topic's messages. Every message is in messages and in exactly one of live and dead. An ID is in messages
// or in remembered, never in both.
type topic struct {
	settings punctual.Settings
	messages map[string]*message
	// live and dead are queues of byTime: live messages by when they next need attention, dead ones by when they died.
	live, dead []*message
	remembered keptUntil // the IDs of finished messages that are still in use
	stories    keptUntil // the finished records
}

func newTopic() *topic {
	return &topic{
		settings:   punctual.DefaultSettings(),
		messages:   make(map[string]*message),
		remembered: keptUntil{byID: make(map[string]*kept)},
		stories:    keptUntil{byID: make(map[string]*kept)},
	}
}

// message is a stored message.
type message struct {
	lifecycle.Message
	id, topic string
	body      []byte            // nil when empty, and never written to
	headers   map[string]string // the same
	created   int64             // when it was pushed, in ms
	delivered int64             // when its last lease began, in ms
	failures  []punctual.Failure

	seq   uint64      // orders equal times by arrival
	queue *[]*message // of its topic: live or dead
	index int         // in its queue
}

// public is the message as users see it, which shares nothing with m.
func (m *message) public() punctual.Message {
	out := punctual.Message{
		ID: m.id, Topic: m.topic, Body: bytes.Clone(m.body), Headers: maps.Clone(m.headers), Created: storekit.FromMillis(m.created),
	}
	m.Fill(&out)
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

// add stores a live message whose ID no other message has.
func (t *topic) add(m *message) {
	t.remembered.forget(m.id)
	t.messages[m.id] = m
	m.queue = &t.live
	byTime.Push(m.queue, m)
}

// remove takes a message out without a trace.
func (t *topic) remove(m *message) {
	delete(t.messages, m.id)
	byTime.Remove(m.queue, m)
}

// apply carries out what was decided about a message, whose facts are those after the decision.
func (t *topic) apply(m *message, d lifecycle.Decision, now instant) {
	if d.Failed {
		m.failures = storekit.AddFailure(m.failures, d.Failure)
	}
	switch d.To {
	case lifecycle.Waiting, lifecycle.Leased:
		m.moveTo(&t.live)
	case lifecycle.Dead:
		m.moveTo(&t.dead)
	case lifecycle.Finished:
		t.remove(m)
		t.keep(m, d.Outcome, now)
	case lifecycle.Removed:
		t.remove(m)
	}
}

// moveTo puts a message into a queue of its topic, in the place that its facts give it.
func (m *message) moveTo(queue *[]*message) {
	if m.queue == queue {
		byTime.Fix(*queue, m)
		return
	}
	byTime.Remove(m.queue, m)
	m.queue = queue
	byTime.Push(m.queue, m)
}

// byTime is the order of the queues of a topic: by time, then arrival.
var byTime = heap.Order[*message]{
	Before: func(a, b *message) bool {
		x, y := a.At(), b.At()
		return x < y || x == y && a.seq < b.seq
	},
	Place: func(m *message) *int { return &m.index },
}
