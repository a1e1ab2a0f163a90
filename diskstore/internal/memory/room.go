package memory

import (
	"cmp"
	"slices"
)

// account adds up what the messages in memory cost, in bytes and over all topics (P10). It is
// guarded by Index.mu. Every message is charged to at most one of window, pending and leased.
type account struct {
	limit   int64
	window  int64 // messages in the window, with their records
	pending int64 // messages whose transaction is not durable yet
	leased  int64 // messages reserved or leased: the work in hand
	reading int64 // kept free for what is being loaded
}

// bound is what messages in the window, pending messages and loads may cost: the limit less what
// reserved and leased messages cost. Leases are never refused, so a quarter of the limit is kept
// for the others, whatever the leases cost.
func (a *account) bound() int64 { return max(a.limit-a.leased, a.limit/4) }

// used is what messages in the window and pending messages cost, with the room that is reserved for
// loads under way.
func (a *account) used() int64 { return a.window + a.pending + a.reading }

// batchBytes is what a batch of the loader costs at most, but for its last message.
func (a *account) batchBytes() int64 { return min(loadBytes, a.bound()/4) }

// hasRoom tells whether the loader may load ahead.
func (a *account) hasRoom() bool { return a.used() < a.bound()/2 }

// makeRoom cuts windows when n bytes more would exceed the bound. It cuts down to half of the
// bound, so that it is seldom needed. The topics with the largest windows lose most, so that a
// topic with a backlog leaves room for the others (P14). Called with mu held.
func (x *Index) makeRoom(n int64) {
	a := &x.account
	if a.used()+n <= a.bound() {
		return
	}
	level := x.level(a.bound()/2 - n - a.pending - a.reading)
	for _, t := range slices.Backward(x.inWindow.topics) { // a topic that is cut to nothing leaves the list
		if t.windowBytes > level {
			x.cut(t, level)
		}
	}
}

// level is how many bytes each topic may keep in its window so that all topics together keep at
// most goal. For instance with windows of 1, 5 and 9 bytes and a goal of 9 the level is 4. It is
// Never if all windows together cost no more than goal. Called with mu held.
func (x *Index) level(goal int64) int64 {
	costs := make([]int64, len(x.inWindow.topics))
	for i, t := range x.inWindow.topics {
		costs[i] = t.windowBytes
	}
	slices.Sort(costs)
	for i, c := range costs {
		share := max(goal, 0) / int64(len(costs)-i)
		if c > share {
			return share
		}
		goal -= c
	}
	return Never
}

// cut removes the latest messages of a topic's window from memory, so that the rest costs at most
// keep. The removed messages are on disk and will be loaded again. Called with mu held.
func (x *Index) cut(t *Topic, keep int64) {
	slices.SortFunc(t.window, func(a, b *message) int { // the sorted window is still a heap of byTime
		return cmp.Or(cmp.Compare(a.next, b.next), cmp.Compare(a.lease.At.Seq, b.lease.At.Seq))
	})
	n := 0
	for i, m := range t.window {
		m.place = i
		if n == i && m.charged <= keep {
			keep -= m.charged
			n++
		}
	}
	for len(t.window) > n {
		m := t.window[len(t.window)-1]
		if m.lease.At.Less(t.diskNext) {
			x.setDiskNext(t, m.lease.At)
		}
		if p := m.lease.At.Prev(); p.Less(t.loaded) {
			t.loaded = p
		}
		x.detach(m)
	}
	t.evicted++
}
