package ledger

import (
	"slices"

	"github.com/punctualmq/punctual/storetest/promise"
)

// A failover takes from the topics of a primary what its replica did not have: the last part of the
// sequence of changes. For each ID the failover is an op like others, by which the ID goes back to
// an earlier state or not. A call under way at that moment may have taken effect twice: at the
// primary, whose change was lost, and then at the replica. For the first of the two there is a copy
// of the call that nobody saw answered, and that comes before the failover.

// failedOver takes the lines of a failover.
func (l *Ledger) failedOver(e *Line) {
	if !e.Answer {
		l.endLeases(e.At)
		l.failing = &call{Line: e, from: l.line}
		return
	}
	x := l.failing
	if x == nil {
		l.broken(l.line, "%s: a failover ended that had not begun", promise.P13)
		return
	}
	x.to, x.end, x.answer = l.line, e.At, e
	l.failing = nil
	l.Crashes++
	l.failovers = append(l.failovers, x)
	l.done = append(l.done, x)
}

// Kept notes that each replica has all that was done until now. No call may be under way.
func (l *Ledger) Kept() {
	l.check(false)
	for _, t := range l.ids {
		in := newIntern(l.durable)
		var out []*state
		for _, s := range t.states {
			if p := in.next(*s)[0]; !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
		t.states = out
	}
}

// lostInFailovers returns copies of the calls that were under way during a failover. Each copy
// stands for what the call did at the primary, and what was lost with it.
func (l *Ledger) lostInFailovers() (lost []*call) {
	for _, x := range l.failovers {
		seen := make(map[int64]bool) // a call may have several copies
		for _, c := range l.done {
			if c.Call == LineFailover || c.from > x.to || c.to < x.from {
				continue
			}
			seen[c.N] = true
			if other := c.lostIn(x); other != nil {
				lost = append(lost, other)
			}
		}
		l.UnderWay += len(seen)
	}
	return lost
}

// lostIn returns a copy of a call that has what the call may have done at the primary of failover
// x, or nil.
func (c *call) lostIn(x *call) *call {
	other, line := *c, *c.Line
	other.Line, other.lost, other.answer, other.lives = &line, x, nil, nil
	other.to, other.end = min(c.to, x.to), min(c.end, x.end)
	switch c.Call {
	case CallClaim:
		if line.Topics = x.ofItsTopics(c.Topics); len(line.Topics) == 0 && len(c.Topics) > 0 {
			return nil
		}
	case CallPush, CallSettle, CallAmend, CallPurge, CallDelete:
		line.Facts = nil
		for i, f := range c.Facts {
			if len(x.Topics) > 0 && !slices.Contains(x.Topics, f.Topic) {
				continue
			}
			if f.ID == "" && c.answer != nil && i < len(c.answer.Facts) {
				f.ID = c.answer.Facts[i].ID
			}
			line.Facts = append(line.Facts, f)
		}
		if len(line.Facts) == 0 {
			return nil
		}
	default: // the call only reads, or changes settings
		return nil
	}
	return &other
}

// ofItsTopics returns those of the topics that the primary of a failover had. None stands for all
// in topics and, if topics has none, in the result.
func (c *call) ofItsTopics(topics []string) []string {
	if len(c.Topics) == 0 {
		return topics
	}
	if len(topics) == 0 {
		return c.Topics
	}
	return slices.DeleteFunc(slices.Clone(topics), func(t string) bool { return !slices.Contains(c.Topics, t) })
}

// cut hands a failover to all the IDs of its topics.
func (l *Ledger) cut(x *call, touched map[name]*track) {
	for _, t := range l.tracksOf(x.Topics, touched) {
		l.add(t.name, touched, op{call: x, kind: opCut, must: true})
	}
}

// untimely tells whether q has to wait for a failover, or cannot come after it. The copy of a call
// that was lost comes before the failover, and once it has taken effect, the call itself comes
// after the failover.
func (s *search) untimely(c explanation, q *op) bool {
	if len(s.l.failovers) == 0 {
		return false
	}
	happened := func(x *call) bool {
		if s.over[x] {
			return true
		}
		i := slices.IndexFunc(s.open[:], func(p *op) bool { return p != nil && p.kind == opCut && p.call == x })
		return i >= 0 && c.done>>i&1 != 0
	}
	if q.lost != nil {
		return happened(q.lost)
	}
	for i, p := range s.open {
		if p != nil && p.lost != nil && p.N == q.N && c.done>>i&1 != 0 && !happened(p.lost) {
			return true
		}
	}
	return false
}

// lapsedFrom returns c, which time has made of s, so that a loss of the last changes can go back
// behind both.
func (in *intern) lapsedFrom(c, s *state) *state {
	if c == s || c.undo != nil || s.undo == nil {
		return c
	}
	n := *c
	n.undo = s.undo
	return in.of(n)
}

// confirmed returns the states that follow from s with what a failover may take back of them, for a
// store with KeepsConfirmed. The answer to a push or an amendment that was not refused, and to a
// purge or a deletion that changed the ID, confirms all that came before it for the ID.
func (o *op) confirmed(in *intern, s *state, next []*state) []*state {
	out := make([]*state, 0, len(next))
	for _, p := range next {
		n := *p
		switch changed := p != s; o.kind {
		case opSettle, opFollow:
			if changed {
				n.undo = s
			}
		case opGet, opFinished, opCount:
			n.undo = s.undo
		case opPush, opAmend, opPurge, opDelete:
			named := o.kind == opPush || o.kind == opAmend
			switch {
			case o.must && !o.refused() && (changed || named):
				n.undo = nil
			case !o.must && changed:
				n.undo = s
			}
		}
		if q := in.of(n); !slices.Contains(out, q) {
			out = append(out, q)
		}
	}
	return out
}
