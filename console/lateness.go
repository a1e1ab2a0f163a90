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

// latenessPage shows how late deliveries were: one large curve, and a small one for each topic, the latest topic first.
type latenessPage struct {
	*frame
	// Topic is the topic of the large curve; "" stands for all topics.
	Topic  string
	Chosen string
	Spans  []choice
	// Observed is true if the meter counts, which it has done since Since.
	Observed bool
	Since    time.Time
	// Sum covers the whole span. Whole is true if the reader may inspect Topic, or all topics: only then the page shows Sum and Curve.
	Whole bool
	Sum   latenessRow
	Curve *curve
	// Oldest is how long the message that waits longest has been ready, OldestIn its topic. Asked is true if the store has answered that.
	Oldest   time.Duration
	OldestIn string
	Asked    bool
	// Rows are the numbers of the topics that had deliveries in the span and that the reader may inspect, the latest first. Small
	// are the curves of the first mostSmall of them. A page of one topic has neither.
	Small []smallCurve
	Rows  []latenessRow
}

// latenessSpan is a time over which the page shows lateness.
type latenessSpan struct {
	name string
	// The span has so many steps of so many minutes each. A label stands where the minute of the day is a multiple of tick.
	steps, minutes, tick int
	// fresh is how long the page shows the numbers of one count.
	fresh time.Duration
}

func latenessSpans() []latenessSpan {
	return []latenessSpan{{"1h", trafficMinutes, 1, 10, time.Second}, {"24h", 96, 15, 180, 20 * time.Second}}
}

// latenessRow is the deliveries of one topic, or of all, in numbers.
type latenessRow struct {
	Topic, Path         string
	Deliveries, TooLate int64
	P50, P99, Max       string
}

// smallCurve is the curve of one topic. All small curves of a page have the same scale.
type smallCurve struct {
	latenessRow
	Paths  []curvePath
	Prompt float64
}

const (
	// smallHeight is the height of a small curve, mostSmall how many of them a page has.
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

// addTopics fills Rows and Small from topics of which the latest comes first.
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

// row returns the row of a topic.
func (p *latenessPage) row(t latenessOf) latenessRow {
	r := latenessRow{Topic: t.name, Deliveries: t.sum.Deliveries, TooLate: t.sum.Late, P50: p.Lateness(t.sum.P50), P99: p.Lateness(t.sum.P99), Max: p.Lateness(t.sum.Max)}
	r.Path = p.Path("/lateness") + "?" + url.Values{"topic": {t.name}, "span": {p.Chosen}}.Encode()
	return r
}

// lookForOldest sets Oldest, OldestIn and Asked. If the counts are not there or have failed, the page is shown without them.
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

// latenessOf is what the meter has counted of one topic, or of all.
type latenessOf struct {
	name  string
	steps []overview.Traffic
	sum   overview.Traffic
}

// latenessAll is what the meter has counted over a span. It is shared between requests and must not be changed.
type latenessAll struct {
	total latenessOf
	// topics are ordered by their 99th percentile, the latest first.
	topics []latenessOf
	made   time.Time
}

// lateness caches the last result for each span, because to add up one is work: a day of a hundred topics has 144,000 minutes. Its methods are
// safe for concurrent use.
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
