package console

import (
	"slices"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/event"
	"github.com/punctualmq/punctual/storekit"
)

// eventsPage shows the events of a topic that no reader has claimed yet, the latest first.
type eventsPage struct {
	*topicView
	// Able is true if the store can tell of events and the topic is no companion. On are the names
	// of the events that the topic tells of, Keep is for how long it keeps them.
	Able bool
	On   []string
	Keep time.Duration
	Rows []eventRow
	// Kinds are the choices of the filter by what happened. Window is true also if one of them is
	// chosen.
	Kinds []choice
	listPart
	// Waiting is how many events wait for a reader. Late is for how long the first of them has
	// waited, if that is at least unread; otherwise 0.
	Waiting int64
	Late    time.Duration
}

// eventRow is one event in the list. Wrong says why it cannot be read, and is "" for one that can.
type eventRow struct {
	event.Event
	Name, Wrong string
	Path        string
}

// unread is how long an event waits before the page says that nobody reads the events.
const unread = time.Minute

func (c *call) showEvents() error {
	v, err := c.topicView("events", "events")
	if err != nil {
		return err
	}
	can, err := c.abilities()
	if err != nil {
		return err
	}
	p := &eventsPage{topicView: v, Able: can.Emit && v.Parent == "", Keep: v.settings.EmitKeep}
	if v.settings.Emit != 0 {
		p.On = strings.Split(v.settings.Emit.String(), ",")
	}
	if !p.Able || !v.has(storekit.EventSuffix) {
		return c.show("events", p)
	}
	if err := c.countEvents(p); err != nil {
		return err
	}
	if err := c.listEvents(p); err != nil {
		return err
	}
	return c.show("events", p)
}

// eventsTopic returns the name of the companion with the events of the page's topic.
func (p *eventsPage) eventsTopic() string { return p.Stats.Topic + storekit.EventSuffix }

// countEvents sets Waiting and Late from the counts of the topics.
func (c *call) countEvents(p *eventsPage) error {
	all, err := c.counted()
	if err != nil {
		return err
	}
	for _, s := range all.Topics {
		if s.Topic != p.eventsTopic() {
			continue
		}
		p.Waiting = s.Ready
		if late := p.Now.Sub(s.NextDue); s.Ready > 0 && !s.NextDue.IsZero() && late >= unread {
			p.Late = late
		}
	}
	return nil
}

// listEvents reads one page of the events, the latest first.
func (c *call) listEvents(p *eventsPage) (err error) {
	kind := c.get("event")
	p.Kinds = c.choices("happened.", strings.Split(event.All.String(), ","), kind)
	var fits func(*punctual.Info) bool
	if kind != "" {
		fits = func(m *punctual.Info) bool {
			e, err := event.Parse(m.Body)
			return err == nil && e.Event.String() == kind
		}
	}
	var found []punctual.Info
	q := punctual.ListQuery{Topic: p.eventsTopic(), State: punctual.StateReady, Descending: true}
	if p.listPart, found, err = c.read(p.frame, q, fits); err != nil {
		return err
	}
	p.Window = p.Window || kind != ""
	for i := range found {
		p.Rows = append(p.Rows, p.row(&found[i]))
	}
	return nil
}

// row returns an event as the list shows it.
func (p *eventsPage) row(m *punctual.Info) eventRow {
	e, err := event.Parse(m.Body)
	if err != nil {
		return eventRow{Event: event.Event{At: m.Due, ID: m.ID}, Wrong: visible(err.Error()), Path: p.MessagePath(m.Topic, m.ID)}
	}
	row := eventRow{Event: e, Name: e.Event.String(), Path: p.MessagePath(e.Topic, e.ID)}
	if e.Event == punctual.EventMissed || e.Event == punctual.EventSkipped { // an event of a schedule, so no message has its ID
		row.Path = p.SchedulePath(e.Topic, storekit.Stem(e.ID))
	}
	return row
}

// Names returns the texts of events, with commas between them.
func (p *eventsPage) Names() string {
	names := slices.Clone(p.On)
	for i, name := range names {
		names[i] = p.call.look.language.text("happened." + name)
	}
	return strings.Join(names, ", ")
}
