package memory

import "github.com/punctualmq/punctual/diskstore/internal/record"

// horizon is how far ahead of its due time, in ms, a message that was just pushed is kept in memory.
const horizon = 10_000

// Added is a message that a transaction stores, or moves on disk.
type Added struct {
	Topic  *Topic
	At     record.Position
	Record []byte
}

// Expected is what a transaction brings that is not durable yet.
type Expected struct {
	// Tokens is the limit below which the transaction reserves lease tokens on disk; 0 if it does not.
	Tokens   int64
	messages []*message
}

// Expect notes the messages that a transaction adds. They must not be claimed until Publish. When less than half a block of
// lease tokens is left it asks for the next one. A claim does not wait for an fsync, and its token must never be given out
// again. So tokens are used once they are durable. Called with the write lock held, before the transaction is applied.
func (x *Index) Expect(added []Added, now int64) (e Expected) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.tokens.limit-x.tokens.next < TokenBlock/2 {
		e.Tokens = x.tokens.limit + TokenBlock
	}
	if len(added) == 0 {
		return e
	}
	e.messages = make([]*message, len(added))
	for i, a := range added {
		m := &message{topic: a.Topic, next: a.At.Ms, lease: record.Lease{Topic: a.Topic.Num, At: a.At}}
		if a.At.Ms <= now+horizon {
			m.rec = a.Record
		}
		x.makeRoom(m.cost())
		if x.account.used()+m.cost() > x.account.bound() {
			m.rec = nil // it is read again when it is claimed
		}
		x.put(m, statePending)
		e.messages[i] = m
	}
	return e
}

// Publish puts messages on their timelines when their transaction is durable, unless they were taken away or moved
// meanwhile. They go into the window if the timeline is loaded up to them. They also do if it can be, because nothing
// on disk lies between. The lease tokens that it reserved may be given out.
func (x *Index) Publish(e Expected, now int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tokens.limit = max(x.tokens.limit, e.Tokens)
	for _, m := range e.messages {
		if m.state != statePending {
			continue
		}
		t, p := m.topic, m.lease.At
		if t.loaded.Less(p) {
			if !p.Less(t.diskNext) || p.Ms > now+horizon {
				x.detach(m)
				if t.searches > 0 && p.Less(t.published) {
					t.published = p
				}
				if p.Less(t.diskNext) {
					x.setDiskNext(t, p)
					x.wake(t, p.Ms)
				}
				continue
			}
			t.loaded = p
		}
		x.move(m, stateWindow)
		x.makeRoom(0)
		x.wake(t, p.Ms)
	}
}
