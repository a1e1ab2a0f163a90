package memory

import "github.com/punctualmq/punctual/diskstore/internal/record"

// horizon is how long before its due time, in ms, a message may go into the window at once,
// although the window is not loaded up to it.
const horizon = 10_000

// Added is a message that a transaction stores, or moves to another position on disk.
type Added struct {
	Topic  *Topic
	At     record.Position
	Record []byte
}

// Expected is what a transaction adds to memory once it is durable.
type Expected struct {
	// Tokens is the limit below which the transaction reserves lease tokens on disk; 0 if it does
	// not.
	Tokens   int64
	messages []*message
}

// Expect puts the messages that a transaction adds into memory as pending: no claim gets them
// before Publish. If less than half a block of lease tokens is left, Expect asks the transaction to
// reserve the next block. A token must never be given out twice, also after a power cut, and a
// claim waits for no fsync, so tokens are given out only once their block is durable. Called with
// the write lock held, before the transaction is applied.
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
			m.rec = nil // a claim reads the record from disk
		}
		x.put(m, statePending)
		e.messages[i] = m
	}
	return e
}

// Publish puts the messages of a transaction on their timelines once the transaction is durable,
// except messages that another transaction has detached or moved since. A message goes into the
// window if the timeline is loaded up to its position, or if the message is due within the horizon
// and no message that is on disk alone comes before it. Otherwise it is left on disk alone. From
// now on the lease tokens that the transaction has reserved may be given out.
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
