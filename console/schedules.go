package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/access"
	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/storekit"
)

// scheduleList is one page of a list of schedules, of one topic or of several.
type scheduleList struct {
	// Able is false if there can be no schedules: the store has no follow-ups or cannot be
	// inspected, or the topic is a companion.
	Able bool
	Rows []scheduleRow
	// Filter is a text that the names of the schedules in the list contain.
	Filter string
	// Next and Previous are the paths of the pages after and before this one, or "".
	Next, Previous string
	// Sorted is true if the rows are in order of their next times. A list of several topics that
	// has more than one page is in that order within each topic only.
	Sorted bool
	// Cut is true if the reading of schedules was ended after schedulesTime, so that some may be
	// missing.
	Cut bool
}

// scheduleRow is one schedule in a list.
type scheduleRow struct {
	schedule.Info
	Path string
	// State is "active", "paused", "ended", "overdue" or "broken".
	State string
	// Coming is when an active schedule comes next, otherwise zero.
	Coming time.Time
	// Recent is the last time of the schedule, nil if none has come. Message is the path of its
	// message, "" if there was no message.
	Recent  *schedule.Occurrence
	Message string
	// Day are the times within the next 24 hours, none for a schedule that is paused or has ended.
	Day marks
}

// marks are instants as marks on a line, in a field of marksWidth by sparkHeight, and their number.
type marks struct {
	// Path is the SVG path of the marks, Count how many marks there are. More is true if the day
	// has further times after the last mark.
	Path  string
	Count int
	More  bool
}

const (
	marksWidth = 96
	// mostMarks is how many marks a line has at most: as many as a day has quarters of an hour.
	mostMarks = 96
	// schedulesTime is after how long the reading of schedules for a list stops.
	schedulesTime = 3 * time.Second
)

// schedulesPage lists the schedules of all topics, or of the one that was chosen.
type schedulesPage struct {
	*frame
	List *scheduleList
	// Topics are the topics that have schedules and that the reader may inspect. Chosen is the
	// topic whose schedules are listed; "" stands for all of Topics.
	Topics []string
	Chosen string
}

// topicSchedulesPage lists the schedules of one topic.
type topicSchedulesPage struct {
	*topicView
	List *scheduleList
}

func (c *call) showSchedules() error {
	p := &schedulesPage{frame: c.frame("schedules"), Chosen: c.get("topic")}
	able, err := c.canSchedule()
	if err != nil {
		return err
	}
	if !able {
		p.List = &scheduleList{}
		return c.show("schedules", p)
	}
	if p.Now, err = c.now(); err != nil {
		return err
	}
	if p.Topics, err = c.topicsWithSchedules(); err != nil {
		return err
	}
	topics := p.Topics
	if p.Chosen != "" {
		if err := c.may(access.Inspect, p.Chosen); err != nil {
			return err
		}
		topics = []string{p.Chosen}
	}
	if p.List, err = c.scheduleList(p.frame, topics); err != nil {
		return err
	}
	p.List.sort()
	return c.show("schedules", p)
}

func (c *call) showTopicSchedules() error {
	v, err := c.topicView("topic-schedules", "schedules")
	if err != nil {
		return err
	}
	p := &topicSchedulesPage{topicView: v, List: &scheduleList{}}
	able, err := c.canSchedule()
	if err != nil {
		return err
	}
	if able && v.Parent == "" {
		if p.List, err = c.scheduleList(v.frame, []string{v.Stats.Topic}); err != nil {
			return err
		}
	}
	return c.show("topic-schedules", p)
}

// canSchedule reports whether the store can have schedules.
func (c *call) canSchedule() (bool, error) {
	if c.console.inspector == nil {
		return false, nil
	}
	can, err := c.abilities()
	return can.Follow != storekit.ReachNone, err
}

