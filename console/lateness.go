package console

import (
	"cmp"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/internal/overview"
)

// latenessPage says how late deliveries were: one large curve, and a small one of each topic, the worst first.
type latenessPage struct {
	*frame
	// Topic is the one that the page is about; "" is all.
	Topic  string
	Chosen string
	Spans  []choice
	// Observed tells that somebody feeds the meter, which has counted since Since.
	Observed bool
	Since    time.Time
	// Sum is what was delivered in the whole time. Whole tells that who looks may see it, and not some topics alone.
	Whole bool
	Sum   latenessRow
	Curve *curve
	// Oldest is for how long a message has been ready by now, OldestIn its topic. Asked tells that the store has said so.
	Oldest   time.Duration
	OldestIn string
	Asked    bool
	// Small are the pictures of the topics that were latest, Rows all topics in numbers.
	Small []smallCurve
	Rows  []latenessRow
}

// latenessSpan is over which time lateness is shown.
type latenessSpan struct {
	name string
	// steps of so many minutes; a label stands at multiples of tick minutes of the day.
	steps, minutes, tick int
	// fresh is how long what was counted is shown again.
	fresh time.Duration
}

func latenessSpans() []latenessSpan {
	return []latenessSpan{{"1h", trafficMinutes, 1, 10, time.Second}, {"24h", 96, 15, 180, 20 * time.Second}}
}

// latenessRow is what was delivered of one topic, or of all.
type latenessRow struct {
	Topic, Path         string
	Deliveries, TooLate int64
	P50, P99, Max       string
}

// smallCurve is a picture in a row of such, all on the same scale.
type smallCurve struct {
	latenessRow
	Paths  []curvePath
	Prompt float64
}

const (
	// smallHeight is how high a small picture is, mostSmall how many there are.
	smallHeight, mostSmall = 64.0, 24
)

func (c *call) showLateness() error {
	p := &latenessPage{frame: c.frame("lateness"), Topic: c.get("topic"), Observed: c.console.observed.Load(), Since: c.console.meter.Since()}
	p.Whole = c.may(access.Inspect, p.Topic) == nil
	if p.Topic != "" && !p.Whole {
		return c.may(access.Inspect, p.Topic)
	}
	s := latenessSpans()[0]
	for _, o := range latenessSpans() {
		if o.name == c.get("span") {
			s = o
		}
	}
	p.Chosen, p.Subject = s.name, p.Topic
	for _, o := range latenessSpans() {
		p.Spans = append(p.Spans, choice{Value: c.withQuery("span", o.name), Text: c.look.language.text("late.span." + o.name), Chosen: o == s})
	}
	if !p.Observed {
		return c.show("lateness", p)
	}
	c.lookForOldest(p)
	all := c.console.lateness.of(c.console.meter, s)
	var shown []latenessOf
	for _, t := range all.topics {
		if t.name != access.AuditTopic && t.sum.Deliveries > 0 && c.may(access.Inspect, t.name) == nil {
			shown = append(shown, t)
		}
	}
	switch {
	case p.Topic != "":
		for _, t := range shown {
			if t.name == p.Topic {
				p.Sum, p.Curve = p.row(t), curveOf(p.frame, s, t.steps, p.Oldest)
			}
		}
		return c.show("lateness", p)
	case p.Whole:
		p.Sum, p.Curve = p.row(all.total), curveOf(p.frame, s, all.total.steps, p.Oldest)
	}
	p.addTopics(shown)
	return c.show("lateness", p)
}

// addTopics adds small pictures and rows, all on one scale.
func (p *latenessPage) addTopics(all []latenessOf) {
	var sums []overview.Traffic
	for _, t := range all {
		sums = append(sums, t.sum)
	}
	h := heightsFor(smallHeight, 0, sums...)
	for _, t := range all {
		row := p.row(t)
		if p.Rows = append(p.Rows, row); len(p.Small) < mostSmall {
			p.Small = append(p.Small, smallCurve{row, h.latenessPaths(t.steps), h.of(overview.PromptLimit)})
		}
	}
}

// row says in numbers what was delivered.
func (p *latenessPage) row(t latenessOf) latenessRow {
	r := latenessRow{Topic: t.name, Deliveries: t.sum.Deliveries, TooLate: t.sum.Late, P50: p.Lateness(t.sum.P50), P99: p.Lateness(t.sum.P99), Max: p.Lateness(t.sum.Max)}
	r.Path = p.Path("/lateness") + "?" + url.Values{"topic": {t.name}, "span": {p.Chosen}}.Encode()
	return r
}

// lookForOldest asks for how long a message has been ready. The page does without when the store does not tell.
func (c *call) lookForOldest(p *latenessPage) {
	over, err := c.console.reader.Glance(c.r.Context())
	if err != nil || over.Counting || over.Err != nil || !over.Inspected {
		return
	}
	p.Asked, p.Now = true, over.AsOf
	for _, t := range over.Topics {
		if t.Ready == 0 || t.NextDue.IsZero() || t.Settings.DeliveryPaused || p.Topic != "" && p.Topic != t.Topic || c.may(access.Inspect, t.Topic) != nil {
			continue
		}
		if late := max(0, p.Now.Sub(t.NextDue)); p.OldestIn == "" || late > p.Oldest {
			p.Oldest, p.OldestIn = late, t.Topic
		}
	}
}

// latenessOf is what a meter has of one topic, or of all.
type latenessOf struct {
	name  string
	steps []overview.Traffic
	sum   overview.Traffic
}

// latenessAll is what a meter has of a span. Whoever gets one only reads it.
type latenessAll struct {
	total latenessOf
	// topics begin with the one that was latest.
	topics []latenessOf
	made   time.Time
}

// lateness keeps what was counted last, for all who look. A day of a hundred topics has 144,000 minutes.
type lateness struct {
	mu   sync.Mutex
	kept map[string]*latenessAll // guarded by mu
}

func (l *lateness) of(m *overview.Meter, s latenessSpan) *latenessAll {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.kept[s.name]; a != nil && time.Since(a.made) < s.fresh {
		return a
	}
	a := &latenessAll{made: time.Now()}
	a.total.steps, a.total.sum = m.Steps("", s.steps, s.minutes)
	for _, name := range m.Topics() {
		t := latenessOf{name: name}
		if t.steps, t.sum = m.Steps(name, s.steps, s.minutes); t.steps != nil {
			a.topics = append(a.topics, t)
		}
	}
	slices.SortStableFunc(a.topics, func(x, y latenessOf) int {
		return cmp.Or(cmp.Compare(y.sum.P99, x.sum.P99), cmp.Compare(y.sum.Max, x.sum.Max), cmp.Compare(x.name, y.name))
	})
	if l.kept == nil {
		l.kept = make(map[string]*latenessAll)
	}
	l.kept[s.name] = a
	return a
}
