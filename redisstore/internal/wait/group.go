package wait

import (
	"math/bits"
	"slices"
)

// A claim of 10,000 topics must not walk over all of them: that takes longer than all else. So it waits in a group, which
// stands for a list of topics and outlives its claims. Whoever claims the same topics in the same order finds the group
// again. A topic tells its groups what has become of it, and each of them has a bit for that.

// idleGroups is how many groups are kept in which nobody waits.
const idleGroups = 8

// group is a list of topics that claims wait for. The first two fields do not change. Waiter.mu guards the others.
type group struct {
	names  []string // as the claims have them
	topics []*topic // the same, but for those that are named again

	waiting []*claim // in the order in which they came; some may be gone
	live    int      // how many are not
	left    int64    // when the last of them went
	// ready has the topics with a partition that waits for a claim to ask.
	ready places
	// unpolled has the topics with a partition that is not polled, because nobody waited or it could not be. Whoever comes
	// next has it polled.
	unpolled places
}

// seat is the place of a topic in a group.
type seat struct {
	group *group
	place int
}

// listKey is what lists of topics are looked up by before they are compared.
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

// groups are all groups. Waiter.mu guards them.
type groups struct {
	of   map[listKey][]*group
	idle []*group // in which nobody waits, the one that was left first in front
}

// find returns the group of a list, or nil.
func (gs *groups) find(names []string) *group {
	for _, g := range gs.of[keyOf(names)] {
		if slices.Equal(g.names, names) {
			return g
		}
	}
	return nil
}

// add makes a group of the topics of a list, in which nobody waits yet.
func (gs *groups) add(names []string, topics []*topic) *group {
	g := &group{names: slices.Clone(names), topics: make([]*topic, 0, len(topics)), ready: newPlaces(len(topics)), unpolled: newPlaces(len(topics))}
	for _, t := range topics {
		if n := len(t.seats); n > 0 && t.seats[n-1].group == g { // it is named again
			continue
		}
		s := seat{g, len(g.topics)}
		t.seats = append(t.seats, s)
		g.topics = append(g.topics, t)
		g.unpolled.add(s.place)
		if t.ready > 0 {
			g.ready.add(s.place)
		}
	}
	k := keyOf(names)
	gs.of[k] = append(gs.of[k], g)
	gs.idle = append(gs.idle, g)
	return g
}

// enter makes a claim wait in a group.
func (gs *groups) enter(g *group, c *claim) {
	if g.live == 0 {
		gs.idle = slices.DeleteFunc(gs.idle, func(o *group) bool { return o == g })
	}
	g.waiting = slices.DeleteFunc(g.waiting, func(o *claim) bool { return o.gone })
	g.waiting = append(g.waiting, c)
	g.live++
}

// leave is called when a claim is gone. Of the groups in which nobody waits the last few are kept.
func (gs *groups) leave(g *group, now int64) {
	g.live--
	if g.live > 0 {
		return
	}
	g.left = now
	if gs.idle = append(gs.idle, g); len(gs.idle) > idleGroups {
		gs.remove(gs.idle[0])
	}
}

// removeIdle removes the groups in which nobody has waited since a time.
func (gs *groups) removeIdle(since int64) {
	for len(gs.idle) > 0 && gs.idle[0].left <= since {
		gs.remove(gs.idle[0])
	}
}

// remove removes a group in which nobody waits.
func (gs *groups) remove(g *group) {
	same := func(o *group) bool { return o == g }
	gs.idle = slices.DeleteFunc(gs.idle, same)
	k := keyOf(g.names)
	if gs.of[k] = slices.DeleteFunc(gs.of[k], same); len(gs.of[k]) == 0 {
		delete(gs.of, k)
	}
	for _, t := range g.topics {
		t.seats = slices.DeleteFunc(t.seats, func(s seat) bool { return s.group == g })
		t.wanted = max(t.wanted, g.left)
	}
}

// waited reports whether somebody waits for a topic.
func (t *topic) waited() bool {
	return slices.ContainsFunc(t.seats, func(s seat) bool { return s.group.live > 0 })
}

// claims are those that wait for a topic, in the order in which they came. Some may be gone.
func (t *topic) claims() []*claim {
	var all []*claim
	groups := 0
	for _, s := range t.seats {
		switch {
		case s.group.live == 0:
			continue
		case groups == 0: // most often it is the only one
			all = s.group.waiting
		default:
			all = append(slices.Clip(all), s.group.waiting...)
		}
		groups++
	}
	if groups > 1 {
		slices.SortStableFunc(all, func(a, b *claim) int { return int(a.joined - b.joined) })
	}
	return all
}

// tellReady tells the groups of a topic whether it has a partition that is ready.
func (t *topic) tellReady() {
	for _, s := range t.seats {
		s.group.ready.set(s.place, t.ready > 0)
	}
}

// tellUnpolled tells the groups of a topic that it has a partition that is not polled.
func (t *topic) tellUnpolled() {
	for _, s := range t.seats {
		s.group.unpolled.add(s.place)
	}
}

// places is a set of places in a list of topics.
type places []uint64

func newPlaces(n int) places { return make(places, (n+63)/64) }

func (s places) add(i int)    { s[i/64] |= 1 << (i % 64) }
func (s places) remove(i int) { s[i/64] &^= 1 << (i % 64) }

func (s places) set(i int, in bool) {
	if in {
		s.add(i)
	} else {
		s.remove(i)
	}
}

// next is the first place from i on, or -1.
func (s places) next(i int) int {
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
