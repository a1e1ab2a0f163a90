package memstore

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/heap"
	"github.com/punctualmq/punctual/storekit"
)

// topic holds a topic's messages. Every message is in messages and in exactly one of
// live and dead. An ID is in messages or in finished, never in both.
type topic struct {
	settings punctual.Settings
	messages map[string]*message
	finished map[string]*message
	stories  map[string]*story // of finished messages that are kept, by ID

	// Queues of byTime. Live messages are in the order of when they next need attention, dead ones of when they died.
	// Finished ones are in the order of when their ID is forgotten.
	live, dead, memory []*message
	ending             []*story // the stories as a queue of byEnd
}

func newTopic() *topic {
	return &topic{
		settings: punctual.DefaultSettings(),
		messages: make(map[string]*message),
		finished: make(map[string]*message),
		stories:  make(map[string]*story),
	}
}

// message is a stored message. A finished one of which only the ID is remembered has
// nothing but ID and at.
type message struct {
	punctual.Message // Body and Headers are never written to

	// at is the one time that counts, in ms. It is the end of the lease while somebody holds one, else the due time.
	// For a dead message it is the time of death.
	at              int64
	seq             uint64        // orders equal times by arrival
	index           int           // in its queue
	expireAfter     time.Duration // from the first due time to Expires; 0 is never
	token           int64         // the current one, also after its lease ran out; 0 when there is none
	delivered       int64         // when its last lease began, in ms
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
		i.LeaseUntil = storekit.FromMillis(m.at)
	case punctual.StateDead:
		i.Died = storekit.FromMillis(m.at)
	}
	return i
}

func (m *message) delivery(now instant) punctual.Delivery {
	return punctual.Delivery{
		Message:    copyMessage(m.Message),
		Token:      m.token,
		Delivered:  now.time(),
		LeaseUntil: storekit.FromMillis(m.at),
		Failures:   slices.Clone(m.failures),
	}
}

// The transitions of a message's life. Each leaves the topic's invariants whole.

// add stores a live message whose ID is not taken.
func (t *topic) add(m *message) {
	t.forgetFinished(t.finished[m.ID])
	t.messages[m.ID] = m
	m.at = storekit.Millis(m.Due)
	byTime.Push(&t.live, m)
}

// remove takes a message out without a trace.
func (t *topic) remove(m *message) {
	delete(t.messages, m.ID)
	if m.reason != "" {
		byTime.Remove(&t.dead, m)
	} else {
		byTime.Remove(&t.live, m)
	}
}

// finish takes out a live message that was acked, cancelled or dropped, and keeps of it what the topic asks for.
func (t *topic) finish(m *message, outcome punctual.Outcome, now instant) {
	t.remove(m)
	if keep := storekit.CeilDuration(t.settings.FinishedRetention); keep > 0 {
		t.tell(m, outcome, now, keep)
	}
	if keep := storekit.CeilDuration(cmp.Or(m.Remember, t.settings.DedupeWindow)); keep > 0 {
		f := &message{Message: punctual.Message{ID: m.ID}, at: now.ms + keep}
		t.finished[f.ID] = f
		byTime.Push(&t.memory, f)
	}
}

// wait ends the lease, if any, of a live message and lets it wait for its due time.
func (t *topic) wait(m *message) {
	m.token, m.cancelRequested = 0, false
	m.at = storekit.Millis(m.Due)
	byTime.Fix(t.live, m)
}

// hold puts a live message under a lease until the given time.
func (t *topic) hold(m *message, until int64) {
	m.at = until
	byTime.Fix(t.live, m)
}

// die gives up on a live message.
func (t *topic) die(m *message, reason punctual.DeathReason, now instant) {
	byTime.Remove(&t.live, m)
	m.token, m.cancelRequested = 0, false
	m.reason, m.at = reason, now.ms
	byTime.Push(&t.dead, m)
}

// revive makes a dead message live.
func (t *topic) revive(m *message) {
	byTime.Remove(&t.dead, m)
	m.reason, m.at = "", storekit.Millis(m.Due)
	byTime.Push(&t.live, m)
}

func (t *topic) forgetFinished(f *message) {
	if f != nil {
		delete(t.finished, f.ID)
		byTime.Remove(&t.memory, f)
	}
}

// maxAttempts is the bound that holds for a message now (P6).
func (t *topic) maxAttempts(m *message) int {
	if m.MaxAttempts > 0 {
		return m.MaxAttempts
	}
	return t.settings.MaxAttempts
}

// byTime is the order of the queues of a topic: by time, then arrival.
var byTime = heap.Order[*message]{
	Before: func(a, b *message) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq },
	Place:  func(m *message) *int { return &m.index },
}
