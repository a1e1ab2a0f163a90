package ledger

import (
	"cmp"
	"slices"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest/promise"
)

// The bounds of a topic and of its keys concern several IDs, so they are no part of the search.
// They are judged by what claims told of leases, in topics whose bounds do not change from the
// first Configure on. The key of a message is the stem of its ID there.
//
// A lease counts from its begin to its end, by the store's clock, or to the first settlement of it,
// by the clock of the caller. It may have lasted longer, and a lease that no answer told of does
// not count. So a bound may have been broken where nothing is reported, but never the reverse.
//
// Order is judged in topics whose messages are pushed under new IDs and end by settlements alone. A
// message must not be delivered while an earlier one of its key is live, unless the earlier one was
// pushed after the first lease of the other.

// boundTopic is a topic with bounds.
type boundTopic struct {
	set    *punctual.Settings // nil once the bounds have changed
	leases []*boundLease
	lives  map[string]*boundLife // by ID, where the keys are in order
	// rates has the rate of the topic, by "", and those of its keys, each as the time in us at
	// which leases that began one interval after the other would have ended. restarts are times at
	// which the store may have forgotten them.
	rates    map[string]int64
	restarts []int64
}

type boundLease struct {
	key     string
	held    held
	at, end int64
	to      int64 // the line of the claim's answer
	judged  bool
}

// boundLife is a message of a topic whose keys are in order. Its members are the due time of its
// push, and three lines: that of the push's answer, that of the first claim, and that of the first
// ack or discard. A line that was not yet written is 0.
type boundLife struct {
	firstDue                int64
	pushed, claimed, ending int64
}

// noteBounds takes the first line of a call.
func (l *Ledger) noteBounds(e *Line) {
	if s := e.Settings; e.Call == CallConfigure && s != nil {
		topic := e.Facts[0].Topic
		t := l.bounds[topic]
		switch {
		case t == nil && hasBounds(s):
			l.bounds[topic] = &boundTopic{set: s, lives: make(map[string]*boundLife), rates: make(map[string]int64)}
		case t != nil && t.set != nil && !sameBounds(t.set, s):
			t.set = nil
		}
	}
	for _, f := range e.Facts {
		for _, g := range f.Then {
			l.endLease(&g, e)
		}
		t := l.endLease(&f, e)
		if t == nil || e.Call != CallSettle {
			continue
		}
		if life := t.lives[f.ID]; life != nil && life.ending == 0 && (f.Verb == punctual.SettleAck || f.Verb == punctual.SettleDiscard) {
			life.ending = l.line
		}
	}
}

// endLease takes an item of a call, and returns its topic if that has bounds. A settlement ends its
// lease, a message that replaces another one or that is deleted ends every lease of its ID, and a
// purge may end any.
func (l *Ledger) endLease(f *Fact, e *Line) *boundTopic {
	t := l.bounds[f.Topic]
	if t == nil {
		return nil
	}
	for _, x := range t.leases {
		if x.held.id == f.ID && (f.Token == x.held.token || f.IfExists == punctual.IfExistsReplace || f.Change == punctual.ChangeDelete) || e.Call == CallPurge || e.Call == CallDelete {
			x.end = min(x.end, e.At)
		}
	}
	return t
}

func hasBounds(s *punctual.Settings) bool {
	return !sameBounds(s, &punctual.Settings{})
}

func sameBounds(a, b *punctual.Settings) bool {
	return a.MaxLeases == b.MaxLeases && a.MaxRate == b.MaxRate && a.MaxKeyLeases == b.MaxKeyLeases && a.MaxKeyRate == b.MaxKeyRate && a.InOrder == b.InOrder
}

