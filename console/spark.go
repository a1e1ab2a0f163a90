package console

import (
	"strings"
	"time"

	"github.com/punctualmq/punctual/internal/overview"
)

// spark is what went into a topic and out of it in the last hour. It is a picture small enough for a row of a table,
// and the same in numbers.
type spark struct {
	// In and Out are the ways of two lines in a field of 60 by 20.
	In, Out string
	// Pushes and Deliveries are the sums, Most is the most of either in one minute.
	Pushes, Deliveries, Most int64
}

// sparkHeight is the height of the field, in which a minute is 1 wide.
const sparkHeight = 20

// spark is nil for a topic that the meter does not count by itself, or when nobody feeds the meter.
func (c *call) spark(topic string) *spark {
	if !c.console.observed.Load() {
		return nil
	}
	minutes := c.console.meter.Series(topic, trafficMinutes)
	if minutes == nil {
		return nil
	}
	return sparkOf(minutes)
}

func sparkOf(minutes []overview.Traffic) *spark {
	s := &spark{}
	for _, m := range minutes {
		s.Pushes, s.Deliveries = s.Pushes+m.Pushes, s.Deliveries+m.Deliveries
		s.Most = max(s.Most, m.Pushes, m.Deliveries)
	}
	if s.Most > 0 {
		s.In = sparkPath(minutes, s.Most, func(m overview.Traffic) int64 { return m.Pushes })
		s.Out = sparkPath(minutes, s.Most, func(m overview.Traffic) int64 { return m.Deliveries })
	}
	return s
}

// sparkPath is a line through the counts. A minute without any lies on the ground.
func sparkPath(minutes []overview.Traffic, most int64, of func(overview.Traffic) int64) string {
	const room = sparkHeight - 2 // the stroke is not cut off
	var b strings.Builder
	for i, m := range minutes {
		b.WriteByte("ML"[min(i, 1)])
		b.WriteString(number(float64(i)+0.5) + " " + number(1+room-room*float64(of(m))/float64(most)))
	}
	return b.String()
}

// sparkAhead is what falls due in a topic in the next sparkHours hours. It is bars in a field of as many by 20, and
// the same in numbers.
type sparkAhead struct {
	Bars string
	// Sum is of all hours, Most of the one with most.
	Sum, Most int64
	// Later tells that more is due after that.
	Later bool
}

// sparkHours is how far ahead a row of a table looks.
const sparkHours = 48

// addAhead adds to each row what falls due. What the store has not counted yet comes when the table is renewed.
func (c *call) addAhead(rows []topicRow, now time.Time) {
	var topics []string
	for _, t := range rows {
		if t.Scheduled > 0 {
			topics = append(topics, t.Topic)
		}
	}
	ahead := c.console.reader.AheadOf(c.r.Context(), overview.AheadQuery{Step: overview.Hour, Steps: sparkHours, Zone: time.UTC}, topics)
	for i := range rows {
		if a := ahead[rows[i].Topic]; a != nil {
			rows[i].Ahead = sparkAheadOf(a, now)
		}
	}
}

// sparkAheadOf leaves out hours that are over since they were counted.
func sparkAheadOf(a *overview.Ahead, now time.Time) *sparkAhead {
	s := &sparkAhead{Later: a.Beyond > 0}
	first := 0
	for first < len(a.Counts) && !a.Edges[first+1].After(now) {
		first++
	}
	for _, n := range a.Counts[first:] {
		s.Sum, s.Most = s.Sum+n, max(s.Most, n)
	}
	var b strings.Builder
	for i, n := range a.Counts[first:] {
		if n > 0 {
			const room = sparkHeight - 2
			b.WriteString("M" + number(float64(i)+0.5) + " " + number(sparkHeight) + "V" + number(sparkHeight-max(1.5, room*float64(n)/float64(s.Most))))
		}
	}
	s.Bars = b.String()
	return s
}
