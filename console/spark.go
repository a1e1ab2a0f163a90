package console

import (
	"strings"
	"time"

	"github.com/punctualmq/punctual/internal/overview"
)

// spark shows how many messages went into a topic and out of it in the last hour: a picture small
// enough for a row of a table, and the same in numbers.
type spark struct {
	// In and Out are the SVG paths of two lines in a field of 60 by sparkHeight.
	In, Out string
	// Pushes and Deliveries are sums over the hour. Most is the highest count of either in one
	// minute.
	Pushes, Deliveries, Most int64
}

// sparkHeight is the height of the field of a spark. A minute, or an hour of a sparkAhead, is 1
// wide.
const sparkHeight = 20

// spark returns the spark of a topic. It is nil if the meter does not count, or has no numbers of
// this topic alone.
func (c *call) spark(topic string) *spark {
	if !c.console.observed.Load() {
		return nil
	}
	minutes, _ := c.console.meter.Steps(topic, trafficMinutes, 1)
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

// sparkPath returns the SVG path of a line through the counts that the function of returns. A count
// of 0 is at the bottom.
func sparkPath(minutes []overview.Traffic, most int64, of func(overview.Traffic) int64) string {
	const room = sparkHeight - 2 // so that the stroke is not cut off above and below
	var b strings.Builder
	for i, m := range minutes {
		b.WriteByte("ML"[min(i, 1)])
		b.WriteString(number(float64(i)+0.5) + " " + number(1+room-room*float64(of(m))/float64(most)))
	}
	return b.String()
}

// sparkAhead shows how many messages fall due in a topic in the next sparkHours hours: bars in a
// field of sparkHours by sparkHeight, and the same in numbers.
type sparkAhead struct {
	Bars string
	// Sum is the count of all hours together, Most the highest count of one hour.
	Sum, Most int64
	// Later is true if messages are due after those hours.
	Later bool
}

// sparkHours is how many hours a sparkAhead covers.
const sparkHours = 48

// addAhead sets Ahead of each row with scheduled messages. A row whose topic is not counted yet
// gets its Ahead when the table is renewed.
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

// sparkAheadOf returns the picture of a count ahead, without the hours that have ended since the
// count.
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
