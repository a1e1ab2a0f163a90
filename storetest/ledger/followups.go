package ledger

import (
	"fmt"
	"maps"
	"slices"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storetest/promise"
)

// A settlement with follow-ups is one step on several IDs, each of which is searched alone. Where
// the answer was seen, each ID has its part as an op that took effect. Where it was not seen, the
// parts took effect together or not at all: each state of an ID has a link that says which (for the
// exceptions see maxLinks and groupOf), and after each search the IDs of the settlement have to
// agree. A state that contradicts what all states of another ID say is dropped. If all states of
// one ID say that the settlement took effect, and all of another that it did not, a promise is
// broken.

// links are the settlements whose answers nobody saw, and that may or may not have taken effect.
type links struct {
	newest int64
	groups map[int64]*group
	lists  map[linkList]*linkList
}

// group is one such settlement.
type group struct {
	what  string // for reports
	line  int64
	names []name // the IDs of the message and of its follow-ups
	// crowded tells that a state had maxLinks links already, so that the settlement is not followed
	// any more.
	crowded bool
}

// linkList says of settlements whether they took effect in a state, the newest first. Equal lists
// are the same pointer.
type linkList struct {
	group int64
	took  bool
	next  *linkList
}

func newLinks() links {
	return links{groups: make(map[int64]*group), lists: make(map[linkList]*linkList)}
}

// maxLinks is how many links a state has at most. Each that is not decided doubles the states of an
// ID, so a settlement beyond that is not followed.
const maxLinks = 3

// says returns what a state says of a settlement, and whether it says anything.
func (l *linkList) says(group int64) (took, known bool) {
	for ; l != nil; l = l.next {
		if l.group == group {
			return l.took, true
		}
	}
	return false, false
}

// follows tells whether states have links of a settlement.
func (ls *links) follows(group int64) bool {
	x := ls.groups[group]
	return x != nil && !x.crowded
}

// with returns the list with one more link. If it has maxLinks already, the list stays as it is and
// the settlement is crowded.
func (ls *links) with(l *linkList, group int64, took bool) *linkList {
	if len(l.first(maxLinks)) == maxLinks {
		ls.groups[group].crowded = true
		return l
	}
	return ls.of(linkList{group, took, l})
}

// first returns the n newest links of a list.
func (l *linkList) first(n int) (out []linkList) {
	for ; l != nil && len(out) < n; l = l.next {
		out = append(out, *l)
	}
	return out
}

func (ls *links) copy(all []linkList) (out *linkList) {
	for _, x := range slices.Backward(all) {
		out = ls.of(linkList{x.group, x.took, out})
	}
	return out
}

// without returns the list without the link of one settlement.
func (ls *links) without(l *linkList, group int64) *linkList {
	return ls.copy(slices.DeleteFunc(l.first(maxLinks), func(x linkList) bool { return x.group == group }))
}

func (ls *links) of(x linkList) *linkList {
	p := ls.lists[x]
	if p == nil {
		p = &x
		ls.lists[x] = p
	}
	return p
}

// groupOf returns the number of a settlement of a call whose answer nobody saw. It is 0, so that
// there are no links, for a store with KeepsConfirmed: a failover may take a settlement back, and
// the ledger follows a failover for each ID by itself, so that the IDs of one settlement need not
// agree.
func (l *Ledger) groupOf(c *call, settlement *Fact) int64 {
	if l.durable == KeepsConfirmed {
		return 0
	}
	g := c.groups[settlement]
	if g == 0 {
		if c.groups == nil {
			c.groups = make(map[*Fact]int64)
		}
		l.links.newest++
		g = l.links.newest
		c.groups[settlement] = g
		l.links.groups[g] = &group{what: fmt.Sprintf("%s of %s/%s", settlement.Verb, settlement.Topic, settlement.ID), line: c.from}
	}
	return g
}

// joins adds an ID to those of a settlement.
func (l *Ledger) joins(g int64, n name) {
	if g != 0 {
		l.links.groups[g].names = append(l.links.groups[g].names, n)
	}
}

// unnamedFollowUps hands the follow-ups whose IDs nobody is told to tracks of their own, before
// anything else looks for them.
func (l *Ledger) unnamedFollowUps(c *call, touched map[name]*track) {
	for i := range c.Facts {
		if !isEvents(c.Facts[i].Topic) {
			l.followUps(c, i, touched, func(f *Fact) bool { return f.ID == "" })
		}
	}
}

