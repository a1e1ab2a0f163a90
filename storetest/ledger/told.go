package ledger

import (
	"maps"
	"slices"
	"strings"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storetest/promise"
)

// The messages of a companion events are pushed by the store itself, so they are no IDs of the
// search. What they say is compared with the endings that callers know of. This is done for topics
// that tell of all endings from their first message on and are not deleted, and whose companion is
// not purged.

// eventHistory has the events that were seen, and the endings that are known to have happened.
type eventHistory struct {
	topics  map[string]bool // whether a topic tells of all endings; false for good once that is not sure
	seen    map[name]EventFact
	endings map[name]*endings
}

// endings has how often messages of one ID ended in each way that answers tell: certainly, and how
// often more they may have.
type endings struct{ acked, perhapsAcked, discarded, perhapsDiscarded, cancelled int }

func newEventHistory() eventHistory {
	return eventHistory{topics: make(map[string]bool), seen: make(map[name]EventFact), endings: make(map[name]*endings)}
}

func isEvents(topic string) bool { return strings.HasSuffix(topic, "@events") }

// allEndings are the events of messages that finish or die.
const allEndings = punctual.EventAcked | punctual.EventDead | punctual.EventCancelled | punctual.EventExpired

// noteSettings takes a call that changes the settings of a topic or deletes it.
func (h *eventHistory) noteSettings(c *call) {
	topic := c.Facts[0].Topic
	told, before := h.topics[topic]
	h.topics[topic] = (told || !before) && c.Call == CallConfigure && c.Settings.Emit&allEndings == allEndings
}

// noteEnding takes the i-th item of a call that may end a message.
func (h *eventHistory) noteEnding(c *call, i int) {
	ask := &c.Facts[i]
	if !h.topics[ask.Topic] || c.Call != CallSettle && c.Call != CallAmend {
		return
	}
	n := name{ask.Topic, ask.ID}
	e := h.endings[n]
	if e == nil {
		e = &endings{}
		h.endings[n] = e
	}
	status := ""
	if c.answer != nil {
		status = c.answer.Facts[i].Status
	}
	switch {
	case status == "cancelled" && ask.Verb != punctual.SettleExtend:
		e.cancelled++
	case ask.Verb == punctual.SettleAck && status == "ok":
		e.acked++
	case ask.Verb == punctual.SettleDiscard && status == "ok":
		e.discarded++
	case ask.Verb == punctual.SettleAck && c.answer == nil:
		e.perhapsAcked++
	case ask.Verb == punctual.SettleDiscard && c.answer == nil:
		e.perhapsDiscarded++
	}
}

// saw takes an event that was delivered or read.
func (h *eventHistory) saw(l *Ledger, c *call, f *Fact) {
	n := name{f.Topic, f.ID}
	before, again := h.seen[n]
	switch {
	case f.Event == nil:
		l.broken(c.to, "%s: %s is no event: %s", promise.P1, n, f.Broken)
	case again && before != *f.Event:
		l.broken(c.to, "%s: the event %s tells %+v, and told %+v before", promise.P1, n, *f.Event, before)
	default:
		h.seen[n] = *f.Event
	}
}

// checkEvents compares the events that were seen with the endings that are known. All events must
// have been seen by then.
func (l *Ledger) checkEvents() {
	if l.durable == KeepsConfirmed {
		return // a failover may take back an ending, its event, or both
	}
	told := make(map[name]map[string]int)
	for _, e := range l.told.seen {
		n := name{e.Topic, e.ID}
		if told[n] == nil {
			told[n] = make(map[string]int)
		}
		told[n][strings.TrimSuffix(e.Event+" "+string(e.Reason), " ")]++
	}
	names := make(map[name]bool)
	for n := range told {
		names[n] = true
	}
	for n := range l.told.endings {
		names[n] = true
	}
	for _, n := range slices.SortedFunc(maps.Keys(names), func(a, b name) int { return strings.Compare(a.String(), b.String()) }) {
		if !l.told.topics[n.topic] {
			continue
		}
		e := l.told.endings[n]
		if e == nil {
			e = &endings{}
		}
		between := func(what string, least, most int) {
			if got := told[n][what]; got < least || got > most {
				l.broken(l.line, "%s: the topic tells %d times of %s of %s; it happened %d to %d times", promise.P13, got, what, n, least, most)
			}
		}
		const any = 1 << 30
		between("acked", e.acked, e.acked+e.perhapsAcked)
		between("dead "+string(punctual.ReasonDiscarded), e.discarded, e.discarded+e.perhapsDiscarded)
		between("cancelled", e.cancelled, any)
	}
}
