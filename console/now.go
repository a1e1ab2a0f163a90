package console

import (
	"cmp"
	"context"
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/overview"
	"github.com/punctualmq/punctual/storekit"
)

// nowPage shows whether messages are delivered in time, what needs attention, and what falls due.
type nowPage struct {
	*frame
	Over *overview.Overview
	// Headline is the end of the key of the sentence at the top: "late", "paused", "fine", "idle",
	// "unknown", "empty" or "counting". Late is the message that has been ready for longest, nil if
	// none is ready.
	Headline string
	Late     *overview.Oldest
	// First is the picture of the next hour, Further those of longer spans. Pictures that are not
	// counted yet are left out.
	First   template.HTML
	Further []template.HTML
	// Counting is true if a picture is left out because it is not counted yet.
	Counting bool
	Findings []finding
	Traffic  *traffic
	// From and To are the bar of a picture that was chosen, zero if none was. Between are the
	// topics with messages due in it, the one with the most messages first.
	From, To time.Time
	Between  []dueIn
	// More is how many topics with scheduled messages are left out of Between.
	More int
	// Hour is how many messages are due in the next hour, 0 while that is not counted.
	Hour int64
}

// finding is something that somebody should see to. Sentence says it, and Path leads to a page that
// shows more.
type finding struct {
	overview.Finding
	Severity string
	Path     string
	Sentence string
}

func (c *call) showNow() error {
	p := &nowPage{frame: c.frame("now")}
	c.renew()
	var err error
	if p.Over, err = c.console.reader.ReadIn(c.r.Context(), c.look.zone); err != nil {
		return err
	}
	if p.Over.Counting {
		p.Headline, p.Now = "counting", time.Now()
		return c.show("now", p)
	}
	p.noteCounts(p.Over.AsOf, p.Over.Counted, p.Over.Partial)
	if p.Over.Err != nil {
		p.Stale = visible(p.Over.Err.Error())
	}
	p.Late = p.Over.Oldest
	p.Headline = headline(p.Over)
	p.Traffic = c.traffic(p.frame)
	if p.From, p.To, err = c.window(); err != nil {
		return err
	}
	chosen := spanCalled(c.get("span"))
	for i, picture := range []overview.Picture{p.Over.Minutes, p.Over.Hours, p.Over.Days} {
		if spans()[i] == chosen && p.From.Before(p.To) && p.To.After(p.Now) {
			if err := c.countBetween(p, &picture, p.Over.Topics); err != nil {
				return err
			}
		}
		if picture.All == nil {
			p.Counting = p.Counting || len(p.Over.Topics) > 0
			continue
		}
		drawn, err := c.drawnPicture(p.frame, &picture, spans()[i])
		if err != nil {
			return err
		}
		if i == 0 {
			p.First, p.Hour = drawn, picture.All.Sum()
		} else {
			p.Further = append(p.Further, drawn)
		}
	}
	for _, f := range p.Over.Attention {
		p.Findings = append(p.Findings, c.finding(p.frame, p.Over, f))
	}
	return c.show("now", p)
}

// dueIn is how many messages of a topic are due between two times. With Capped there are more than
// Count.
type dueIn struct {
	Topic, Path string
	Count       int64
	Capped      bool
}

const (
	// betweenTopics bounds the topics whose messages countBetween lists for one bar, betweenMost
	// the messages that it lists of each.
	betweenTopics, betweenMost = 50, 100
)

