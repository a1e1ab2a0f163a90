package console

import (
	"bufio"
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/overview"
	"github.com/punctualmq/punctual/internal/wire"
)

const (
	// deadSample is how many dead messages a page groups at most: the newest of at most deadTopics
	// topics, an equal share of each topic.
	deadSample, deadTopics = 1000, 8
	// deadDays is how many days the picture of the dead shows.
	deadDays = 14
)

// deadPage shows why messages died, in all topics.
type deadPage struct {
	*frame
	Deaths *deaths
	// Topics are the topics with dead messages, the one with the most first, at most deadTopics.
	// More is how many are left out.
	Topics []topicRow
	More   int
	// All is how many messages are dead in all topics, as far as they are counted.
	All int64
}

// deaths are the newest dead messages of some topics, by day and grouped.
type deaths struct {
	// One is true if all are of one topic.
	One    bool
	Groups []deadGroup
	// Sample is how many dead messages were grouped. Whole is true if these are all there are.
	Sample int
	Whole  bool
	// Days counts the messages of the sample by the day of their death.
	Days *chart
}

// deadGroup is dead messages of the same topic with the same reason and the same error, as
// lastError returns it.
type deadGroup struct {
	Topic, Reason, Error string
	Count                int
	Newest               time.Time
	Example              string
	// Path leads to the list of the group, ReasonPath to that of all dead messages of the topic
	// with this reason.
	Path, ReasonPath string
}

func (c *call) showDead() error {
	p := &deadPage{frame: c.frame("dead")}
	all, err := c.visibleTopics(p.frame)
	if err != nil {
		return err
	}
	for _, s := range all {
		if s.Dead > 0 {
			p.Topics = append(p.Topics, rowOf(s, p.Now))
			p.All += s.Dead
		}
	}
	slices.SortStableFunc(p.Topics, topicOrder("dead"))
	p.More = max(0, len(p.Topics)-deadTopics)
	p.Topics = p.Topics[:len(p.Topics)-p.More]
	var names []string
	for _, t := range p.Topics {
		names = append(names, t.Topic)
	}
	if p.Deaths, err = c.deaths(p.frame, names...); err != nil {
		return err
	}
	p.Deaths.Whole = p.Deaths.Whole && p.More == 0 && !p.Partial
	return c.show("dead", p)
}

// deaths reads the newest dead messages of the topics, groups them and counts them by day.
func (c *call) deaths(f *frame, topics ...string) (*deaths, error) {
	d := &deaths{Whole: true, One: f.Page == "topic"}
	groups := make(map[deadGroup]*deadGroup)
	edges := daysBefore(f.Now.In(c.look.zone), deadDays)
	counts := make([]int64, deadDays)
	for _, topic := range topics {
		q := punctual.ListQuery{Topic: topic, State: punctual.StateDead}
		dead, whole, err := newest(c.r.Context(), c.inspector, q, deadSample/len(topics))
		if err != nil {
			return nil, fmt.Errorf("list the dead messages of %s: %w", topic, err)
		}
		d.Whole = d.Whole && whole
		d.Sample += len(dead)
		for _, m := range dead {
			key := deadGroup{Topic: m.Topic, Reason: string(m.Reason), Error: lastError(&m)}
			g := groups[key]
			if g == nil {
				g = &deadGroup{Topic: key.Topic, Reason: key.Reason, Error: key.Error, Newest: m.Died, Example: m.ID}
				of := url.Values{"state": {"dead"}, "reason": {g.Reason}}
				g.ReasonPath = f.TopicPath(m.Topic) + "?" + of.Encode()
				deathFilter{Text: g.Error, Whole: true}.addTo(of)
				g.Path = f.TopicPath(m.Topic) + "?" + of.Encode()
				groups[key] = g
			}
			g.Count++
			if day, _ := slices.BinarySearchFunc(edges, m.Died, func(e, t time.Time) int { return cmp.Or(e.Compare(t), -1) }); day > 0 && day <= deadDays {
				counts[day-1]++
			}
		}
	}
	for _, g := range slices.SortedFunc(maps.Values(groups), func(a, b *deadGroup) int { return cmp.Or(b.Count-a.Count, b.Newest.Compare(a.Newest)) }) {
		d.Groups = append(d.Groups, *g)
	}
	d.Groups = d.Groups[:min(len(d.Groups), pageRows)]
	k := columns{name: "chart.dead", edges: edges, series: []series{{name: c.look.language.text("state.dead"), hue: 6, counts: counts}}}
	k.label = func(i int) string { return f.stepLabel(edges[i].In(c.look.zone), overview.Day) }
	if d.One {
		k.path = func(i int) string { return f.listBetween(topics[0], "dead", edges[i], edges[i+1]) }
	}
	for i := 0; i < deadDays; i += 2 {
		k.ticks = append(k.ticks, tick{X: percent(100 * float64(i) / deadDays), Text: edges[i].In(c.look.zone).Format("01-02")})
	}
	d.Days = f.draw(k)
	return d, nil
}

// daysBefore returns when each of the last n days begins in the time zone of now, and when the last
// one ends. The last day is today.
func daysBefore(now time.Time, n int) []time.Time {
	var edges []time.Time
	for i := range n + 1 {
		edges = append(edges, overview.StartOfDay(now.AddDate(0, 0, i+1-n), now.Location()))
	}
	return edges
}

// exportDead sends the dead messages that the query chooses as lines of JSON, each in the form that
// a message has in the HTTP interface.
func (c *call) exportDead() (err error) {
	q := punctual.ListQuery{Topic: c.path["topic"], State: punctual.StateDead, Reason: punctual.DeathReason(c.get("reason")), Limit: scanPage}
	if q.From, q.To, err = c.window(); err != nil {
		return err
	}
	filter, err := c.messageFilter(punctual.StateDead)
	if err != nil {
		return err
	}
	page, err := c.inspector.List(c.r.Context(), q)
	if err != nil {
		return fmt.Errorf("list the dead messages of %s: %w", q.Topic, err)
	}
	c.w.Header().Set("Content-Type", wire.TypeNDJSON)
	c.w.Header().Set("Content-Disposition", `attachment; filename="dead.ndjson"`)
	c.begun = true
	if c.r.Method == http.MethodHead {
		return nil
	}
	out := bufio.NewWriter(c.w)
	for {
		for i := range page.Messages {
			if !filter.keeps(&page.Messages[i]) {
				continue
			}
			if err := c.writeLine(out, &page.Messages[i]); err != nil {
				panic(http.ErrAbortHandler) // so that the browser does not take a part of the export for the whole
			}
		}
		if page.Next == "" {
			break
		}
		q.After = page.Next
		if page, err = c.inspector.List(c.r.Context(), q); err != nil {
			c.console.log.Warn("an export broke off", "topic", q.Topic, "error", err)
			panic(http.ErrAbortHandler)
		}
	}
	return out.Flush()
}

func (c *call) writeLine(out *bufio.Writer, m *punctual.Info) error {
	if c.console.options.HideBodies {
		m.Body = nil
		maps.DeleteFunc(m.Headers, func(name, _ string) bool {
			shown, _ := c.headers(map[string]string{name: ""})
			return len(shown) == 0
		})
	}
	line, err := wire.Encode(wire.MessageOf(m))
	if err != nil {
		return err
	}
	_, err = out.Write(append(line, '\n'))
	return err
}
