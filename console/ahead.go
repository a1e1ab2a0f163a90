package console

import (
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/punctualmq/punctual/internal/notation"
	"github.com/punctualmq/punctual/internal/overview"
)

// span is the time that a picture of what falls due covers: a number of steps from now on.
type span struct {
	name  string
	step  overview.Step
	steps int
}

// spans returns the spans that a page offers, the default first.
func spans() []span {
	return []span{{"60m", overview.Minute, 60}, {"48h", overview.Hour, 48}, {"90d", overview.Day, 90}}
}

func spanNames() []string {
	var names []string
	for _, s := range spans() {
		names = append(names, s.name)
	}
	return names
}

// spanCalled returns the span with this name, or the default span if there is none.
func spanCalled(name string) span {
	for _, s := range spans() {
		if s.name == name {
			return s
		}
	}
	return spans()[0]
}

// topicAhead draws what falls due in one topic, in the span of the form's field "span". If
// scheduled is true, it also marks when the schedules of the topic come. It returns nil while the
// store counts.
func (c *call) topicAhead(f *frame, topic string, scheduled bool) (*chart, error) {
	s := spanCalled(c.get("span"))
	a, err := c.console.reader.Ahead(c.r.Context(), overview.AheadQuery{Topic: topic, Step: s.step, Steps: s.steps, Zone: c.look.zone})
	if errors.Is(err, overview.ErrCounting) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("count what is due in %s: %w", topic, err)
	}
	k := c.columnsOf(f, a, s)
	k.series = []series{{name: topic, hue: 1, counts: a.Counts, overdue: a.Overdue, beyond: a.Beyond}}
	if scheduled {
		if k.runs, err = c.comingRuns(topic, a.Edges[len(a.Edges)-1]); err != nil {
			return nil, err
		}
	}
	k.path = func(i int) string { return f.listBetween(topic, "scheduled", a.Edges[i], a.Edges[i+1]) }
	k.pathOverdue, k.pathBeyond = f.TopicPath(topic)+"?state=ready", f.listBetween(topic, "scheduled", a.Edges[len(a.Edges)-1], time.Time{})
	return f.draw(k), nil
}

// columnsOf returns the columns of a chart for a count ahead. The caller adds the series and the
// paths.
func (c *call) columnsOf(f *frame, a *overview.Ahead, s span) columns {
	k := columns{name: "chart." + s.name, edges: a.Edges, around: true, log: c.get("scale") == "log"}
	k.scale = c.withQuery("scale", map[bool]string{false: "log", true: ""}[k.log])
	k.label = func(i int) string { return f.stepLabel(a.Edges[i].In(c.look.zone), s.step) }
	k.ticks = f.ticks(a.Edges, s.step)
	return k
}

// stepLabel names the step that begins at t: "14:05", "Mon 11-23 14:00", "Mon 2026-11-23".
func (f *frame) stepLabel(t time.Time, step overview.Step) string {
	day := f.call.look.language.text("weekday." + fmt.Sprint(int(t.Weekday())))
	switch step {
	case overview.Minute:
		return t.Format("15:04")
	case overview.Hour:
		return day + " " + t.Format("01-02 15:04")
	}
	return day + " " + t.Format("2006-01-02")
}

// lastTick is the position, in percent, up to which a picture has labels below it. On a narrow
// screen a label further to the right would overlap the label "beyond".
const lastTick = 88

// ticks returns the labels below a picture, which stand at round times. There are at most about
// eight.
func (f *frame) ticks(edges []time.Time, step overview.Step) []tick {
	var out []tick
	n := len(edges) - 1
	for i, e := range edges[:n] {
		t := e.In(f.call.look.zone)
		var text string
		switch step {
		case overview.Minute:
			if t.Minute()%10 == 0 {
				text = t.Format("15:04")
			}
		case overview.Hour:
			if t.Hour()%6 == 0 {
				text = t.Format("15:04")
				if t.Hour() == 0 {
					text = f.call.look.language.text("weekday." + fmt.Sprint(int(t.Weekday())))
				}
			}
		case overview.Day:
			if t.Weekday() == time.Monday && (i/7)%2 == 0 {
				text = t.Format("01-02")
			}
		}
		if text != "" && 100*i < lastTick*n {
			out = append(out, tick{X: percent(100 * float64(i) / float64(n)), Text: text})
		}
	}
	return out
}

// listBetween returns the path of a topic's list of one state between two times. A zero time is no
// bound.
func (f *frame) listBetween(topic, state string, from, to time.Time) string {
	q := url.Values{"state": {state}}
	if !from.IsZero() {
		q.Set("from", notation.FormatTime(from))
	}
	if !to.IsZero() {
		q.Set("to", notation.FormatTime(to))
	}
	return f.TopicPath(topic) + "?" + q.Encode()
}
