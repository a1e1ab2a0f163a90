package console

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/notation"
	"github.com/punctualmq/punctual/internal/overview"
)

// aheadPage shows one large picture of what falls due in a span, and the topics behind one of its bars.
type aheadPage struct {
	*frame
	Spans    []choice
	Chart    *chart
	Counting bool
	// Between are the topics with messages due from From to To, if a bar of the picture was chosen. Without one both times are zero.
	From, To time.Time
	Between  []dueIn
	// More is how many topics with scheduled messages were not counted for Between.
	More int
}

// dueIn is how many messages of a topic are due between two times. With Capped there are more than Count.
type dueIn struct {
	Topic, Path string
	Count       int64
	Capped      bool
}

const (
	// betweenTopics bounds the topics whose messages countBetween lists for one bar, betweenMost the messages that it lists of each.
	betweenTopics, betweenMost = 50, 100
)

func (c *call) showAhead() error {
	s := spanCalled(c.get("span"))
	p := &aheadPage{frame: c.frame("ahead")}
	for _, o := range spans() {
		p.Spans = append(p.Spans, choice{Value: c.withQuery("span", o.name), Text: c.look.language.text("span." + o.name), Chosen: o.name == s.name})
	}
	c.renew()
	over, err := c.console.reader.ReadIn(c.r.Context(), c.look.zone)
	if err != nil {
		return err
	}
	if over.Counting {
		p.Counting, p.Now = true, time.Now()
		return c.show("ahead", p)
	}
	p.noteCounts(over.AsOf, over.Counted, over.Partial)
	if over.Err != nil {
		p.Stale = visible(over.Err.Error())
	}
	picture := map[string]overview.Picture{"60m": over.Minutes, "48h": over.Hours, "90d": over.Days}[s.name]
	if p.Counting = picture.All == nil && len(over.Topics) > 0; picture.All != nil {
		p.Chart = c.pictureChart(p.frame, &picture, s)
		p.Chart.Scale = c.withQuery("scale", map[bool]string{false: "log", true: ""}[p.Chart.Log])
	}
	if p.From, err = c.instant("from"); err != nil {
		return err
	}
	if p.To, err = c.instant("to"); err != nil {
		return err
	}
	if p.From.Before(p.To) && p.To.After(p.Now) {
		if err := c.countBetween(p, &picture, over.Topics); err != nil {
			return err
		}
	}
	return c.show("ahead", p)
}

// countBetween counts the messages of each topic that are due from p.From to p.To. For topics that the picture counted one by one it takes
// the numbers of the picture, if both times are edges of its steps. Of other topics it lists the first betweenMost messages, because a
// forecast of the store would count everything from now on, which takes long if From is far away.
func (c *call) countBetween(p *aheadPage, picture *overview.Picture, topics []punctual.TopicStats) error {
	inspector, err := c.inspector()
	if err != nil {
		return err
	}
	known := make(map[string]bool)
	for _, a := range picture.Topics {
		n, ok := countIn(a, p.From, p.To)
		if known[a.Topic] = ok; ok && n > 0 {
			p.Between = append(p.Between, dueIn{Topic: a.Topic, Count: n})
		}
	}
	var others []dueIn
	for _, t := range topics {
		if t.Scheduled == 0 || known[t.Topic] {
			continue
		}
		if len(others) == betweenTopics {
			p.More++
			continue
		}
		others = append(others, dueIn{Topic: t.Topic})
	}
	err = eachInParallel(c.r.Context(), len(others), func(ctx context.Context, i int) error {
		q := punctual.ListQuery{Topic: others[i].Topic, State: punctual.StateScheduled, From: p.From, To: p.To, Limit: betweenMost}
		page, err := inspector.List(ctx, q)
		others[i].Count, others[i].Capped = int64(len(page.Messages)), page.Next != ""
		return err
	})
	if err != nil {
		return fmt.Errorf("count what is due: %w", err)
	}
	p.Between = slices.DeleteFunc(append(p.Between, others...), func(d dueIn) bool { return d.Count == 0 })
	for i := range p.Between {
		p.Between[i].Path = p.listBetween(p.Between[i].Topic, "scheduled", p.From, p.To)
	}
	slices.SortStableFunc(p.Between, func(a, b dueIn) int { return cmp.Compare(b.Count, a.Count) })
	return nil
}

// countIn returns how many messages are due between two times according to a count ahead. ok is false unless both times are edges of its steps.
func countIn(a *overview.Ahead, from, to time.Time) (n int64, ok bool) {
	at := func(t time.Time) int { return slices.IndexFunc(a.Edges, t.Equal) }
	first, end := at(from), at(to)
	if first < 0 || end < first {
		return 0, false
	}
	return sum(a.Counts[first:end]), true
}

// dueBetween returns the path of the page that lists the topics with messages due between two times.
func (f *frame) dueBetween(from, to time.Time, s span) string {
	return f.Path("/ahead") + "?" + url.Values{"span": {s.name}, "from": {notation.FormatTime(from)}, "to": {notation.FormatTime(to)}}.Encode()
}
