package ledger

import (
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storetest/compare"
	"github.com/punctualmq/punctual/storetest/promise"
)

// Purge, DeleteTopic and Stats return numbers over all IDs of a topic. Each ID is searched alone,
// and notes in which states the call may have met it. Each number must lie between the sum of the
// IDs that must count and the sum of those that may.

// countOp is one call that counts.
type countOp struct {
	*call
	kind   opKind
	ops    []*op
	tracks []*track
}

// meets notes the states in which a call that counts may have met the message; bit 0 is not at all.
func (o *op) meets(s *state) {
	if s.phase == phaseAbsent || s.phase == phaseFinished {
		o.met |= 1
		return
	}
	for st := punctual.StateScheduled; st <= punctual.StateDead; st++ {
		if s.is(st, o.time()) {
			o.met |= 1 << st
		}
	}
}

// check compares the numbers that the call returned with the possible ones.
func (c *countOp) check(l *Ledger) {
	if c.answer == nil || c.answer.Code != "" {
		return
	}
	f := c.answer.Facts[0]
	switch c.kind {
	case opCount:
		l.toldSettings(c.call)
		for st := punctual.StateScheduled; st <= punctual.StateDead; st++ {
			c.compare(l, st.String(), f.Counts[st-1], 1<<st)
		}
	case opDelete:
		c.compare(l, "deleted", f.Count, anyStored)
	case opPurge:
		mask := uint8(1) << c.Facts[0].State
		if c.Facts[0].State == punctual.StateNone {
			mask = anyStored &^ (1 << punctual.StateDead)
		}
		c.compare(l, "purged", f.Count, mask)
	}
}

// anyStored are the bits of all states of a stored message.
const anyStored = 1<<punctual.StateScheduled | 1<<punctual.StateReady | 1<<punctual.StateLeased | 1<<punctual.StateDead

func (c *countOp) compare(l *Ledger, what string, told int64, mask uint8) {
	least, most := int64(0), int64(0)
	for i, o := range c.ops {
		switch {
		case c.tracks[i].givenUp:
			most++
		case o.met&mask != 0:
			most++
			if o.met&^mask == 0 {
				least++
			}
		}
	}
	if told < least || told > most {
		l.broken(c.to, "%s: %s of topic %s tells %d %s, possible are %d to %d", promise.P13, c.Call, c.Facts[0].Topic, told, what, least, most)
	}
}

// toldSettings compares the settings that a call returned with those that may have been in force.
func (l *Ledger) toldSettings(c *call) {
	if c.answer == nil || c.answer.Settings == nil {
		return
	}
	told := *c.answer.Settings
	for _, x := range l.history(c.Facts[0].Topic).during(c.from, c.to) {
		set := *x
		set.Partitions = told.Partitions
		if compare.EqualSettings(told, set) {
			return
		}
	}
	l.broken(c.to, "%s: %s of topic %s tells settings that nobody made: %+v", promise.P13, c.Call, c.Facts[0].Topic, told)
}
