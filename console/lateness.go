package console

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/internal/overview"
	"github.com/punctualmq/punctual/storekit"
)

// latenessPage shows how late deliveries were: one large curve, and numbers and small curves of
// single topics, the latest topic first.
type latenessPage struct {
	*frame
	// Topic is the topic of the large curve; "" stands for all topics.
	Topic  string
	Chosen string
	Spans  []choice
	// Observed is true if the meter counts. It has counted since Since.
	Observed bool
	Since    time.Time
	// Sum has the numbers of the whole span, Curve shows them over time. The page has both only if
	// Whole is true: the reader may inspect Topic, or for "" all topics.
	Whole bool
	Sum   latenessRow
	Curve *curve
	// Oldest is how long the message that waits longest has been ready, OldestIn its topic, "" if
	// no message is ready. Topics whose delivery is paused, or that the reader may not inspect, do
	// not count. On the page of all topics neither do events. Asked is true if the store has
	// answered.
	Oldest   time.Duration
	OldestIn string
	Asked    bool
	// Rows are the numbers of those topics that the meter counts by themselves, that had deliveries
	// in the span and that the reader may inspect, the latest first. The topic of the audit log is
	// not among them. Small are the curves of the first mostSmall of them. A page of one topic has
	// neither.
	Small []smallCurve
	Rows  []latenessRow
}

// latenessSpan is a time over which the page shows lateness.
type latenessSpan struct {
	name string
	// The span has steps steps of minutes minutes each. A label stands at each step that begins at
	// a minute of the day which is a multiple of tick.
	steps, minutes, tick int
}

func latenessSpans() []latenessSpan {
	return []latenessSpan{{"1h", trafficMinutes, 1, 10}, {"24h", 96, 15, 180}}
}

// latenessRow has the numbers of the deliveries of one topic, or of all topics. TooLate is how many
// were later than overview.PromptLimit.
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
	// smallHeight is the height of a small curve, mostSmall how many small curves a page has at
	// most.
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
	total, shown := c.latenesses(s)
	switch {
	case p.Topic != "":
		for _, t := range shown {
			if t.name == p.Topic {
				p.Sum, p.Curve = p.row(t), curveOf(p.frame, s, t.steps, p.Oldest)
			}
		}
		return c.show("lateness", p)
	case p.Whole:
		p.Sum, p.Curve = p.row(total), curveOf(p.frame, s, total.steps, p.Oldest)
	}
	p.addTopics(shown)
	return c.show("lateness", p)
}

// addTopics fills Rows and Small. all has the topics in the order of the page, the latest first.
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

// lookForOldest sets Oldest, OldestIn and Asked from the counts of the topics. If there are no
// counts or the last count has failed, it leaves all three as they are.
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
		if p.Topic == "" && strings.HasSuffix(t.Topic, storekit.EventSuffix) { // events wait until somebody reads them, as in Overview.Oldest
			continue
		}
		if late := max(0, p.Now.Sub(t.NextDue)); p.OldestIn == "" || late > p.Oldest {
			p.Oldest, p.OldestIn = late, t.Topic
		}
	}
}

// latenessOf is what the meter has counted of one topic, or of all topics, over a span.
type latenessOf struct {
	name  string
	steps []overview.Traffic
	sum   overview.Traffic
}

// latenesses returns what the meter has counted over a span: of all topics together, and of each
// topic, the one with the latest first.
func (c *call) latenesses(s latenessSpan) (total latenessOf, topics []latenessOf) {
	m := c.console.meter
	total.steps, total.sum = m.Steps("", s.steps, s.minutes)
	for _, name := range m.Topics() {
		t := latenessOf{name: name}
		if t.steps, t.sum = m.Steps(name, s.steps, s.minutes); t.sum.Deliveries > 0 && name != access.AuditTopic && c.may(access.Inspect, name) == nil {
			topics = append(topics, t)
		}
	}
	slices.SortStableFunc(topics, func(x, y latenessOf) int {
		return cmp.Or(cmp.Compare(y.sum.P99, x.sum.P99), cmp.Compare(y.sum.Max, x.sum.Max), cmp.Compare(x.name, y.name))
	})
	return total, topics
}
