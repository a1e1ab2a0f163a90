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
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/audit"
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
	// On is the position in the list at which the last requeue stopped because its time was up, or "".
	On string
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
	p := &deadPage{frame: c.frame("dead"), Topic: c.get("topic"), Whole: true, On: c.get("on")}
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

const (
	// requeuePage is how many dead messages a requeue reads in one call of the store. requeueTime is after how long a requeue stops, so that
	// its form is answered; the next page then offers to go on.
	requeuePage = 1000
	requeueTime = 20 * time.Second
)

// deathQuery reads the fields of a form that choose dead messages: those that the store filters by, and the filter by error.
func (c *call) deathQuery(limit int) (q punctual.ListQuery, errors deathFilter, err error) {
	q = punctual.ListQuery{Topic: c.path["topic"], State: punctual.StateDead, Reason: punctual.DeathReason(c.get("reason")), Limit: limit}
	if q.From, err = c.instant("from"); err != nil {
		return q, errors, err
	}
	if q.To, err = c.instant("to"); err != nil {
		return q, errors, err
	}
	errors, err = c.deathFilter()
	return q, errors, err
}

// requeueDead requeues the dead messages that the form's fields choose. With the field "spread" their due times are spread over that time.
func (c *call) requeueDead() error {
	inspector, err := c.inspector()
	if err != nil {
		return err
	}
	now, err := c.now()
	if err != nil {
		return err
	}
	q, filter, err := c.deathQuery(requeuePage)
	if err != nil {
		return err
	}
	q.After = c.get("on")
	if end := now.Add(time.Millisecond); q.To.IsZero() || q.To.After(end) {
		q.To = end // so that a message which dies again during the requeue is not requeued a second time
	}
	spread, err := notation.ParseDuration(cmp.Or(c.get("spread"), "0"))
	if err != nil {
		return err
	}
	var r requeued
	detail := fmt.Sprintf("reason %q, %s, spread over %s", q.Reason, filter, notation.FormatDuration(spread))
	n, err := c.record(audit.Change{Verb: "requeue", Topic: q.Topic, Detail: detail}, func(ctx context.Context) (n int64, err error) {
		r, err = c.requeueAll(ctx, inspector, q, filter, spread)
		return r.done, err
	})
	if err != nil {
		return fmt.Errorf("requeue dead messages of %s (%s were, of %s looked at): %w", q.Topic, thousands(n), thousands(r.looked), err)
	}
	back := url.Values{"topic": {q.Topic}}
	note := notice{Key: "notice.requeued", Args: []string{thousands(n), thousands(r.looked)}}
	if r.next != "" { // the next page shows the list from there, and its form goes on with the same filter
		note.Key = "notice.requeued.more"
		for name, value := range map[string]string{"reason": string(q.Reason), "from": exact(q.From), "to": exact(q.To), "on": r.next, "after": r.next} {
			if value != "" {
				back.Set(name, value)
			}
		}
		filter.addTo(back)
	}
	return c.redirect(c.frame("").Path("/dead")+"?"+back.Encode(), note)
}

// requeued is the result of a requeue: done is how many messages were requeued, looked how many were read.
type requeued struct {
	done, looked int64
	// next is the position at which to go on, or "" if the end of the list was reached.
	next string
}

// requeueAll requeues, page by page, the messages of a list that the filter keeps. It ends with the list, or with the page during which
// requeueFor is over.
func (c *call) requeueAll(ctx context.Context, i punctual.Inspector, q punctual.ListQuery, filter deathFilter, spread time.Duration) (r requeued, err error) {
	end := time.Now().Add(c.console.requeueFor)
	for number := 0; ; {
		page, err := i.List(ctx, q)
		if err != nil {
			return r, err
		}
		as := make([]punctual.Amendment, 0, len(page.Messages))
		for k := range page.Messages {
			if m := &page.Messages[k]; filter.keeps(m) {
				as = append(as, punctual.Amendment{Change: punctual.ChangeRequeue, Topic: q.Topic, ID: m.ID, Delay: share(spread, number)})
				number++
			}
		}
		r.looked += int64(len(page.Messages))
		n, err := c.requeueSome(ctx, as)
		if r.done += n; err != nil {
			return r, err
		}
		if q.After = page.Next; q.After == "" {
			return r, nil
		}
		if time.Now().After(end) {
			r.next = q.After
			return r, nil
		}
	}
}

// requeueSome requeues messages and returns how many of them it has requeued. A message that is no longer dead is no error, because somebody
// else may have requeued or purged it.
func (c *call) requeueSome(ctx context.Context, as []punctual.Amendment) (n int64, err error) {
	if len(as) == 0 {
		return 0, nil
	}
	rs, err := c.console.store.Amend(ctx, as)
	if err != nil {
		return 0, err
	}
	for _, r := range rs {
		switch {
		case r.Err == nil:
			n++
		case !errors.Is(r.Err, punctual.ErrNotDead) && !errors.Is(r.Err, punctual.ErrNotFound):
			err = r.Err
		}
	}
	return n, err
}

// share returns the delay of message n when messages are spread over a time. It uses the fractions of multiples of the golden ratio, which
// fill the time evenly although the number of messages is not known yet.
func share(spread time.Duration, n int) time.Duration {
	_, place := math.Modf(float64(n) / math.Phi)
	return time.Duration(place * float64(spread)).Truncate(time.Millisecond)
}

// exportDead sends the dead messages that the query chooses as lines of JSON, each in the form that a message has in the HTTP interface.
func (c *call) exportDead() error {
	inspector, err := c.inspector()
	if err != nil {
		return err
	}
	q, filter, err := c.deathQuery(scanPage)
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
