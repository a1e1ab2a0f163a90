package wait

import (
	"math/bits"
	"slices"
)

// A claim may name 1000 topics (limits.MaxClaimTopics). To go through them for each claim would
// take longer than all else, so claims wait in wait lists. There is one wait list for each list of
// topics. It stays for a while when its claims have returned, and the next claim of the same topics
// in the same order finds it. When a topic gets a ready partition, or one that is not polled, the
// bit of the topic is set in each wait list that has the topic.

// idleLists is how many wait lists are kept in which no claim waits.
const idleLists = 8

// waitList is a list of topics with the claims that wait for these. The first two fields do not
// change; Waiter.mu guards the others.
type waitList struct {
	names  []string // as the claims name them
	topics []*topic // the same, without repetitions

	claims    []*claim // in the order in which they came; some may have returned
	live      int      // how many of these claims have not returned
	idleSince int64    // when the last claim returned; counts only while no claim waits
	// ready has the topics with a partition that waits for a claim to ask.
	ready indexSet
	// unpolled has the topics that may have a partition that is not polled, because nobody waited
	// for it or its last poll failed. The next claim that joins has such partitions polled.
	unpolled indexSet
}

// membership is the place of a topic in a wait list.
type membership struct {
	list  *waitList
	index int // in list.topics
}

// listKey is what wait lists are looked up by, before their names are compared.
type listKey struct {
	n           int
	first, last string
}

func keyOf(names []string) (k listKey) {
	if k.n = len(names); k.n > 0 {
		k.first, k.last = names[0], names[k.n-1]
	}
	return k
}

// waitLists are all wait lists. Waiter.mu guards them.
type waitLists struct {
	of   map[listKey][]*waitList
	idle []*waitList // those in which no claim waits, in the order in which their last claims returned
}

// find returns the wait list of some topics, or nil.
func (ls *waitLists) find(names []string) *waitList {
	for _, l := range ls.of[keyOf(names)] {
		if slices.Equal(l.names, names) {
			return l
		}
	}
	return nil
}

// add makes a wait list, which is idle until a claim joins it. All its topics count as not polled.
func (ls *waitLists) add(names []string, topics []*topic) *waitList {
	l := &waitList{names: slices.Clone(names), topics: make([]*topic, 0, len(topics)), ready: newIndexSet(len(topics)), unpolled: newIndexSet(len(topics))}
	for _, t := range topics {
		if n := len(t.members); n > 0 && t.members[n-1].list == l { // it is named again
			continue
		}
		m := membership{l, len(l.topics)}
		t.members = append(t.members, m)
		l.topics = append(l.topics, t)
		l.unpolled.add(m.index)
		if t.ready > 0 {
			l.ready.add(m.index)
		}
	}
	k := keyOf(names)
	ls.of[k] = append(ls.of[k], l)
	ls.idle = append(ls.idle, l)
	return l
}

// join adds a claim to a wait list.
func (ls *waitLists) join(l *waitList, c *claim) {
	if l.live == 0 {
		ls.idle = slices.DeleteFunc(ls.idle, func(o *waitList) bool { return o == l })
	}
	l.claims = slices.DeleteFunc(l.claims, func(o *claim) bool { return o.gone })
	l.claims = append(l.claims, c)
	l.live++
}

// leave is called once for each claim, when it gets its result. Of the wait lists in which no claim
// waits any more the last idleLists are kept.
func (ls *waitLists) leave(l *waitList, now int64) {
	l.live--
	if l.live > 0 {
		return
	}
	l.idleSince = now
	if ls.idle = append(ls.idle, l); len(ls.idle) > idleLists {
		ls.remove(ls.idle[0])
	}
}

// removeIdle removes the wait lists in which no claim has waited since the given time.
func (ls *waitLists) removeIdle(since int64) {
	for len(ls.idle) > 0 && ls.idle[0].idleSince <= since {
		ls.remove(ls.idle[0])
	}
}

// remove removes a wait list in which no claim waits.
func (ls *waitLists) remove(l *waitList) {
	same := func(o *waitList) bool { return o == l }
	ls.idle = slices.DeleteFunc(ls.idle, same)
	k := keyOf(l.names)
	if ls.of[k] = slices.DeleteFunc(ls.of[k], same); len(ls.of[k]) == 0 {
		delete(ls.of, k)
	}
	for _, t := range l.topics {
		t.members = slices.DeleteFunc(t.members, func(m membership) bool { return m.list == l })
		t.wanted = max(t.wanted, l.idleSince)
	}
}

// waited reports whether a claim waits for a topic.
func (t *topic) waited() bool {
	return slices.ContainsFunc(t.members, func(m membership) bool { return m.list.live > 0 })
}

// claims returns the claims that wait for a topic, in the order in which they came. Some may have
// returned already.
func (t *topic) claims() []*claim {
	var all []*claim
	lists := 0
	for _, m := range t.members {
		switch {
		case m.list.live == 0:
			continue
		case lists == 0: // no copy is made for the first list, which is most often the only one
			all = m.list.claims
		default:
			all = append(slices.Clip(all), m.list.claims...)
		}
		lists++
	}
	if lists > 1 {
		slices.SortStableFunc(all, func(a, b *claim) int { return int(a.joined - b.joined) })
	}
	return all
}

// markReady records in the wait lists of a topic whether it has a ready partition.
func (t *topic) markReady() {
	for _, m := range t.members {
		m.list.ready.set(m.index, t.ready > 0)
	}
}

// markUnpolled records in the wait lists of a topic that one of its partitions is not polled.
func (t *topic) markUnpolled() {
	for _, m := range t.members {
		m.list.unpolled.add(m.index)
	}
}

// indexSet is a set of indexes of a list, a bit for each.
type indexSet []uint64

func newIndexSet(n int) indexSet { return make(indexSet, (n+63)/64) }

func (s indexSet) add(i int)    { s[i/64] |= 1 << (i % 64) }
func (s indexSet) remove(i int) { s[i/64] &^= 1 << (i % 64) }

func (s indexSet) set(i int, in bool) {
	if in {
		s.add(i)
	} else {
		s.remove(i)
	}
}

// next returns the first index in the set that is not below i, or -1.
func (s indexSet) next(i int) int {
	for n := i / 64; n < len(s); n++ {
		word := s[n]
		if n == i/64 {
			word &= ^uint64(0) << (i % 64)
		}
		if word != 0 {
			return 64*n + bits.TrailingZeros64(word)
		}
	}
	return -1
}
