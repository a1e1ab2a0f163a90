package diskstore

import (
	"container/heap"
	"slices"

	"github.com/punctualmq/punctual"
)

// entry is a message in memory: near its due time, taken by a claim, or leased. All fields are guarded
// by Store.mu, but topic and key, which do not change; whoever unlinked an entry may read it
// without.
type entry struct {
	topic *topic
	key   pos   // where the message stands on disk
	next  int64 // when it next needs attention: key.ms, or the end of its lease
	state entryState
	// rec is the stored record while the entry is near, or nil if it must be read.
	rec []byte

	// The rest is valid once the entry was leased (held), and tells of its last lease.

	id      string
	token   int64
	renewed uint64 // how often this lease was extended
	attempt int
	cancel  bool // no further attempt after this one
	// lapses are the failures of earlier attempts whose leases ran out. They reach the
	// disk with the next change of the record; the claim log keeps them until then.
	lapses []punctual.Failure
}

// nearHorizon is how far ahead of its due time, in ms, a message that was just pushed is
// kept in memory.
const nearHorizon = 10_000

type entryState uint8

const (
	near   entryState = iota
	taken             // by a claim that has not counted the attempt yet
	leased            // also when the lease ran out
	gone              // settled, cancelled, moved or evicted; only stale queue items refer to it
)

// entryBytes is what an entry costs in memory beside its record.
const entryBytes = 200

// held tells whether there was a lease since the record was written. Then the entry knows more
// than the record.
func (e *entry) held() bool { return e.token != 0 }

// addTo adds to the record what the leases since it was written have added, and returns the
// failures among that.
func (e *entry) addTo(r *record) []punctual.Failure {
	if !e.held() {
		return nil
	}
	r.attempts, r.token = e.attempt, e.token
	for _, f := range e.lapses {
		r.failures = punctual.AddFailure(r.failures, f)
	}
	return e.lapses
}

func (e *entry) cost() int64 { return int64(len(e.rec)) + entryBytes }

// topic is one topic in memory. Fields are guarded by Store.mu unless said otherwise.
//
// The timeline of a topic is cut at loaded: every message on disk at or before it that
// is durable is in memory, near, taken or leased; diskNext is a lower bound of the messages
// on disk behind it (maxPos if there are none).
type topic struct {
	name string
	num  uint32 // its number in keys

	settings   punctual.Settings // written with the sequencer held too
	live, dead int64             // counts as stored; written and read with the sequencer held too
	acked      int64             // how many of live are finished; see acked.go

	near     queue             // messages near their due time
	nears    int               // how many
	leases   queue             // leased messages at the ends of their leases
	leased   map[uint64]*entry // the same by number, and those that a claim has taken
	loaded   pos
	diskNext pos
	evicted  int64 // how often the near part was cut; tells the loader to look again

	// mark is the stored watermark: no live message lies below. Written with the
	// sequencer held too.
	mark pos
}

func newTopic(name string, num uint32) *topic {
	return &topic{
		name: name, num: num, settings: punctual.DefaultSettings(), leased: make(map[uint64]*entry),
		loaded: minPos, diskNext: maxPos, mark: minPos,
	}
}

// head is the entry that needs attention first, or nil.
func (t *topic) head() *entry {
	n, l := t.near.head(), t.leases.head()
	switch {
	case n == nil:
		return l
	case l == nil || n.next <= l.next:
		return n
	}
	return l
}

// nextAt is when the topic next needs attention, and false if never as things stand.
func (t *topic) nextAt() (int64, bool) {
	if t.settings.PausedOut {
		return 0, false
	}
	next, ok := t.diskNext.ms, t.diskNext != maxPos
	if e := t.head(); e != nil && (!ok || e.next < next) {
		next, ok = e.next, true
	}
	return next, ok
}

// queue orders entries by their time of next attention. Entries that changed since are
// left in it as stale items, skipped at the head and swept when they are the
// majority, so that ack and cancel cost nothing here.
type queue struct{ items items }

// item is an entry with its time when it was added; stale once they differ or a claim took it.
type item struct {
	next int64
	e    *entry
}

func (i item) stale() bool { return i.e.state == gone || i.e.state == taken || i.e.next != i.next }

// head returns the first entry, or nil.
func (q *queue) head() *entry {
	for len(q.items) > 0 {
		if i := q.items[0]; !i.stale() {
			return i.e
		}
		heap.Pop(&q.items)
	}
	return nil
}

// pop takes off the entry that head returned.
func (q *queue) pop() { heap.Pop(&q.items) }

// add puts an entry in. live is how many entries the queue holds that are not stale.
func (q *queue) add(e *entry, live int) {
	if len(q.items) > 2*live+1024 {
		q.sweep()
	}
	heap.Push(&q.items, item{e.next, e})
}

func (q *queue) sweep() {
	q.items = slices.DeleteFunc(q.items, item.stale)
	heap.Init(&q.items)
}

// cut removes the later half of the entries and returns them, the earliest first.
func (q *queue) cut() []item {
	q.sweep()
	slices.SortFunc(q.items, func(a, b item) int {
		if a.e.key.less(b.e.key) {
			return -1
		}
		return 1
	})
	half := len(q.items) / 2
	out := slices.Clone(q.items[half:])
	clear(q.items[half:])
	q.items = q.items[:half] // sorted, so a heap
	return out
}

// items implements heap.Interface.
type items []item

func (h items) Len() int { return len(h) }
func (h items) Less(i, j int) bool {
	return h[i].next < h[j].next || h[i].next == h[j].next && h[i].e.key.seq < h[j].e.key.seq
}
func (h items) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *items) Push(x any)   { *h = append(*h, x.(item)) }
func (h *items) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = item{}
	*h = old[:len(old)-1]
	return x
}
