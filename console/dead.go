package console

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/notation"
	"github.com/punctualmq/punctual/internal/overview"
	"github.com/punctualmq/punctual/internal/wire"
)

const (
	// deadSample is how many of the newest dead messages of a topic are grouped, deadTopics of how many topics.
	deadSample, deadTopics = 1000, 8
	// deadDays is how many days the picture of the dead shows.
	deadDays = 14
)

// deadPage is the dead messages, of one topic or of those that have most.
type deadPage struct {
	*frame
	Topic  string
	Topics []topicRow
	// More is how many topics with dead messages are not in Topics.
	More int
	All  int64
	// Groups are of Sample messages, the newest; Whole tells that these are all.
	Groups  []deadGroup
	Sample  int
	Whole   bool
	Days    *chart
	List    *messageList
	Reasons []choice
	// Export is where the list is as lines of JSON.
	Export string
}

// deadGroup is dead messages of the same topic with the same reason and error.
type deadGroup struct {
	Topic, Reason, Error string
	Count                int
	Newest               time.Time
	Example              string
	Path                 string
}

func (c *call) showDead() error {
	p := &deadPage{frame: c.frame("dead"), Topic: c.get("topic"), Whole: true}
	all, err := c.visibleTopics(p.frame)
	if err != nil {
		return err
	}
	for _, s := range all {
		// Before the first count only the topic that is asked for is looked at: most have none, and to see that takes many calls.
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
		if err := c.may(ActionInspect, p.Topic); err != nil {
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
	p.Export = p.TopicPath(p.Topic, "dead.ndjson") + "?" + url.Values{"reason": {c.get("reason")}, "from": {c.get("from")}, "to": {c.get("to")}}.Encode()
	for _, r := range []punctual.DeathReason{punctual.ReasonAttemptsUsedUp, punctual.ReasonDiscarded, punctual.ReasonExpired} {
		p.Reasons = append(p.Reasons, choice{Value: string(r), Text: string(r), Chosen: c.get("reason") == string(r)})
	}
	return c.show("dead", p)
}

// groupDead groups the newest dead messages of the topics of the page, and counts them by day.
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
		dead, whole, err := newest(c.r.Context(), inspector, q, p.Now, deadSample/max(1, len(p.Topics)))
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
				g.Path = p.Path("/dead") + "?" + url.Values{"topic": {m.Topic}, "reason": {g.Reason}}.Encode()
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

// daysBefore are the edges of the last n days in the zone of now, today's included.
func daysBefore(now time.Time, n int) []time.Time {
	var edges []time.Time
	for i := range n + 1 {
		edges = append(edges, overview.StartOfDay(now.AddDate(0, 0, i+1-n), now.Location()))
	}
	return edges
}

// lastError is the first line of what went wrong last, without what differs from one message to the next: numbers.
func lastError(m *punctual.Info) string {
	if len(m.Failures) == 0 {
		return ""
	}
	text := m.Failures[len(m.Failures)-1].Error
	for i, r := range text {
		if r == '\n' {
			text = text[:i]
			break
		}
	}
	const most = 160
	if len(text) > most {
		text = text[:most] + "…"
	}
	return visible(text)
}

const (
	// requeuePage is how many dead messages are requeued in one call of the store, requeueTime for how long one form goes on.
	requeuePage = 1000
	requeueTime = 20 * time.Second
)

// requeueDead requeues the dead messages that the form's fields choose, spread over a time if asked for.
func (c *call) requeueDead() error {
	topic := c.path["topic"]
	inspector, err := c.inspector()
	if err != nil {
		return err
	}
	now, err := c.now()
	if err != nil {
		return err
	}
	q := punctual.ListQuery{Topic: topic, State: punctual.StateDead, Reason: punctual.DeathReason(c.get("reason")), Limit: requeuePage}
	if q.From, err = c.instant("from"); err != nil {
		return err
	}
	if q.To, err = c.instant("to"); err != nil {
		return err
	}
	if end := now.Add(time.Millisecond); q.To.IsZero() || q.To.After(end) {
		q.To = end // one that dies again meanwhile is not taken a second time
	}
	spread, err := notation.ParseDuration(cmp.Or(c.get("spread"), "0"))
	if err != nil {
		return err
	}
	more := false
	detail := fmt.Sprintf("reason %q, spread over %s", q.Reason, notation.FormatDuration(spread))
	n, err := c.carryOut(deed{verb: "requeue", topic: topic, detail: detail}, func(ctx context.Context) (n int64, err error) {
		n, more, err = c.requeueAll(ctx, inspector, q, spread)
		return n, err
	})
	back := c.frame("").Path("/dead") + "?" + url.Values{"topic": {topic}}.Encode()
	switch {
	case err != nil:
		return fmt.Errorf("requeue dead messages of %s (%s were): %w", topic, thousands(n), err)
	case more:
		return c.redirect(back, notice{Key: "notice.requeued.more", Args: []string{thousands(n)}})
	}
	return c.redirect(back, notice{Key: "notice.requeued", Args: []string{thousands(n)}})
}

// requeueAll requeues page by page. more tells that the time was up first.
func (c *call) requeueAll(ctx context.Context, i punctual.Inspector, q punctual.ListQuery, spread time.Duration) (n int64, more bool, err error) {
	end := time.Now().Add(requeueTime)
	for number := 0; ; {
		page, err := i.List(ctx, q)
		if err != nil {
			return n, false, err
		}
		as := make([]punctual.Amendment, len(page.Messages))
		for k, m := range page.Messages {
			as[k] = punctual.Amendment{Change: punctual.ChangeRequeue, Topic: q.Topic, ID: m.ID, Delay: share(spread, number)}
			number++
		}
		rs, err := c.console.store.Amend(ctx, as)
		if err != nil {
			return n, false, err
		}
		for _, r := range rs {
			switch {
			case r.Err == nil:
				n++
			case !errors.Is(r.Err, punctual.ErrNotDead) && !errors.Is(r.Err, punctual.ErrNotFound):
				return n, false, r.Err
			}
		}
		if page.Next == "" {
			return n, false, nil
		}
		if time.Now().After(end) {
			return n, true, nil
		}
		q.After = page.Next
	}
}

// share is the place of message n in a time over which messages are spread. Multiples of the golden ratio fill it
// evenly, however many messages there are.
func share(spread time.Duration, n int) time.Duration {
	_, place := math.Modf(float64(n) / math.Phi)
	return time.Duration(place * float64(spread)).Truncate(time.Millisecond)
}

// exportDead sends the dead messages that the query chooses as lines of JSON, in the form of the HTTP interface.
func (c *call) exportDead() error {
	inspector, err := c.inspector()
	if err != nil {
		return err
	}
	q := punctual.ListQuery{Topic: c.path["topic"], State: punctual.StateDead, Reason: punctual.DeathReason(c.get("reason")), Limit: 500}
	if q.From, err = c.instant("from"); err != nil {
		return err
	}
	if q.To, err = c.instant("to"); err != nil {
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
			if err := c.writeLine(out, &page.Messages[i]); err != nil {
				panic(http.ErrAbortHandler) // the browser must not take a part for the whole
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
