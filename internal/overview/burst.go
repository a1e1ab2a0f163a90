package overview

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/storekit"
)

// forecaster counts ahead: Reader.forecast, or the answer of a survey that has been made.
type forecaster func(ctx context.Context, q AheadQuery, now time.Time) (*Ahead, error)

// examinePicture finds what is unusual in a picture: a burst, and with the picture of the days what
// is due in more than a year.
func (r *Reader) examinePicture(ctx context.Context, p *Picture, topics []punctual.TopicStats, forecast forecaster) error {
	counts, step := p.All.Counts, p.All.Step
	if step == Day { // the picture of the hours finds the bursts of the next 48 hours
		counts = slices.Clone(counts)
		clear(counts[:3])
	}
	n := fullest(counts)
	if count := counts[n]; count >= r.o.Burst && (step == Hour || standsOut(p.All, n)) {
		f, ok, err := r.burst(ctx, p, n, forecast)
		if err != nil {
			return err
		}
		if ok {
			p.found = append(p.found, f)
		}
	}
	if step != Day || p.All.Beyond == 0 {
		return nil
	}
	return r.findFar(ctx, p, topics)
}

// fullest returns the step in which most messages are due.
func fullest(counts []int64) int {
	most := 0
	for n, c := range counts {
		if c > counts[most] {
			most = n
		}
	}
	return most
}

// standsOut reports whether far more messages are due in step n than on average.
func standsOut(a *Ahead, n int) bool {
	return a.Counts[n] >= burstRatio*max(1, a.Sum()/int64(len(a.Counts)))
}

// burst describes the burst in step n. An hour is counted by the minute first, because many
// messages that are spread over an hour are no burst; ok is false then.
func (r *Reader) burst(ctx context.Context, p *Picture, n int, forecast forecaster) (f Finding, ok bool, err error) {
	at, count, step := p.All.Edges[n], p.All.Counts[n], p.All.Step
	f = Finding{Kind: KindBurst, Severity: storekit.SeverityWarning, State: punctual.StateScheduled}
	for _, t := range p.Topics {
		if t.Counts[n] > count/2 {
			f.Topic = t.Topic
		}
	}
	if step == Hour {
		step = Minute
		end := p.All.Edges[n+1]
		q := AheadQuery{Topic: f.Topic, Step: Minute, Zone: r.o.Zone, Steps: int(end.Sub(Minute.begin(p.All.AsOf)) / time.Minute)}
		a, err := forecast(ctx, q, p.All.AsOf)
		if err != nil {
			return f, false, err
		}
		a.Counts = a.Counts[max(0, len(a.Counts)-60):]
		a.Edges = a.Edges[len(a.Edges)-1-len(a.Counts):]
		n = fullest(a.Counts)
		if a.Counts[n] < r.o.Burst || !standsOut(a, n) {
			return f, false, nil
		}
		at, count = a.Edges[n], a.Counts[n]
	}
	f.Step, f.At, f.Count, f.From, f.To = step, at, count, at, step.next(at)
	in := ""
	if f.Topic != "" {
		in = f.Topic + ": "
	}
	layout := "15:04 on " + time.DateOnly
	if step == Day {
		layout = "on " + time.DateOnly
	}
	f.Text = fmt.Sprintf("%s%s messages are due within the %s %s", in, Grouped(count), step, at.In(r.o.Zone).Format(layout))
	return f, true, nil
}

// findFar adds a finding for each of the mostLooked largest topics that has messages due in more
// than a year. Companions with schedules get none.
func (r *Reader) findFar(ctx context.Context, p *Picture, topics []punctual.TopicStats) error {
	from := p.All.AsOf.Add(year)
	for _, t := range largest(topics, mostLooked) {
		if t.Scheduled == 0 || strings.HasSuffix(t.Topic, schedule.Suffix) { // a paused schedule is due at the end of time
			continue
		}
		page, err := r.inspector.List(ctx, punctual.ListQuery{Topic: t.Topic, State: punctual.StateScheduled, From: from, Limit: mostFar})
		if err != nil {
			return fmt.Errorf("list the messages due in more than a year: %w", err)
		}
		if len(page.Messages) == 0 {
			continue
		}
		f := Finding{
			Kind: KindFar, Severity: storekit.SeverityWarning, Topic: t.Topic, State: punctual.StateScheduled, From: from,
			Count: int64(len(page.Messages)), At: page.Messages[0].Due,
		}
		number := Grouped(f.Count)
		if page.Next != "" {
			number = "at least " + number
		}
		f.Text = fmt.Sprintf("%s: due in more than a year: %s, the first on %s: is this meant?", t.Topic, number, f.At.In(r.o.Zone).Format(time.DateOnly))
		p.found = append(p.found, f)
	}
	return nil
}

// mostFar bounds how many messages due in more than a year are counted in a topic.
const mostFar = 100
