package ledger

import (
	"maps"
	"slices"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// topicHistory is what the ledger knows of one topic: its settings over time, and the IDs that may
// be there.
type topicHistory struct {
	ids    []*track
	writes []settingsWrite
}

// settingsWrite is a change of a topic's settings between two lines.
type settingsWrite struct {
	set      *punctual.Settings
	from, to int64
	certain  bool
}

func (l *Ledger) history(topic string) *topicHistory {
	h := l.topics[topic]
	if h == nil {
		d := punctual.DefaultSettings()
		h = &topicHistory{writes: []settingsWrite{{&d, 0, 0, true}}}
		l.topics[topic] = h
	}
	return h
}

func (l *Ledger) topicNames() []string { return slices.Sorted(maps.Keys(l.topics)) }

// noteSettings takes a Configure or a DeleteTopic, and ignores any other call. Calls come in the
// order of their first lines.
func (l *Ledger) noteSettings(c *call) {
	if c.Call != CallConfigure && c.Call != CallDelete {
		return
	}
	l.told.noteSettings(c)
	if c.Call == CallDelete {
		for _, topic := range l.family(c.Facts[0].Topic) {
			l.noteWrite(c, l.history(topic))
		}
		return
	}
	l.noteWrite(c, l.history(c.Facts[0].Topic))
}

func (l *Ledger) noteWrite(c *call, h *topicHistory) {
	w := settingsWrite{c.Settings, c.from, c.to, c.answer != nil}
	if c.Call == CallDelete {
		d := punctual.DefaultSettings()
		w.set = &d
		if c.answer != nil && c.answer.Code == "not_found" {
			return
		}
	}
	h.writes = append(h.writes, w)
}

// family returns a topic and those of its companions that the ledger knows.
func (l *Ledger) family(topic string) []string {
	all := []string{topic}
	for other := range l.topics {
		if parent, companion := storekit.Companion(other); companion != "" && parent == topic {
			all = append(all, other)
		}
	}
	return all
}

// during returns the settings that may have been in force at some moment between two lines.
func (h *topicHistory) during(from, to int64) (sets []*punctual.Settings) {
	for i, w := range h.writes {
		if (w.from < to || i == 0) && !h.replaced(i, from) {
			sets = append(sets, w.set)
		}
	}
	return sets
}

// replaced tells whether the settings of the i-th write were certainly not in force any more at a
// line.
func (h *topicHistory) replaced(i int, at int64) bool {
	return slices.ContainsFunc(h.writes[i+1:], func(x settingsWrite) bool {
		return x.certain && x.from > h.writes[i].to && x.to < at
	})
}

// forget drops what no call after a line can concern: IDs of which there is nothing, until a call
// names them again, and settings that were replaced before the messages that are left were last
// seen. No call may be under way.
func (h *topicHistory) forget(line int64) {
	seen := line + 1
	h.ids = slices.DeleteFunc(h.ids, func(t *track) bool {
		t.listed = t.mayBeThere()
		if t.listed && !t.givenUp {
			seen = min(seen, t.seen)
		}
		return !t.listed
	})
	kept := make([]settingsWrite, 0, len(h.writes))
	for i, w := range h.writes {
		if !h.replaced(i, seen) {
			kept = append(kept, w)
		}
	}
	h.writes = kept
}

// sets returns the settings that may be in force when the op takes effect.
func (o *op) sets() []*punctual.Settings { return o.topic.during(o.from, o.to) }

// setsSince returns the settings that may have been in force since a call last told of the ID.
func (o *op) setsSince() []*punctual.Settings {
	return o.topic.during(min(o.since, o.from), o.to)
}
