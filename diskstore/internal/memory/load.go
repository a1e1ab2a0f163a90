package memory

import (
	"cmp"
	"slices"

	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/internal/heap"
)

const (
	loadBytes = 4 << 20 // how many bytes a load reads at most, but for its last message
	loadLead  = 1_000   // how long before its due time the next message on disk is loaded, ms
)

// LoadHint returns a channel on which a value comes when there may be something to load before the
// time that NextLoad has returned.
func (x *Index) LoadHint() <-chan struct{} { return x.loadHint }

func (x *Index) hintLoader() {
	select {
	case x.loadHint <- struct{}{}:
	default:
	}
}

// NextLoad returns when the loader has work next, but no time before notBefore; Never if there is
// nothing to load, or no room.
func (x *Index) NextLoad(notBefore int64) int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.loaderUntil, x.crowded = Never, !x.account.hasRoom()
	if len(x.toLoad) > 0 && !x.crowded {
		x.loaderUntil = max(notBefore, x.toLoad[0].diskNext.Ms-loadLead)
	}
	return x.loaderUntil
}

// Loads returns the topics that are to be loaded ahead at now, the earliest first.
func (x *Index) Loads(now int64) []*Topic {
	x.mu.Lock()
	defer x.mu.Unlock()
	ts := heap.First(x.toLoad, func(t *Topic) bool { return t.diskNext.Ms <= now+loadLead })
	slices.SortFunc(ts, func(a, b *Topic) int { return cmp.Compare(a.diskNext.Ms, b.diskNext.Ms) })
	return ts
}

// HasRoom tells whether there is room to load ahead.
func (x *Index) HasRoom() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.account.hasRoom()
}

// Search is a search for the first message of a topic that is on disk alone. EndSearch or
// AbandonSearch ends it.
type Search struct {
	Topic *Topic
	From  record.Position // no message below is on disk alone
	Room  int64           // how many bytes the messages of the next load may cost at most, but for the last of them

	evicted int64
}

// BeginSearch begins a search. The search itself needs no lock, because it may have to pass many
// deleted messages, and no push is to wait for that. It reads the disk after BeginSearch, so it
// finds every message that was published before; EndSearch adds those that are published meanwhile.
// ok is false when no message is on disk alone.
func (t *Topic) BeginSearch() (s Search, ok bool) {
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	if t.diskNext == record.MaxPosition {
		return Search{}, false
	}
	if t.searches == 0 {
		t.published = record.MaxPosition
	}
	t.searches++
	return Search{Topic: t, From: t.diskNext, Room: t.x.account.batchBytes(), evicted: t.evicted}, true
}

// EndSearch ends a search: found is the first message on disk from Search.From on, MaxPosition if
// there is none. The next load begins there, or at a message that was published meanwhile and lies
// before it. EndSearch discards found if the window was cut meanwhile, or if a load or a new
// message has changed where the next load begins.
func (x *Index) EndSearch(s Search, found record.Position) {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := s.Topic
	t.searches--
	if t.published.Less(found) {
		found = t.published
	}
	if t.evicted == s.evicted && t.diskNext == s.From && s.From.Less(found) {
		x.setDiskNext(t, found)
	}
}

// AbandonSearch ends a search that has failed.
func (x *Index) AbandonSearch(s Search) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s.Topic.searches--
}

// Load is one load of a topic's messages from disk into the window. Merge or Abandon ends it.
type Load struct {
	Topic *Topic
	From  record.Position // the load begins after this position
	Until int64           // and ends with the last message due at this time
	Room  int64           // how many bytes the messages may cost, but for the last of them

	evicted int64 // Topic.evicted when the load was begun
}

// BeginLoad begins a load of the messages that are due at until, and reserves room for them. ok is
// false when all of these messages are in memory. Called with the write lock held, which the caller
// keeps until the load ends, because no message may be added to the disk or deleted from it
// meanwhile.
func (t *Topic) BeginLoad(until int64) (l Load, ok bool) {
	x := t.x
	x.mu.Lock()
	defer x.mu.Unlock()
	if t.diskNext.Ms > until {
		return Load{}, false
	}
	a := &x.account
	x.makeRoom(a.batchBytes())
	room := min(max(a.bound()-a.used(), 0), a.batchBytes())
	a.reading += room
	from := t.loaded
	if p := t.diskNext.Prev(); from.Less(p) {
		from = p // no message between the two is on disk alone
	}
	return Load{Topic: t, From: from, Until: until, Room: room, evicted: t.evicted}, true
}

// Abandon ends a load that has failed.
func (x *Index) Abandon(l Load) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.account.reading -= l.Room
	x.roomMade()
}

// Merge ends a load: it puts the messages that were read into the window, and reserves up to n
// messages that are due at now. Both are one step, so that the window cannot be cut in between.
// next is the position of the first message after those that were read, MaxPosition if there is
// none. If the window was cut since BeginLoad, Merge discards what was read, because the messages
// that were cut are missing in it.
func (x *Index) Merge(l Load, read []record.Stored, next record.Position, n int, now int64) []*Reserved {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := l.Topic
	x.account.reading -= l.Room
	if t.evicted == l.evicted {
		for _, s := range read {
			if t.messages[s.At.Seq] == nil { // else the message is in memory already: pending, reserved, leased, acked, or in the window
				x.put(&message{topic: t, next: s.At.Ms, rec: s.Record, lease: record.Lease{Topic: t.Num, At: s.At}}, stateWindow)
			}
		}
		reached := record.Position{Ms: l.Until, Seq: 1<<64 - 1}
		if !reached.Less(next) {
			reached = t.loaded
			if len(read) > 0 {
				reached = read[len(read)-1].At
			}
		}
		if t.loaded.Less(reached) {
			t.loaded = reached
		}
		x.setDiskNext(t, next)
	}
	x.roomMade()
	return x.reserve(t, now, n).Reserved
}

// roomMade wakes the loader if it waits for room and there is room now. Called with mu held.
func (x *Index) roomMade() {
	if x.crowded && x.account.hasRoom() {
		x.hintLoader()
	}
}

// setDiskNext sets the lower bound of the topic's messages that are on disk alone. Called with mu
// held.
func (x *Index) setDiskNext(t *Topic, p record.Position) {
	t.diskNext = p
	x.planLoad(t)
}

// planLoad adds a topic to the topics to load ahead, or removes it. A topic is loaded ahead while
// it has messages on disk alone and less than half a batch in the window. Called with mu held.
func (x *Index) planLoad(t *Topic) {
	wants := t.diskNext != record.MaxPosition && t.windowBytes < x.account.batchBytes()/2
	switch {
	case wants && t.toLoadAt < 0:
		byDiskNext.Push(&x.toLoad, t)
	case wants:
		byDiskNext.Fix(x.toLoad, t)
	case t.toLoadAt >= 0:
		byDiskNext.Remove(&x.toLoad, t)
	}
	if wants && t.toLoadAt == 0 && t.diskNext.Ms-loadLead < x.loaderUntil && !x.crowded {
		x.hintLoader()
	}
}
