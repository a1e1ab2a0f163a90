package memory

import (
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// Topic is the timeline of one topic. Name and Num, which stands for it in keys, do not change; all
// else is guarded by Index.mu.
//
// The timeline is in memory up to the position loaded: every durable message at or before loaded is
// in memory. diskNext is a lower bound of the positions of the messages that are on disk alone,
// MaxPosition if there are none.
type Topic struct {
	Name string
	Num  uint32
	x    *Index

	settings *punctual.Settings // replaced as a whole
	// messages has all messages of the topic that are in memory, by number.
	messages map[uint64]*message
	// pending, reserved and acked have the messages in the states of these names.
	pending, reserved, acked messages
	// window has the messages in the window, which cost windowBytes, and leases has the leased
	// ones. Both are heaps of byTime.
	window, leases []*message
	windowBytes    int64
	// gate is not known after a restart, and so far ahead that the next lease waits for one
	// interval.
	gate lifecycle.Gate

	loaded   record.Position
	diskNext record.Position // written by setDiskNext
	evicted  int64           // how often the window was cut; a load that sees it change discards what it has read

	// searches is how many searches are under way. published is the lowest position of the messages
	// that were published meanwhile and are on disk alone; MaxPosition if there are none.
	searches  int
	published record.Position

	windowAt, inHandAt, toLoadAt int // the topic's places in Index.inWindow, inHand and toLoad, or -1
}

// Configure replaces the settings, at now in Unix ms. Nobody may change the new ones afterwards.
func (t *Topic) Configure(settings *punctual.Settings, now int64) {
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	t.settings = settings
	t.opens(now)
}

// full reports whether the topic has as many leases as it may, those included that claims are about
// to make.
func (t *Topic) full() bool {
	return lifecycle.Full(t.settings, len(t.leases)+len(t.reserved))
}

// opens returns the time at which the rate lets a lease begin beside those that claims are about to
// make, in Unix ms.
func (t *Topic) opens(now int64) int64 {
	t.gate.Opens(t.settings.MaxRate, now*1000) // which cuts the gate
	ahead := t.gate
	ahead.Begin(t.settings.MaxRate, now*1000, len(t.reserved))
	return ahead.Opens(t.settings.MaxRate, now*1000)
}

// Stored records that a topic, which has no messages in memory yet, has no live message on disk
// below from, so that loads start at from. any says whether the topic has live messages on disk at
// all.
func (t *Topic) Stored(from record.Position, any bool) {
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	t.loaded = from.Prev()
	t.gate = lifecycle.Gate(Never / 2)
	if any {
		t.x.setDiskNext(t, from)
	}
}

// Restore puts a leased message into memory when the store is opened. The lease may have run out.
func (t *Topic) Restore(l record.Lease, id string, cancelled, remembers bool) {
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	t.x.put(&message{topic: t, next: l.Until, lease: l, id: id, cancelled: cancelled, remembers: remembers}, stateLeased)
}

// RestoreAcked puts a message into memory that is acked and still on disk, when the store is
// opened.
func (t *Topic) RestoreAcked(at record.Position, id string) {
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	t.x.put(&message{topic: t, lease: record.Lease{Topic: t.Num, At: at}, id: id}, stateAcked)
}

// Clear removes all messages of a topic from memory, because all its live messages are being
// deleted from disk. acked is how many of them are acked and still on disk. Called with the write
// lock held.
func (t *Topic) Clear() (acked int) {
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	return t.clear()
}

// clear is Clear, called with mu held.
func (t *Topic) clear() (acked int) {
	acked = len(t.acked)
	for _, m := range t.messages {
		t.x.detach(m)
	}
	t.x.setDiskNext(t, record.MaxPosition)
	return acked
}

// Drop removes a topic that is being deleted from memory, with all its messages. acked is how many
// of them are acked and still on disk. Called with the write lock held.
func (t *Topic) Drop() (acked int) {
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	delete(t.x.topics, t.Name)
	return t.clear()
}

// Lowest is a lower bound of the positions of the topic's live messages on disk, acked ones
// included; now if there are none. Called with the write lock held.
func (t *Topic) Lowest(now int64) record.Position {
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	low := t.diskNext
	if len(t.window) > 0 && t.window[0].lease.At.Less(low) {
		low = t.window[0].lease.At
	}
	for _, list := range [][]*message{t.pending, t.reserved, t.leases, t.acked} {
		for _, m := range list {
			if m.lease.At.Less(low) {
				low = m.lease.At
			}
		}
	}
	if low == record.MaxPosition {
		return record.Position{Ms: now}
	}
	return low
}
