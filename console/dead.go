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
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/internal/notation"
	"github.com/punctualmq/punctual/internal/overview"
	"github.com/punctualmq/punctual/internal/wire"
)

const (
	// deadSample is how many dead messages a page groups at most: the newest of at most deadTopics topics, an equal share of each topic.
	deadSample, deadTopics = 1000, 8
	// deadDays is how many days the picture of the dead shows.
	deadDays = 14
)

// deadPage shows the dead messages of one topic, or of the topics that have the most of them.
type deadPage struct {
	*frame
	Topic  string
	Topics []topicRow
	// More, if above 0, is how many topics with dead messages are not in Topics. All is how many dead messages there are, as far as they
	// are counted.
	More int
	All  int64
	// Groups are made of Sample dead messages, the newest of each topic in Topics. Whole is true if these are all that there are.
	Groups  []deadGroup
	Sample  int
	Whole   bool
	Days    *chart
	List    *messageList
	Reasons []choice
	// Export is the path at which the list can be downloaded as lines of JSON, "" without a list.
	Export string
}

// deadGroup is dead messages of the same topic with the same reason and the same error, as lastError returns it.
type deadGroup struct {
	Topic, Reason, Error string
	Count                int
	Newest               time.Time
	Example              string
	// Path leads to the list of the group, ReasonPath to that of all dead messages of the topic with the same reason.
	Path, ReasonPath string
}

func (c *call) showDead() error {
	p := &deadPage{frame: c.frame("dead"), Topic: c.get("topic"), Whole: true}
	all, err := c.visibleTopics(p.frame)
	if err != nil {
		return err
	}
	for _, s := range all {
		// Until the first count has ended, it is not known which topics have dead messages. Only the topic that was asked for is read then,
		// because most topics have no dead messages and each would take several calls.
		if (s.Dead > 0 && p.Topic == "") || p.Topic == s.Topic && (s.Dead > 0 || p.Partial) {
			p.Topics = append(p.Topics, rowOf(s, p.Now))
			p.All += s.Dead
		}
	}
	slices.SortStableFunc(p.Topics, topicOrder("dead"))
	if p.More = len(p.Topics) - deadTopics; p.More > 0 {
		p.Topics, p.Whole = p.Topics[:deadTopics], false
	}
	if p.Topic != "" {
		if err := c.may(access.Inspect, p.Topic); err != nil {
			return err
		}
		p.Subject = p.Topic
	}
	if err := c.groupDead(p); err != nil {
		return err
	}
	if p.Partial {
		p.All, p.Whole = int64(p.Sample), false
	}
	if p.Topic != "" && len(p.Topics) == 1 {
		if p.List, err = c.list(p.frame, p.Topic, punctual.StateDead, p.Topics[0].Settings); err != nil {
			return err
		}
	}
	if p.List != nil {
		chosen := url.Values{"reason": {p.List.Reason}, "from": {p.List.Since}, "to": {p.List.Until}}
		p.List.Filter.Errors.addTo(chosen)
		p.Export = p.TopicPath(p.Topic, "dead.ndjson") + "?" + chosen.Encode()
	}
	p.Reasons = c.deathReasons()
	return c.show("dead", p)
}

// groupDead groups the newest dead messages of the topics of the page, and counts them by the day on which they died.
func (c *call) groupDead(p *deadPage) error {
	inspector, err := c.inspector()
	if err != nil {
		return err
	}
	groups := make(map[deadGroup]*deadGroup)
	edges := daysBefore(p.Now.In(c.look.zone), deadDays)
	counts := make([]int64, deadDays)
	for _, t := range p.Topics {
		q := punctual.ListQuery{Topic: t.Topic, State: punctual.StateDead}
		dead, whole, err := newest(c.r.Context(), inspector, q, deadSample/max(1, len(p.Topics)))
		if err != nil {
			return fmt.Errorf("list the dead messages of %s: %w", t.Topic, err)
		}
		p.Whole = p.Whole && whole
		p.Sample += len(dead)
		for _, m := range dead {
			key := deadGroup{Topic: m.Topic, Reason: string(m.Reason), Error: lastError(&m)}
			g := groups[key]
			if g == nil {
				g = &deadGroup{Topic: key.Topic, Reason: key.Reason, Error: key.Error, Newest: m.Died, Example: m.ID}
				of := url.Values{"topic": {m.Topic}, "reason": {g.Reason}}
				g.ReasonPath = p.Path("/dead") + "?" + of.Encode()
				deathFilter{Text: g.Error, Whole: true}.addTo(of)
				g.Path = p.Path("/dead") + "?" + of.Encode()
				groups[key] = g
			}
			g.Count++
			if day, _ := slices.BinarySearchFunc(edges, m.Died, func(e, t time.Time) int { return cmp.Or(e.Compare(t), -1) }); day > 0 && day <= deadDays {
				counts[day-1]++
			}
		}
	}
	for _, g := range slices.SortedFunc(maps.Values(groups), func(a, b *deadGroup) int { return cmp.Or(b.Count-a.Count, b.Newest.Compare(a.Newest)) }) {
		p.Groups = append(p.Groups, *g)
	}
	p.Groups = p.Groups[:min(len(p.Groups), pageRows)]
	k := columns{name: "chart.dead", edges: edges, series: []series{{name: c.look.language.text("state.dead"), hue: 6, counts: counts}}}
	k.label = func(i int) string { return p.stepLabel(edges[i].In(c.look.zone), overview.Day) }
	if p.Topic != "" {
		k.path = func(i int) string {
			return p.Path("/dead") + "?" + url.Values{"topic": {p.Topic}, "from": {notation.FormatTime(edges[i])}, "to": {notation.FormatTime(edges[i+1])}}.Encode()
		}
	}
	for i := range deadDays {
		if i%2 == 0 {
			k.ticks = append(k.ticks, tick{X: percent(100 * float64(i) / deadDays), Text: edges[i].In(c.look.zone).Format("01-02")})
		}
	}
	p.Days = p.draw(k)
	return nil
}

// daysBefore returns when each of the last n days begins in the time zone of now, and when the last one ends. The last day is today.
func daysBefore(now time.Time, n int) []time.Time {
	var edges []time.Time
	for i := range n + 1 {
		edges = append(edges, overview.StartOfDay(now.AddDate(0, 0, i+1-n), now.Location()))
	}
	return edges
}

// exportDead sends the dead messages that the query chooses as lines of JSON, each in the form that a message has in the HTTP interface.
func (c *call) exportDead() error {
	inspector, err := c.inspector()
	if err != nil {
		return err
	}
	q := punctual.ListQuery{Topic: c.path["topic"], State: punctual.StateDead, Reason: punctual.DeathReason(c.get("reason")), Limit: scanPage}
	if q.From, err = c.instant("from"); err != nil {
		return err
	}
	if q.To, err = c.instant("to"); err != nil {
		return err
	}
	filter, err := c.deathFilter()
	if err != nil {
		return err
	}
	page, err := inspector.List(c.r.Context(), q)
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
		if page, err = inspector.List(c.r.Context(), q); err != nil {
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
