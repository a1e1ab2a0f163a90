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

// aheadPage is what falls due in one span, large, and by topic.
type aheadPage struct {
	*frame
	Spans    []choice
	Chart    *chart
	Counting bool
	// Between is the list of topics with messages due between two times, if a bar was chosen.
	From, To time.Time
	Between  []dueIn
	// More is how many topics were not counted for the list.
	More int
}

// dueIn is how many messages of a topic are due between two times.
type dueIn struct {
	Topic, Path string
	Count       int64
}

// betweenTopics bounds the topics that are counted for one bar.
const betweenTopics = 200

func (c *call) showAhead() error {
	s := spanCalled(c.get("span"))
	p := &aheadPage{frame: c.frame("ahead")}
	for _, o := range spans() {
		p.Spans = append(p.Spans, choice{Value: c.withQuery("span", o.name), Text: c.look.language.text("span." + o.name), Chosen: o.name == s.name})
	}
	over, err := c.console.reader.Read(c.r.Context())
	if err != nil {
		return err
	}
	p.Now = over.AsOf
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
		if err := c.countBetween(p, over.Topics); err != nil {
			return err
		}
	}
	return c.show("ahead", p)
}

// countBetween counts the messages of each topic that are due between the times of the page.
func (c *call) countBetween(p *aheadPage, topics []punctual.TopicStats) error {
	inspector, err := c.inspector()
	if err != nil {
		return err
	}
	from := p.From
	if p.Now.After(from) {
		from = p.Now
	}
	for _, t := range topics {
		if t.Scheduled == 0 {
			continue
		}
		if len(p.Between) == betweenTopics {
			p.More++
			continue
		}
		p.Between = append(p.Between, dueIn{Topic: t.Topic, Path: p.listBetween(t.Topic, "scheduled", p.From, p.To)})
	}
	err = eachInParallel(c.r.Context(), len(p.Between), func(ctx context.Context, i int) error {
		f, err := inspector.Forecast(ctx, punctual.ForecastQuery{Topic: p.Between[i].Topic, Step: p.To.Sub(from), Buckets: 1})
		if err == nil {
			p.Between[i].Count = f.Counts[0]
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("count what is due: %w", err)
	}
	p.Between = slices.DeleteFunc(p.Between, func(d dueIn) bool { return d.Count == 0 })
	slices.SortStableFunc(p.Between, func(a, b dueIn) int { return cmp.Compare(b.Count, a.Count) })
	return nil
}

// dueBetween is the page that says which topics have messages due between two times.
func (f *frame) dueBetween(from, to time.Time, s span) string {
	return f.Path("/ahead") + "?" + url.Values{"span": {s.name}, "from": {notation.FormatTime(from)}, "to": {notation.FormatTime(to)}}.Encode()
}