// followUps hands the follow-ups of the i-th settlement of a call to their IDs.
func (l *Ledger) followUps(c *call, i int, touched map[name]*track, selected func(*Fact) bool) {
	settlement, o := &c.Facts[i], op{call: c, kind: opFollow, must: true}
	if c.answer == nil {
		o.must, o.group = false, 0
		if len(settlement.Then) > 0 {
			o.group = l.groupOf(c, settlement)
		}
	} else if i < len(c.answer.Facts) {
		switch status := c.answer.Facts[i].Status; {
		case status == "ok":
		case followUpRefused(status) && len(settlement.Then) == 1:
			o.kind, o.got = opRefuse, &c.answer.Facts[i]
		default:
			return // none was stored, or call.open has put the item into a call of its own
		}
	}
	for j := range settlement.Then {
		f := &settlement.Then[j]
		n := name{f.Topic, f.ID}
		own := n == name{settlement.Topic, settlement.ID}
		if !selected(f) || o.kind == opRefuse && (own || f.ID == "") {
			continue
		}
		if n.id == "" {
			n.id = "?" + f.Life
			l.unnamed[f.Life] = l.of(n)
		}
		follow := o
		follow.ask = f
		l.add(n, touched, follow)
		if !own {
			l.joins(o.group, n)
		}
	}
}

// followUpRefused tells whether a settlement was refused because of a follow-up.
func followUpRefused(status string) bool {
	return status == "duplicate" || status == "changed" || status == "paused"
}

// linked returns the states with a link that says whether the settlement of the op took effect,
// without those that say otherwise. Where the op has no group, or its group is not followed, it
// returns the states as they are. A state that has maxLinks links already gets none, and the group
// is not followed from then on.
func (o *op) linked(in *intern, states []*state, took bool) []*state {
	if o.group == 0 || in.links == nil || !in.links.follows(o.group) {
		return states
	}
	var out []*state
	for _, s := range states {
		said, known := s.links.says(o.group)
		if known && said != took {
			continue
		}
		n := *s
		if !known {
			n.links = in.links.with(s.links, o.group, took)
		}
		out = append(out, in.of(n))
	}
	return out
}

// closeLink returns a state when an op without an answer is over: where the op did not take effect,
// the settlement did not. It returns nil where the state says that the settlement took effect,
// because another part of it did on the same ID.
func (s *search) closeLink(o *op, st *state, done bool) *state {
	took, known := st.links.says(o.group)
	switch {
	case done || known && !took || !s.intern.links.follows(o.group):
		return st
	case known:
		return nil
	}
	return o.linked(s.intern, []*state{st}, false)[0]
}

// passes tells whether nobody saw an answer, and a later item of the call is about the same ID. The
// later item may take effect also after the store has refused this one because of a follow-up. So
// the search has to let this op pass without an effect, because the later item waits for it.
func (o *op) passes() bool { return !o.must && o.awaited }

// follow is a follow-up of a settlement: a push of whose outcome nobody is told.
func (o *op) follow(in *intern, s *state) ([]*state, string) {
	took, known := s.links.says(o.group)
	if known && !took {
		if o.passes() {
			return []*state{s}, ""
		}
		return nil, ""
	}
	next, reason := o.followed(in, s)
	if o.passes() && !known {
		next = append(next, o.linked(in, []*state{s}, false)...)
	}
	return next, reason
}

// followed is a follow-up of a settlement that succeeded: a push that must not be refused.
func (o *op) followed(in *intern, s *state) ([]*state, string) {
	if !slices.ContainsFunc(o.sets(), func(x *punctual.Settings) bool { return !x.PushPaused }) {
		return fails("%s: a settlement succeeded with a follow-up for a topic that is paused", promise.P13)
	}
	there := s.phase == phaseLive || s.phase == phaseDead
	taken := s.phase != phaseAbsent
	switch {
	case o.ask.IfDue != 0 && !(there && s.due.has(o.ask.IfDue)),
		taken && o.ask.IfExists == punctual.IfExistsFail,
		s.phase == phaseDead && o.ask.IfExists == punctual.IfExistsKeep:
		return fails("%s: a settlement succeeded whose follow-up was to be refused, because the ID was %v", promise.P13, s)
	case taken && s.phase != phaseDead && o.ask.IfExists != punctual.IfExistsReplace:
		return o.linked(in, []*state{s}, true), ""
	}
	next, reason := o.store(in, s, "")
	return o.linked(in, next, true), reason
}