// noteLeases takes a call that was answered.
func (l *Ledger) noteLeases(c *call) {
	for i, f := range c.answer.Facts {
		switch c.Call {
		case CallPush:
			if t := l.bounds[c.Facts[i].Topic]; t != nil && t.set != nil && t.set.InOrder && f.Status == "stored" {
				t.lives[f.ID] = &boundLife{firstDue: f.Due, pushed: c.to}
			}
		case CallClaim:
			t := l.bounds[f.Topic]
			if t == nil {
				continue
			}
			t.leases = append(t.leases, &boundLease{key: storekit.Stem(f.ID), held: held{name{f.Topic, f.ID}, f.Token}, at: f.At, end: f.Until, to: c.to})
			if life := t.lives[f.ID]; life != nil && life.claimed == 0 {
				life.claimed = c.from
			}
		}
	}
}

// forgetRates takes note of a restart, after which a store may not know when the last leases began.
func (l *Ledger) forgetRates(at int64) {
	for _, t := range l.bounds {
		t.restarts = append(t.restarts, at)
	}
}

// endLeases takes note that leases may be forgotten from a time on.
func (l *Ledger) endLeases(at int64) {
	l.forgetRates(at)
	for _, t := range l.bounds {
		for _, x := range t.leases {
			x.end = min(x.end, at)
		}
	}
}

// checkBounds judges the leases that began since it was last called. No call is under way.
func (l *Ledger) checkBounds() {
	for topic, t := range l.bounds {
		slices.SortStableFunc(t.leases, func(a, b *boundLease) int { return cmp.Compare(a.at, b.at) })
		for i, x := range t.leases {
			if t.set == nil || x.judged {
				continue
			}
			x.judged = true
			for len(t.restarts) > 0 && t.restarts[0] <= x.at {
				t.restarts = t.restarts[1:]
				clear(t.rates)
			}
			inTopic, ofKey := 1, 1
			for _, y := range t.leases[:i] {
				if y.end > x.at && y.held.name != x.held.name {
					inTopic++
					if y.key == x.key {
						ofKey++
					}
				}
			}
			if most := t.set.MaxLeases; most > 0 && inTopic > most {
				l.broken(x.to, "%s: %s is the %d. message of %s under a lease, of %d", promise.P14, x.held.name, inTopic, topic, most)
			}
			if most := t.set.MaxKeyLeases; most > 0 && ofKey > most || t.set.InOrder && ofKey > 1 {
				l.broken(x.to, "%s: %s is the %d. message of its key under a lease", promise.P12, x.held.name, ofKey)
			}
			t.checkRate(l, x, "", t.set.MaxRate)
			t.checkRate(l, x, x.key, t.set.MaxKeyRate)
			t.checkOrder(l, x)
		}
		t.leases = slices.DeleteFunc(t.leases, func(x *boundLease) bool { return x.end <= l.now && x.judged })
		for id, life := range t.lives {
			if life.ending > 0 {
				delete(t.lives, id)
			}
		}
	}
}

// checkRate judges the begin of a lease by the rate of its topic, whose key is "", or of its key.
// The rule is that of docs/limits.md: up to AtOnce leases may be ahead of one in each interval.
func (t *boundTopic) checkRate(l *Ledger, x *boundLease, key string, r limits.Rate) {
	if r == (limits.Rate{}) {
		return
	}
	before, now := t.rates[key], x.at*1000
	// The store counts in microseconds and tells whole milliseconds.
	if opens := before - (r.AtOnce()-1)*r.Interval(); opens > now+1000 {
		l.broken(x.to, "%s: the lease of %s began at %d; the rate %v of %q let it begin %d us later",
			promise.P14, x.held.name, x.at, r, key, opens-now)
	}
	t.rates[key] = max(before, now) + r.Interval()
}

// checkOrder judges whether a message was delivered in its turn.
func (t *boundTopic) checkOrder(l *Ledger, x *boundLease) {
	life := t.lives[x.held.id]
	if life == nil { // the keys are in no order, or no push was seen
		return
	}
	for id, other := range t.lives {
		if storekit.Stem(id) == x.key && other.firstDue < life.firstDue && other.pushed < life.claimed && (other.ending == 0 || other.ending > x.to) {
			l.broken(x.to, "%s: %s was delivered before %s of the same key, which is earlier", promise.P12, x.held.name, id)
		}
	}
}
