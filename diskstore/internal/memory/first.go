package memory

import "github.com/punctualmq/punctual/diskstore/internal/record"

// First is the message of a topic whose time came first, whether deliveries are paused or not.
type First struct {
	At        record.Position // of the message on disk
	Next      int64           // when its time came, in Unix milliseconds: its due time, or the end of its lease
	Record    []byte          // the stored record; nil if it must be read
	Lease     record.Lease    // its last lease, which has run out; token 0 if there was none
	Cancelled bool            // no attempt may follow that lease (P5)
}

// Before tells whether the time of f came before that of a message on disk alone at a position. The
// message with the smaller number comes first among messages with equal times.
func (f First) Before(p record.Position) bool {
	return f.Next < p.Ms || f.Next == p.Ms && f.At.Seq < p.Seq
}

// First returns the first of the topic's messages in the window or under a lease whose time has
// come at now; ok is false if there is none. The time of a message on disk alone, at onDisk or
// after it, may have come earlier.
func (t *Topic) First(now int64) (f First, ok bool, onDisk record.Position) {
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	var m *message
	if len(t.window) > 0 {
		m = t.window[0]
	}
	if len(t.leases) > 0 && (m == nil || byTime.Before(t.leases[0], m)) {
		m = t.leases[0]
	}
	if m == nil || m.next > now {
		return First{}, false, t.diskNext
	}
	return First{At: m.lease.At, Next: m.next, Record: m.rec, Lease: m.lease, Cancelled: m.cancelled}, true, t.diskNext
}

// Has tells whether the message with a number is in memory.
func (t *Topic) Has(seq uint64) bool {
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	return t.messages[seq] != nil
}

// DetachFirst removes the message f, which First has returned or which was on disk alone, from
// memory, unless a claim or a settlement has acted on the message since: then ok is false. Called
// with the write lock held since f was found.
func (t *Topic) DetachFirst(f First) (d Detached, ok bool) {
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	m := t.messages[f.At.Seq]
	if m == nil { // on disk alone, perhaps since the window was cut
		return t.detach(f.At), true
	}
	if m.state != stateWindow && m.state != stateLeased || m.lease.Token != f.Lease.Token || m.lease.Renewed != f.Lease.Renewed {
		return Detached{}, false
	}
	return t.x.detach(m), true
}
