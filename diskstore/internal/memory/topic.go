package memory

import (
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/record"
)

// Topic is the timeline of one topic. Name and Num, which stands for it in keys, do not change; all else is guarded
// by Index.mu.
//
// The timeline is cut at loaded. Every message on disk at or before it that is durable is in memory. diskNext is a lower
// bound of the messages on disk behind it, MaxPosition if there are none.
type Topic struct {
	Name string
	Num  uint32
	x    *Index

	settings *punctual.Settings // replaced as a whole
	// messages are all that are in memory, by number.
	messages map[uint64]*message
	// pending, taken and finished have the messages in these states.
	pending, taken, finished messages
	// window has the messages in the window, which cost windowBytes, leases those leased: queues of byTime.
	window, leases []*message
	windowBytes    int64

	loaded   record.Position
	diskNext record.Position // written by setDiskNext
	evicted  int64           // how often the window was cut; tells the loader to look again

	// searches is how many searches are under way, published the first message that was published meanwhile and is on disk
	// alone.
	searches  int
	published record.Position

	windowAt, inHandAt, toLoadAt int // its places in Index.inWindow, inHand and toLoad, or -1
}

// Configure replaces the settings, which stay as they are.
func (t *Topic) Configure(settings *punctual.Settings) {
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	t.settings = settings
}

// Stored tells of a topic without messages in memory that there is none on disk below from, and whether there
// are any.
func (t *Topic) Stored(from record.Position, any bool) {
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	t.loaded = from.Prev()
	if any {
		t.x.setDiskNext(t, from)
	}
}

// Restore brings back a lease, or one that ran out.
func (t *Topic) Restore(l record.Lease, id string, cancelled, remembers bool) {
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	t.x.put(&message{topic: t, next: l.Until, lease: l, id: id, cancelled: cancelled, remembers: remembers}, stateLeased)
}

// RestoreFinished brings back an ack whose message is still on disk.
func (t *Topic) RestoreFinished(at record.Position, id string) {
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	t.x.put(&message{topic: t, lease: record.Lease{Topic: t.Num, At: at}, id: id}, stateFinished)
}

// Clear takes all messages of a topic out of memory, because all that are live are being deleted from disk. finished is how many
// of them are finished and still on disk. Called with the write lock held.
func (t *Topic) Clear() (finished int) {
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	return t.clear()
}

// clear is Clear, called with mu held.
func (t *Topic) clear() (finished int) {
	finished = len(t.finished)
	for _, m := range t.messages {
		t.x.detach(m)
	}
	t.x.setDiskNext(t, record.MaxPosition)
	return finished
}

// Drop takes a topic that is being deleted out of memory, with everything in it. finished is how many of its messages are
// finished and still on disk. Called with the write lock held.
func (t *Topic) Drop() (finished int) {
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	delete(t.x.topics, t.Name)
	return t.clear()
}

// Lowest is the place of the first message that is on disk and not dead, or a lower bound of it. It is now if there is
// none. Called with the write lock held.
func (t *Topic) Lowest(now int64) record.Position {
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	low := t.diskNext
	if len(t.window) > 0 && t.window[0].lease.At.Less(low) {
		low = t.window[0].lease.At
	}
	for _, list := range [][]*message{t.pending, t.taken, t.leases, t.finished} {
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
