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
// in messages and in exactly one of live, dead and the waiting of its key. An ID is in messages or
// in remembered, never in both. The store's mu guards a topic and its messages.
type topic struct {
	number   int64 // topics that were made later have greater numbers
	settings punctual.Settings
	messages map[string]*message
	// live and dead are queues in the order byTime: live messages by the time at which they next
	// need attention, dead ones by the time at which they died. Messages that wait for their key
	// are in neither.
	live, dead []*message
	keys       map[string]*key
	idle       []*key    // keys that had no message, in the order in which they lost the last one
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
		keys:       make(map[string]*key),
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

	key *key // nil for a message without one, and for a dead one, whose key the topic may forget
	// turn is when the turn of the head of a key comes, and when that of a leased message came. For
	// one whose lease has run out it may be later: when the rate of its key lets a lease begin.
	turn  int64
	held  bool        // it counts in key.leases
	seq   uint64      // grows with each push, so that messages with equal times are claimed in the order of their pushes
	queue *[]*message // the queue that the message is in: its topic's live or dead, or its key's waiting
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

func (t *topic) info(m *message, now instant) punctual.Info {
	i := punctual.Info{
		Message:         m.public(),
		State:           m.State(now.ms),
		CancelRequested: m.CancelRequested,
		Reason:          m.Reason,
		Failures:        slices.Clone(m.failures),
	}
	i.Waiting = i.State == punctual.StateReady && t.waits(m, now)
	switch i.State {
	case punctual.StateLeased:
		i.LeaseUntil = storekit.FromMillis(m.LeaseUntil)
	case punctual.StateDead:
		i.Died = storekit.FromMillis(m.Died)
	}
	return i
}

func (m *message) delivery(now instant) punctual.Delivery {
	d := punctual.Delivery{
		Message:    m.public(),
		Token:      m.Token,
		Delivered:  now.time(),
		LeaseUntil: storekit.FromMillis(m.LeaseUntil),
		Failures:   slices.Clone(m.failures),
	}
	if m.key != nil {
		d.Turn = storekit.FromMillis(max(m.Due, m.turn))
	}
	return d
}

// add stores a live message whose ID no stored message has. If the ID is that of a finished
// message, it is not remembered any more.
func (t *topic) add(m *message, now instant) {
	t.remembered.forget(m.id)
	t.messages[m.id] = m
	t.place(m, now)
}

// place moves a message to the queue to which it belongs by its facts, and lets the next of its key
// have its turn.
func (t *topic) place(m *message, now instant) {
	m.unhead(now)
	if m.key == nil && m.attributes.Key != "" {
		m.key = t.keyOf(m.attributes.Key)
	}
	switch {
	case m.Reason != "":
		t.move(m, &t.dead)
	case m.Token == 0 && m.key != nil:
		t.move(m, &m.key.waiting)
	default:
		t.move(m, &t.live)
	}
	t.count(m, now)
	if m.queue == &t.dead {
		m.key = nil
	}
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
			t.count(m, now)
		}
	}
}

// count notes whether a message of the topic has a lease, and arranges its key.
func (t *topic) count(m *message, now instant) {
	held := m.queue == &t.live && m.Token != 0
	switch {
	case t.leased == nil:
	case held:
		t.leased[m] = struct{}{}
	default:
		delete(t.leased, m)
	}
	k := m.key
	if k == nil {
		return
	}
	full := lifecycle.KeyFull(&t.settings, k.leases)
	switch {
	case held && !m.held:
		k.leases++
	case m.held && !held:
		k.leases--
	}
	m.held = held
	if full && !lifecycle.KeyFull(&t.settings, k.leases) {
		k.opened = now.ms
	}
	t.arrange(k, now)
}

// remove removes a message and keeps neither its ID nor a finished record.
func (t *topic) remove(m *message, now instant) {
	delete(t.messages, m.id)
	m.unhead(now)
	t.move(m, nil)
	t.count(m, now)
}

// apply carries out a decision about a message of the topic. Package lifecycle has changed the
// fields of m.Message already. apply adds the failure to the history, moves or removes the message,
// and adds the event if the topic tells of it.
func (s *Store) apply(t *topic, m *message, d lifecycle.Decision, now instant) {
	if d.Failed {
		m.failures = storekit.AddFailure(m.failures, d.Failure)
	}
	switch d.To {
	case lifecycle.Waiting, lifecycle.Leased, lifecycle.Dead:
		t.place(m, now)
	case lifecycle.Finished:
		t.remove(m, now)
		t.keep(m, d.Outcome, now)
	case lifecycle.Removed:
		t.remove(m, now)
	}
	if e, tell := m.Event(d, &t.settings, m.delivered, now.ms); tell {
		s.tell(m, e, now)
	}
}

// move moves a message to its place in a queue, or out of its queue if queue is nil.
func (t *topic) move(m *message, queue *[]*message) {
	if m.queue == queue && queue != nil {
		t.order(queue).Fix(*queue, m)
		return
	}
	if m.queue != nil {
		t.order(m.queue).Remove(m.queue, m)
	}
	if m.queue = queue; queue != nil {
		t.order(queue).Push(queue, m)
	}
}

// when is when a message of live next needs attention, and when one of dead died.
func (m *message) when() int64 {
	if m.key == nil {
		return m.At()
	}
	return max(m.At(), m.turn)
}

// byTime orders the queues of a topic by time, and messages with equal times by the order of their
// pushes.
var byTime = heap.Order[*message]{
	Before: func(a, b *message) bool {
		x, y := a.when(), b.when()
		return x < y || x == y && a.seq < b.seq
	},
	Place: func(m *message) *int { return &m.index },
}
