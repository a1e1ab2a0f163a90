package pgstore

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/punctualmq/punctual"
)

// ackPaths remembers which statement the acks of a topic take, so that they do not begin with one that leaves them. An ack takes
// ack.sql unless something more is to be written than the removal of its message. What ackPaths remembers may be old, because
// another process has changed the settings of the topic meanwhile. Then an ack takes a statement more than it needs, or one that
// costs more.
type ackPaths struct {
	known atomic.Pointer[map[string]ackPath] // nil while all topics take ack.sql; what it points to never changes
	mu    sync.Mutex                         // held by whoever stores another one
}

// ackPath is a way to carry out acks.
type ackPath int

const (
	ackRemoves ackPath = iota // ack.sql: the message is removed, and nothing is kept
	ackKeeps                  // ack_keep.sql: an ID is to be remembered, or a finished record is kept
	ackTells                  // a transaction that reads the messages first: the topic tells of acks
)

// of returns the path of a topic's acks, as far as is known.
func (p *ackPaths) of(topic string) ackPath {
	if known := p.known.Load(); known != nil {
		return (*known)[topic]
	}
	return ackRemoves
}

// learn takes in the settings of topics, and that some messages have a Remember. A topic of which something was kept counts as
// such for as long as this process runs, because more messages with a Remember are likely to follow.
func (p *ackPaths) learn(l *locked) {
	for topic, set := range l.settings {
		path, known := ackRemoves, p.of(topic)
		switch {
		case set.Emit&punctual.EventAcked != 0:
			path = ackTells
		case set.DedupeWindow > 0 || set.FinishedRetention > 0 || known == ackKeeps:
			path = ackKeeps
		}
		if path != known {
			p.set(topic, path)
		}
	}
	for name, r := range l.rows {
		if r.Remember > 0 && p.of(name.topic) == ackRemoves {
			p.set(name.topic, ackKeeps)
		}
	}
}

func (p *ackPaths) set(topic string, path ackPath) {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed := make(map[string]ackPath)
	if known := p.known.Load(); known != nil {
		maps.Copy(changed, *known)
	}
	if changed[topic] = path; path == ackRemoves {
		delete(changed, topic)
	}
	p.known.Store(&changed)
}