// refuse is the only follow-up of a settlement that was refused because of a follow-up.
func (o *op) refuse(s *state) ([]*state, string) {
	may := false
	switch o.got.Status {
	case "paused":
		may = slices.ContainsFunc(o.sets(), func(x *punctual.Settings) bool { return x.PushPaused })
	case "changed":
		may = o.ask.IfDue != 0 && (s.phase != phaseLive && s.phase != phaseDead || s.due != exactly(o.ask.IfDue))
	case "duplicate":
		may = s.phase != phaseAbsent && o.ask.IfExists == punctual.IfExistsFail || s.phase == phaseDead && o.ask.IfExists == punctual.IfExistsKeep
	}
	if !may {
		return fails("%s: a settlement was refused as %q because of a follow-up, and the ID was %v", promise.P13, o.got.Status, s)
	}
	return []*state{s}, ""
}

// agree has the IDs of each settlement without an answer say the same of it.
func (l *Ledger) agree() {
	for again := true; again; {
		again = false
		for _, g := range slices.Sorted(maps.Keys(l.links.groups)) {
			again = l.agreeOn(g, l.links.groups[g]) || again
		}
	}
}

// agreeOn compares what the IDs of a settlement say, and reports whether a state was dropped. It
// removes the links of the settlement when all IDs agree or contradict each other, when an ID says
// nothing of it any more, and when the settlement is crowded.
func (l *Ledger) agreeOn(g int64, x *group) (dropped bool) {
	if x.crowded {
		l.forgetLink(g, x)
		return false
	}
	decided, open := make(map[bool]name), false
	for _, n := range x.names {
		took, sure, forgotten := l.tracked(n).decided(g)
		if forgotten {
			l.forgetLink(g, x)
			return false
		}
		if sure {
			decided[took] = n
		}
		open = open || !sure
	}
	if len(decided) == 2 {
		l.broken(x.line, "%s: a settlement without an answer took effect in part: %s took effect for %s and not for %s", promise.P13, x.what, decided[true], decided[false])
		l.forgetLink(g, x)
		return false
	}
	if len(decided) == 1 && open {
		_, took := decided[true]
		for _, n := range x.names {
			dropped = l.tracked(n).drop(g, !took) || dropped
		}
	}
	if len(decided) == 1 && !open {
		l.forgetLink(g, x)
	}
	return dropped
}

// tracked returns the track of an ID, also if the ledger has learnt its ID since. If there is none,
// it returns one that is given up.
func (l *Ledger) tracked(n name) *track {
	if t := l.ids[n]; t != nil {
		return t
	}
	for _, t := range l.ids {
		if t.was == n {
			return t
		}
	}
	return &track{name: n, givenUp: true}
}

// decided tells whether all states say the same of a settlement (sure), and what (took). forgotten
// tells that a state says nothing of it, or that the ID was given up.
func (t *track) decided(g int64) (took, sure, forgotten bool) {
	if t.givenUp || len(t.ops) > 0 {
		return false, false, t.givenUp
	}
	seen := make(map[bool]bool)
	for _, s := range t.states {
		took, known := s.links.says(g)
		if !known {
			return false, false, true
		}
		seen[took] = true
	}
	return seen[true], len(seen) == 1, false
}

// drop removes the states that say took of a settlement, and reports whether there were any.
func (t *track) drop(g int64, took bool) bool {
	before := len(t.states)
	t.states = slices.DeleteFunc(t.states, func(s *state) bool {
		said, known := s.links.says(g)
		return known && said == took
	})
	return len(t.states) < before
}

// forgetLink removes a settlement and all links to it.
func (l *Ledger) forgetLink(g int64, x *group) {
	delete(l.links.groups, g)
	for _, n := range x.names {
		t := l.tracked(n)
		in := newIntern(l.durable)
		var out []*state
		for _, s := range t.states {
			c := *s
			c.links = l.links.without(s.links, g)
			if p := in.of(c); !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
		t.states = out
	}
}
