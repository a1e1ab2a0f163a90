package memstore

import (
	"bytes"
	"container/heap"
	"maps"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
)

// topic holds a topic's messages. Every message is in messages and in exactly one of
// live and dead. An ID is in messages or in finished, never in both.
type topic struct {
	settings punctual.Settings
	messages map[string]*message
	live     timeline // by the time they next need attention
	dead     timeline // by the time they died
	finished map[string]*message
	memory   timeline // the finished, by the time at which their ID is forgotten
}

func newTopic() *topic {
	return &topic{
		settings: punctual.DefaultSettings(),
		messages: make(map[string]*message),
		finished: make(map[string]*message),
	}
}

// message is a stored message. A finished one of which only the ID is remembered has
// nothing but ID and at.
type message struct {
	punctual.Message // Body and Headers are never written to

	// at is the one time that counts, in ms: the due time while nobody holds a lease, else
	// the end of the lease; the time of death of a dead one.
	at              int64
	seq             uint64        // orders equal times by arrival
	index           int           // in its timeline
	expireAfter     time.Duration // from the first due time to Expires; 0 is never
	token           int64         // the current one, also after its lease ran out; 0 when there is none
	cancelRequested bool          // implies a token
	reason          punctual.DeathReason
	failures        []punctual.Failure // replaced as a whole by AddFailure, never written to
}

func (m *message) state(now instant) punctual.State {
	switch {
	case m.reason != "":
		return punctual.StateDead
	case m.at <= now.ms:
		return punctual.StateReady
	case m.token != 0:
		return punctual.StateLeased
	}
	return punctual.StateScheduled
}

// copyMessage returns a message that shares nothing with m; an empty body or header
// is nil.
func copyMessage(m punctual.Message) punctual.Message {
	m.Body, m.Headers = bytes.Clone(m.Body), maps.Clone(m.Headers)
	if len(m.Body) == 0 {
		m.Body = nil
	}
	if len(m.Headers) == 0 {
		m.Headers = nil
	}
	return m
}

func (m *message) info(now instant) punctual.Info {
	i := punctual.Info{
		Message:         copyMessage(m.Message),
		State:           m.state(now),
		CancelRequested: m.cancelRequested,
		Reason:          m.reason,
		Failures:        slices.Clone(m.failures),
	}
	switch i.State {
	case punctual.StateLeased:
		i.LeaseUntil = punctual.FromMillis(m.at)
	case punctual.StateDead:
		i.Died = punctual.FromMillis(m.at)
	}
	return i
}

func (m *message) delivery(now instant) punctual.Delivery {
	return punctual.Delivery{
		Message:    copyMessage(m.Message),
		Token:      m.token,
		Delivered:  now.time(),
		LeaseUntil: punctual.FromMillis(m.at),
		Failures:   slices.Clone(m.failures),
	}
}

// The transitions of a message's life. Each leaves the topic's invariants whole.

// add stores a live message whose ID is not taken.
func (t *topic) add(m *message) {
	t.forgetFinished(t.finished[m.ID])
	t.messages[m.ID] = m
	m.at = punctual.Millis(m.Due)
	heap.Push(&t.live, m)
}

// remove takes a message out without a trace.
func (t *topic) remove(m *message) {
	delete(t.messages, m.ID)
	if m.reason != "" {
		heap.Remove(&t.dead, m.index)
	} else {
		heap.Remove(&t.live, m.index)
	}
}

// finish takes out a live message that was acked, cancelled or dropped.
func (t *topic) finish(m *message, now instant) {
	t.remove(m)
	if keep := punctual.CeilDuration(t.settings.Remember); keep > 0 {
		f := &message{Message: punctual.Message{ID: m.ID}, at: now.ms + keep}
		t.finished[f.ID] = f
		heap.Push(&t.memory, f)
	}
}

// wait ends the lease, if any, of a live message and lets it wait for its due time.
func (t *topic) wait(m *message) {
	m.token, m.cancelRequested = 0, false
	m.at = punctual.Millis(m.Due)
	heap.Fix(&t.live, m.index)
}

// hold puts a live message under a lease until the given time.
func (t *topic) hold(m *message, until int64) {
	m.at = until
	heap.Fix(&t.live, m.index)
}

// die gives up on a live message.
func (t *topic) die(m *message, reason punctual.DeathReason, now instant) {
	heap.Remove(&t.live, m.index)
	m.token, m.cancelRequested = 0, false
	m.reason, m.at = reason, now.ms
	heap.Push(&t.dead, m)
}

// revive makes a dead message live.
func (t *topic) revive(m *message) {
	heap.Remove(&t.dead, m.index)
	m.reason, m.at = "", punctual.Millis(m.Due)
	heap.Push(&t.live, m)
}

// forget lets go of dead messages and finished IDs that were kept long enough. It runs
// before anything looks at the topic or changes its settings, so that what is seen never
// depends on when it last ran.
func (t *topic) forget(now instant) {
	if keep := punctual.CeilDuration(t.settings.DeadRetention); keep > 0 {
		for len(t.dead) > 0 && t.dead[0].at+keep <= now.ms {
			t.remove(t.dead[0])
		}
	}
	for len(t.memory) > 0 && t.memory[0].at <= now.ms {
		t.forgetFinished(t.memory[0])
	}
}

func (t *topic) forgetFinished(f *message) {
	if f != nil {
		delete(t.finished, f.ID)
		heap.Remove(&t.memory, f.index)
	}
}

// maxAttempts is the bound that holds for a message now (P6).
func (t *topic) maxAttempts(m *message) int {
	if m.MaxAttempts > 0 {
		return m.MaxAttempts
	}
	return t.settings.MaxAttempts
}

// timeline is a heap of messages by time, then arrival. It implements heap.Interface and
// keeps each message's index.
type timeline []*message

func (l timeline) Len() int { return len(l) }

func (l timeline) Less(i, j int) bool {
	if l[i].at != l[j].at {
		return l[i].at < l[j].at
	}
	return l[i].seq < l[j].seq
}

func (l timeline) Swap(i, j int) {
	l[i], l[j] = l[j], l[i]
	l[i].index, l[j].index = i, j
}

// Push appends x, a *message.
func (l *timeline) Push(x any) {
	m := x.(*message)
	m.index = len(*l)
	*l = append(*l, m)
}

// Pop removes the last message.
func (l *timeline) Pop() any {
	last := len(*l) - 1
	m := (*l)[last]
	(*l)[last] = nil
	*l = (*l)[:last]
	return m
}