// topicsWithSchedules returns the topics that have schedules and that the reader may inspect,
// sorted by name.
func (c *call) topicsWithSchedules() ([]string, error) {
	var names []string
	err := error(punctual.ErrUnsupported)
	if c.console.namer != nil {
		names, err = c.console.namer.TopicNames(c.r.Context(), storekit.NameQuery{Suffix: schedule.Suffix})
	}
	if errors.Is(err, punctual.ErrUnsupported) {
		all, countErr := c.counted()
		names, err = nil, countErr
		for _, t := range all.Topics {
			names = append(names, t.Topic)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("look which topics have schedules: %w", err)
	}
	var topics []string
	for _, name := range names {
		if topic, ok := strings.CutSuffix(name, schedule.Suffix); ok && c.may(access.Inspect, topic) == nil {
			topics = append(topics, topic)
		}
	}
	slices.Sort(topics)
	return topics, nil
}

// scheduleList reads one page of the schedules of the topics: of those whose names contain the
// field "q" of the query, it leaves out as many as the field "start" says.
func (c *call) scheduleList(f *frame, topics []string) (*scheduleList, error) {
	l := &scheduleList{Able: true, Filter: c.get("q")}
	start := max(0, c.number("start"))
	ctx, cancel := context.WithTimeout(c.r.Context(), schedulesTime)
	defer cancel()
	seen := 0
	q := schedule.Query{Next: mostMarks + 1, Last: 1, Select: func(_, name string) bool {
		if !strings.Contains(name, l.Filter) {
			return false
		}
		seen++
		return seen > start
	}}
	if start > 0 {
		l.Previous = c.withQuery("start", numberOf(start-pageRows))
	}
	for _, q.Topic = range topics {
		for s, err := range schedule.List(ctx, c.console.queue, q) {
			switch {
			case err != nil && ctx.Err() != nil && c.r.Context().Err() == nil:
				l.Cut = true
				return l, nil
			case err != nil:
				return nil, fmt.Errorf("list the schedules of %s: %w", q.Topic, err)
			case len(l.Rows) == pageRows:
				l.Next = c.withQuery("start", numberOf(start+pageRows))
				return l, nil
			}
			l.Rows = append(l.Rows, c.scheduleRow(f, &s))
		}
	}
	return l, nil
}

// sort puts the rows of a list that has one page in order of their next times: what is overdue or
// broken comes first, and what is paused or has ended comes last. The rows of each topic are in
// that order already.
func (l *scheduleList) sort() {
	if l.Sorted = l.Next == "" && l.Previous == "" && !l.Cut; !l.Sorted {
		return
	}
	slices.SortStableFunc(l.Rows, func(a, b scheduleRow) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), a.Coming.Compare(b.Coming))
	})
}

// rank is 0 for a schedule that is overdue or broken, 1 for an active one, otherwise 2.
func (r *scheduleRow) rank() int {
	switch r.State {
	case "overdue", "broken":
		return 0
	case "active":
		return 1
	}
	return 2
}

// numberOf writes a number for a query, "" for one that is not positive.
func numberOf(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// scheduleRow returns a schedule as a list shows it.
func (c *call) scheduleRow(f *frame, s *schedule.Info) scheduleRow {
	row := scheduleRow{Info: *s, Path: f.SchedulePath(s.Topic, s.Name), State: stateOfSchedule(s), Day: marksOf(s.Next, f.Now)}
	if row.State == "active" && len(s.Next) > 0 {
		row.Coming = s.Next[0].Due
	}
	if row.State == "paused" || row.State == "ended" {
		row.Day = marks{}
	}
	if len(s.Last) > 0 {
		row.Recent = &s.Last[0]
		if wasStored(row.Recent.Status) {
			row.Message = f.MessagePath(s.Topic, row.Recent.ID)
		}
	}
	return row
}

// stateOfSchedule returns the value of scheduleRow.State for a schedule.
func stateOfSchedule(s *schedule.Info) string {
	switch {
	case !s.Overdue.IsZero() && s.Words != "":
		return "overdue"
	case s.Problem != "":
		return "broken"
	case s.Paused != nil:
		return "paused"
	case s.Ended:
		return "ended"
	}
	return "active"
}

// wasStored reports whether an occurrence with this status was stored as a message.
func wasStored(s schedule.OccurrenceStatus) bool {
	switch s {
	case schedule.OccurrenceMissed, schedule.OccurrenceOverlap, schedule.OccurrenceSkipped, schedule.OccurrencePaused:
		return false
	}
	return true
}

// marksOf returns the marks of the times in next that are less than 24 hours after now. Times
// before now are marked at the beginning.
func marksOf(next []schedule.Occurrence, now time.Time) (m marks) {
	const day = 24 * time.Hour
	var b strings.Builder
	for _, o := range next {
		ahead := o.Due.Sub(now)
		if ahead >= day {
			break
		}
		if m.Count == mostMarks {
			m.More = true
			break
		}
		m.Count++
		x := number(marksWidth * float64(max(0, ahead)) / float64(day))
		b.WriteString("M" + x + " 4V16")
	}
	m.Path = b.String()
	return m
}

// SchedulePath returns the path of a schedule's page, followed by the segments of rest.
func (f *frame) SchedulePath(topic, name string, rest ...string) string {
	return f.TopicPath(topic, append([]string{"schedules", name}, rest...)...)
}
