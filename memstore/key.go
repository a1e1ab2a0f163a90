package memstore

import (
	"iter"

	"github.com/punctualmq/punctual/internal/heap"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// key is what a topic keeps of a key. The messages of the key that are not dead are divided so:
//
//  1. Those with a lease, also one that has run out, are in topic.live. leases counts them.
//  2. One without a lease is in topic.live: the head, the first of all without one. There is no
//     head if there is no message without a lease, or if the key has as many leases as it may.
//  3. All others without a lease are in waiting, where no claim meets them.
//
// A topic forgets a key that has none of these once the key's rate has forgotten its leases.
type key struct {
	name    string
	waiting []*message
	head    *message
	leases  int
	gate    lifecycle.Gate
	// opened is the latest of these, in Unix ms: the last lease of the key began, the key ceased to
	// have as many leases as it may, the turn of a head that has left came. The turn of no message
	// comes before that. So keys take turns, and a wait for the key is no lateness.
	opened int64
	idle   bool // it is in topic.idle
}

func (k *key) empty() bool { return k.head == nil && k.leases == 0 && len(k.waiting) == 0 }

// keyOf returns the key of that name, and makes it if there is none.
func (t *topic) keyOf(name string) *key {
	k := t.keys[name]
	if k == nil {
		k = &key{name: name}
		t.keys[name] = k
	}
	return k
}

// waits reports whether m, which is ready, waits for its key: others come before it, or the bounds
// of the key let no lease begin.
func (t *topic) waits(m *message, now instant) bool {
	return m.key != nil && (m.queue == &m.key.waiting || m.turn > now.ms || m.Token != 0 && t.keyOpens(m.key, now) > now.ms)
}

// alive has all messages of the topic that are not dead.
func (t *topic) alive() iter.Seq[*message] {
	return func(yield func(*message) bool) {
		for _, m := range t.live {
			if !yield(m) {
				return
			}
		}
		for _, k := range t.keys {
			for _, m := range k.waiting {
				if !yield(m) {
					return
				}
			}
		}
	}
}

// order is the order of a queue of the topic.
func (t *topic) order(queue *[]*message) heap.Order[*message] {
	if queue == &t.live || queue == &t.dead {
		return byTime
	}
	return heap.Order[*message]{
		Before: func(a, b *message) bool {
			if lifecycle.BeforeInKey(&t.settings, &a.Message, &b.Message) {
				return true
			}
			return a.seq < b.seq && !lifecycle.BeforeInKey(&t.settings, &b.Message, &a.Message)
		},
		Place: byTime.Place,
	}
}

// arrange chooses the head of a key and its turn, after something of the key has changed.
func (t *topic) arrange(k *key, now instant) {
	full := lifecycle.KeyFull(&t.settings, k.leases)
	if k.head != nil && (full || len(k.waiting) > 0 && t.order(&k.waiting).Before(k.waiting[0], k.head)) {
		t.move(k.head, &k.waiting)
		k.head = nil
	}
	if k.head == nil && !full && len(k.waiting) > 0 {
		k.head = k.waiting[0]
	}
	if k.head != nil {
		k.head.turn = t.turn(k, now)
		t.move(k.head, &t.live)
	}
	if k.empty() && !k.idle {
		k.idle = true
		t.idle = append(t.idle, k)
	}
}

// turn returns when the turn of a key's head comes, in Unix ms.
func (t *topic) turn(k *key, now instant) int64 {
	return max(k.head.Due, k.opened, t.keyOpens(k, now))
}

// keyOpens returns when the rate lets the next lease of a key begin, in Unix ms.
func (t *topic) keyOpens(k *key, now instant) int64 {
	return k.gate.Opens(t.settings.MaxKeyRate, now.fine.UnixMicro())
}

// unhead takes note that the head of its key leaves.
func (m *message) unhead(now instant) {
	if m.key != nil && m.key.head == m {
		m.key.head, m.key.opened = nil, max(m.key.opened, min(m.turn, now.ms))
	}
}

// rearrange arranges all keys anew, after the settings or the clock have changed.
func (t *topic) rearrange(now instant) {
	for _, m := range t.live {
		m.turn = min(m.turn, max(m.Due, now.ms)) // a lease keeps the turn of its message
	}
	for _, k := range t.keys {
		k.opened = min(k.opened, now.ms)
		t.order(&k.waiting).Sort(k.waiting)
		if k.head != nil {
			k.head.turn = t.turn(k, now)
		}
	}
	byTime.Sort(t.live)
	for _, k := range t.keys {
		t.arrange(k, now)
	}
}

// forgetKeys forgets keys that have no message and whose rate has forgotten their leases.
func (t *topic) forgetKeys(now instant) {
	for len(t.idle) > 0 {
		k := t.idle[0]
		t.keyOpens(k, now) // which cuts the gate
		if k.empty() && t.settings.MaxKeyRate != (limits.Rate{}) && int64(k.gate) > now.fine.UnixMicro() {
			return
		}
		t.idle, k.idle = t.idle[1:], false
		if k.empty() {
			delete(t.keys, k.name)
		}
	}
}