// countBetween counts the messages of each topic that are due from p.From to p.To. For topics that
// the picture counted one by one it takes the numbers of the picture, if both times are edges of
// its steps. Of other topics it lists the first betweenMost messages, because a forecast of the
// store would count everything from now on, which takes long if From is far away.
func (c *call) countBetween(p *nowPage, picture *overview.Picture, topics []punctual.TopicStats) (err error) {
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
		page, err := c.inspector.List(ctx, q)
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

// countIn returns how many messages are due between two times according to a count ahead. ok is
// false unless both times are edges of its steps.
func countIn(a *overview.Ahead, from, to time.Time) (n int64, ok bool) {
	at := func(t time.Time) int { return slices.IndexFunc(a.Edges, t.Equal) }
	first, end := at(from), at(to)
	if first < 0 || end < first {
		return 0, false
	}
	return sum(a.Counts[first:end]), true
}

// headline returns the value of nowPage.Headline for an overview whose Counting is false.
func headline(o *overview.Overview) string {
	switch {
	case o.Err != nil || !o.Inspected:
		return "unknown"
	case o.Oldest != nil && o.Oldest.Late >= tooLate:
		return "late"
	case len(o.Topics) == 0:
		return "empty"
	case !o.Partial && o.Totals.Scheduled+o.Totals.Ready+o.Totals.Leased == 0:
		return "idle"
	}
	for _, t := range o.Topics {
		if t.Settings.DeliveryPaused && t.Ready > 0 {
			return "paused"
		}
	}
	return "fine"
}

// hues is how many topics of a picture have a colour of their own; the other topics share one.
const hues = 5

// pictureChart draws what falls due in a span, by topic: the first topics of the picture one by
// one, at most as many as hues says, and the sum of all others.
func (c *call) pictureChart(f *frame, p *overview.Picture, s span) *chart {
	k := c.columnsOf(f, p.All, s)
	rest := series{name: c.look.language.text("chart.others"), counts: append([]int64(nil), p.All.Counts...), overdue: p.All.Overdue, beyond: p.All.Beyond}
	for i, t := range p.Topics {
		if i == hues {
			break
		}
		k.series = append(k.series, series{name: t.Topic, path: f.TopicPath(t.Topic), hue: i + 1, counts: t.Counts, overdue: t.Overdue, beyond: t.Beyond})
		for n, v := range t.Counts {
			rest.counts[n] = max(0, rest.counts[n]-v)
		}
		rest.overdue, rest.beyond = max(0, rest.overdue-t.Overdue), max(0, rest.beyond-t.Beyond)
	}
	if left := rest.overdue + rest.beyond + sum(rest.counts); left > 0 {
		k.series = append(k.series, rest)
	}
	k.path = func(i int) string { return f.dueBetween(p.All.Edges[i], p.All.Edges[i+1], s) }
	k.pathOverdue = f.Path("/topics") + "?sort=ready"
	if k.scale = f.Path("/"); !k.log {
		k.scale += "?scale=log"
	}
	return f.draw(k)
}

func sum(counts []int64) (n int64) {
	for _, c := range counts {
		n += c
	}
	return n
}

// finding returns a finding as a sentence, with the path of the page that shows more. The sentence
// is in the language of the page, except for what the store's storekit.Examiner has found, which is
// in English.
func (c *call) finding(f *frame, over *overview.Overview, o overview.Finding) finding {
	out := finding{Finding: o, Severity: o.Severity.String()}
	text := c.look.language.text
	at := o.At.In(c.look.zone).Format("2006-01-02 15:04")
	key := "finding." + string(o.Kind)
	if o.Kind == overview.KindSchedule {
		out.Sentence, out.Path = text(key, visible(o.Name), visible(o.Value)), f.Path("/schedules")
		if o.Value == "" && !o.At.IsZero() {
			key += ".missed"
			out.Sentence = text(key, visible(o.Name), at)
		}
		if o.Others > 0 {
			out.Sentence = text(key+".others", o.Others)
		} else {
			out.Path = f.SchedulePath(o.Topic, o.Name)
		}
		return out
	}
	if o.Others > 0 {
		out.Sentence = text("finding.others", o.Others, text("kind."+string(o.Kind)))
		out.Path = f.Path("/topics")
		return out
	}
	switch parent, ofEvents := strings.CutSuffix(o.Topic, storekit.EventSuffix); {
	case o.Kind == overview.KindStore:
		out.Sentence = visible(o.Name + ": " + o.Value + ". " + o.Remedy)
		return out
	case o.Kind == overview.KindLate && ofEvents:
		out.Sentence, out.Topic, out.Path = text("events.unread", o.Count, f.Span(o.Late)), parent, f.TopicPath(parent, "events")
		return out
	case o.Kind == overview.KindDeliveryPaused && o.Count == 0:
		key += ".empty"
	case o.Kind == overview.KindBurst && o.Step == overview.Day:
		key, at = key+".day", o.At.In(c.look.zone).Format(time.DateOnly)
	}
	out.Sentence = text(key, o.Count, f.Span(o.Late), at, visible(o.Value))
	switch {
	case o.Kind == overview.KindBurst:
		out.Path = f.burstPath(over, o)
	case o.Topic != "" && o.State != punctual.StateNone:
		out.Path = f.listBetween(o.Topic, o.State.String(), o.From, o.To)
	case o.Topic != "":
		out.Path = f.TopicPath(o.Topic)
	}
	return out
}

// burstPath returns the path of the finest picture that has the burst, with the topics of the bar
// that the burst is in.
func (f *frame) burstPath(over *overview.Overview, o overview.Finding) string {
	for i, picture := range []overview.Picture{over.Minutes, over.Hours, over.Days} {
		if picture.All == nil {
			continue
		}
		edges := picture.All.Edges
		if k, exact := slices.BinarySearchFunc(edges, o.From, time.Time.Compare); exact && k+1 < len(edges) {
			return f.dueBetween(edges[k], edges[k+1], spans()[i])
		} else if 0 < k && k < len(edges) {
			return f.dueBetween(edges[k-1], edges[k], spans()[i])
		}
	}
	return f.dueBetween(o.From, o.To, spans()[0])
}

// dueBetween returns the path of the page Now that lists the topics with messages due between two
// times. s says which of its pictures the page shows.
func (f *frame) dueBetween(from, to time.Time, s span) string {
	return f.Path("/") + "?" + url.Values{"span": {s.name}, "from": {exact(from)}, "to": {exact(to)}}.Encode()
}
