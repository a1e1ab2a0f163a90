package pgstore

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/punctualmq/punctual"
)

// ackPath is how acks of a topic begin. The statement of a path leaves what it cannot do, and a
// transaction then carries that out (settleAny). So a path that does not fit costs time and nothing
// else.
type ackPath uint8

const (
	ackRemoves ackPath = iota // by ack.sql: nothing stays of a message
	ackKeeps                  // by ack_keep.sql: IDs are remembered or finished records kept
	ackTells                  // by a transaction, because the topic tells of acks
)

// ackPaths remembers the paths of topics as this process has learned them last: by claims, by
// transactions that lock messages, and by acks.
type ackPaths struct {
	known atomic.Pointer[map[string]ackPath] // without topics of path ackRemoves; nil at first; the map that it points to never changes
	mu    sync.Mutex                         // held by whoever stores another map
}

// of returns the path of a topic, as far as is known.
func (p *ackPaths) of(topic string) ackPath {
	known := p.known.Load()
	if known == nil {
		return ackRemoves
	}
	return (*known)[topic]
}

// pathOf returns the path that the settings of a topic ask for. claim.sql has the same rule.
func pathOf(set *punctual.Settings) ackPath {
	switch {
	case set.Emit&punctual.EventAcked != 0:
		return ackTells
	case set.DedupeWindow > 0 || set.FinishedRetention > 0:
		return ackKeeps
	}
	return ackRemoves
}

// learn takes in the path that the settings of a topic ask for. If that is ackRemoves, single
// messages may still need ackKeeps (see keeps), so a topic of that path stays there until an ack
// has found nothing to keep.
func (p *ackPaths) learn(topic string, path ackPath) {
	if path == ackRemoves && p.of(topic) == ackKeeps {
		return
	}
	p.set(topic, path)
}

// keeps takes in that a message of the topic was or will be remembered, whatever the topic's
// settings are.
func (p *ackPaths) keeps(topic string) {
	if p.of(topic) == ackRemoves {
		p.set(topic, ackKeeps)
	}
}

// keepsNot takes in that an ack by ack_keep.sql has removed all its messages and found nothing to
// keep.
func (p *ackPaths) keepsNot(topic string) {
	if p.of(topic) == ackKeeps {
		p.set(topic, ackRemoves)
	}
}

func (p *ackPaths) set(topic string, path ackPath) {
	if p.of(topic) == path {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	changed := make(map[string]ackPath)
	if known := p.known.Load(); known != nil {
		maps.Copy(changed, *known)
	}
	if delete(changed, topic); path != ackRemoves {
		changed[topic] = path
	}
	p.known.Store(&changed)
}
