package console

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/storekit"
)

// pageRows is how many rows a page of a list has.
const pageRows = 50

// topicsPage is the table of topics.
type topicsPage struct {
	*frame
	Topics []topicRow
	// All is how many topics the reader may inspect, without the audit log. Shown is how many of
	// them the table has on all its pages: those whose names contain Filter, without those of Left.
	// Sort is a column's name.
	All, Shown   int
	Filter, Sort string
	// Left is how many internal companions are left out (isInternal), although their names contain
	// Filter. None is left out if Filter contains an @, because then it asks for companions.
	Left int
	// Start is the index of the first row. Next and Previous are the paths of the pages after and
	// before this one, or "".
	Start          int
	Next, Previous string
	Sum            punctual.TopicStats
	// Traffic is nil if the meter does not count.
	Traffic *traffic
}

// topicRow is one topic in a table.
type topicRow struct {
	punctual.TopicStats
	// Late is how long the first ready message has waited, if that is at least tooLate; otherwise
	// 0.
	Late time.Duration
	// Ahead is what falls due, nil while it is not counted or if nothing is scheduled.
	Ahead *sparkAhead
	// Spark is what passed in the last hour, nil if the meter has no numbers of the topic.
	Spark *spark
}

// tooLate is how long a message must have been ready for a page to call it late.
const tooLate = 10 * time.Second

func (c *call) showTopics() error {
	p := &topicsPage{frame: c.frame("topics"), Filter: c.get("q"), Sort: cmp.Or(c.get("sort"), "name")}
	all, err := c.visibleTopics(p.frame)
	if err != nil {
		return err
	}
	p.All = len(all)
	for _, s := range all {
		if !strings.Contains(s.Topic, p.Filter) {
			continue
		}
		if isInternal(s) && !strings.Contains(p.Filter, "@") {
			p.Left++
			continue
		}
		p.Sum.Scheduled, p.Sum.Ready, p.Sum.Leased, p.Sum.Dead = p.Sum.Scheduled+s.Scheduled, p.Sum.Ready+s.Ready, p.Sum.Leased+s.Leased, p.Sum.Dead+s.Dead
		p.Topics = append(p.Topics, rowOf(s, p.Now))
	}
	slices.SortStableFunc(p.Topics, topicOrder(p.Sort))
	p.Shown = len(p.Topics)
	p.Start = max(0, min(c.number("start"), p.Shown-1))
	if p.Start+pageRows < p.Shown {
		p.Next = c.withQuery("start", fmt.Sprint(p.Start+pageRows))
	}
	if p.Start > 0 {
		p.Previous = c.withQuery("start", fmt.Sprint(max(0, p.Start-pageRows)))
	}
	p.Topics = p.Topics[p.Start:min(p.Start+pageRows, p.Shown)]
	c.addAhead(p.Topics, p.Now)
	if c.console.observed.Load() {
		p.Traffic = &traffic{Since: c.console.meter.Since()}
		for i := range p.Topics {
			p.Topics[i].Spark = c.spark(p.Topics[i].Topic)
		}
	}
	return c.show("topics", p)
}

// isInternal reports whether a topic is a companion in which Punctual keeps something for itself,
// such as schedules and events, which have pages of their own. A companion with dead messages does
// not count as internal, because somebody has to see to those.
func isInternal(s punctual.TopicStats) bool {
	_, companion := storekit.Companion(s.Topic)
	return companion != "" && !storekit.IsGroup(companion) && s.Dead == 0
}

// renew makes the reader count again if the last count is old and somebody opens the page. The
// renewal of a part of an open page does not make the reader count again, because otherwise pages
// that stay open would make the store count all day.
func (c *call) renew() {
	if !c.fragment {
		c.console.reader.Renew()
	}
}

// visibleTopics returns the counts of the topics that the reader may inspect, and notes in the
// frame how old they are. It leaves out the topic of the audit log, which has a page of its own.
func (c *call) visibleTopics(f *frame) ([]punctual.TopicStats, error) {
	c.renew()
	all, err := c.console.reader.Topics(c.r.Context())
	if err != nil {
		return nil, fmt.Errorf("count the topics: %w", err)
	}
	f.noteCounts(all.AsOf, all.Counted, all.Partial)
	return slices.DeleteFunc(all.Topics, func(s punctual.TopicStats) bool {
		return s.Topic == access.AuditTopic || c.may(access.Inspect, s.Topic) != nil
	}), nil
}

func rowOf(s punctual.TopicStats, now time.Time) topicRow {
	row := topicRow{TopicStats: s}
	if late := now.Sub(s.NextDue); s.Ready > 0 && !s.NextDue.IsZero() && late >= tooLate {
		row.Late = late
	}
	return row
}

// topicOrder returns the comparison for a column: numbers are ordered with the largest first, times
// with the earliest first and topics without a time last. An unknown column stands for the name.
func topicOrder(sort string) func(a, b topicRow) int {
	state, err := punctual.ParseState(sort)
	switch {
	case err == nil:
		return func(a, b topicRow) int {
			return cmp.Compare(countOf(b.TopicStats, state), countOf(a.TopicStats, state))
		}
	case sort == "due":
		return func(a, b topicRow) int {
			if a.NextDue.IsZero() || b.NextDue.IsZero() {
				return b.NextDue.Compare(a.NextDue)
			}
			return a.NextDue.Compare(b.NextDue)
		}
	}
	return func(a, b topicRow) int { return cmp.Compare(a.Topic, b.Topic) }
}
