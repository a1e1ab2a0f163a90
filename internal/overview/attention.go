package overview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/punctualmq/punctual"
)

// Kind is what a finding is about.
type Kind string

// The kinds of findings, in the order in which they are shown.
const (
	// KindUnreachable: the store does not answer.
	KindUnreachable Kind = "unreachable"
	// KindStore: what the store's Examiner reports about its disk or servers.
	KindStore Kind = "store"
	// KindLacking: the store is no punctual.Inspector.
	KindLacking Kind = "lacking"
	// KindLate: the first message of a topic has been ready for long.
	KindLate Kind = "late"
	// KindDeliveryPaused: claims find nothing in a topic.
	KindDeliveryPaused Kind = "delivery paused"
	// KindPushPaused: a topic refuses pushes.
	KindPushPaused Kind = "push paused"
	// KindBurst: very many messages are due within one minute or day.
	KindBurst Kind = "burst"
	// KindFar: a message is due in more than a year.
	KindFar Kind = "far"
	// KindDead: a topic holds dead messages.
	KindDead Kind = "dead"
)

// Kinds are all kinds, in the order in which they are shown.
func Kinds() []Kind {
	return []Kind{
		KindUnreachable, KindStore, KindLacking, KindLate, KindDeliveryPaused, KindPushPaused, KindBurst, KindFar, KindDead,
	}
}

// Finding is something that somebody should see to. The fields besides Kind, Severity and Text hold what the
// sentence is made of, for another language, and say where to look.
type Finding struct {
	Kind     Kind
	Severity punctual.Severity
	// Text says it in English, in one sentence.
	Text string
	// Topic is empty when it is about the store, or about several topics.
	Topic string
	// State, From and To say which list of the topic shows it; see punctual.ListQuery.
	State    punctual.State
	From, To time.Time
	// Count is how many messages it is about: ready ones of a late or paused topic, those of a burst, dead ones, far ones.
	Count int64
	// At is when a burst, or the first far message, is due.
	At time.Time
	// Step is how exact At is for a burst.
	Step Step
	// Late is for how long the first message has been ready.
	Late time.Duration
	// Others, if not 0, is how many more topics have what the findings of this kind before it say.
	Others int
	// Name, Value and Remedy are those of a punctual.Finding. A Remedy also says what to do about an unreachable store.
	Name, Value, Remedy string
}

const (
	// worthSaying is how long a message has to be ready before there is a finding about it. P11 and P14 allow a second each, and
	// busy handlers add to that.
	worthSaying = 10 * time.Second
	// veryLate is from when on lateness is bad and not only a warning.
	veryLate = 10 * time.Minute
	// mostOfKind bounds the findings of a kind; one more finding sums up the others.
	mostOfKind = 5
	// burstRatio is how many times as many messages as on average have to be due in a step for a burst.
	burstRatio = 10
	// mostLooked bounds the topics in which messages due in more than a year are searched.
	mostLooked = 20
	year       = 365 * 24 * time.Hour
)

// attention returns what somebody should see to, the worst first.
func attention(o *Overview, examined []Finding) []Finding {
	var all []Finding
	if o.Err != nil {
		all = append(all, Finding{
			Kind: KindUnreachable, Severity: punctual.SeverityBad, At: o.AsOf, Value: o.Err.Error(),
			Text: "the store does not answer; what is shown is as of " + o.AsOf.UTC().Format(time.DateTime) + " UTC", Remedy: "look at its server or disk",
		})
	}
	if !o.Inspected {
		all = append(all, Finding{Kind: KindLacking, Severity: punctual.SeverityWarning, Text: "this store cannot be inspected: there are no counts and lists"})
	}
	all = append(all, examined...)
	for _, kind := range []func(punctual.TopicStats, time.Time) (Finding, bool){ofLate, ofDeliveryPaused, ofPushPaused, ofDead} {
		all = append(all, fewest(o, kind)...)
	}
	for _, p := range []*Picture{&o.Minutes, &o.Hours, &o.Days} {
		for _, f := range p.found {
			same := func(other Finding) bool { return other.Kind == f.Kind && other.At.Equal(f.At) }
			if (f.To.IsZero() || f.To.After(o.AsOf)) && !slices.ContainsFunc(all, same) {
				all = append(all, f)
			}
		}
	}
	order := Kinds()
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(-cmp.Compare(a.Severity, b.Severity), cmp.Compare(slices.Index(order, a.Kind), slices.Index(order, b.Kind)))
	})
	return all
}

// examine begins to ask the store's Examiner, unless the last answer is still fresh.
func (r *Reader) examine() (running <-chan struct{}) {
	e, err := punctual.As[punctual.Examiner](r.store)
	if err != nil {
		return nil
	}
	p := policy{timeout: 10 * time.Second, fresh: func(took time.Duration) time.Duration { return max(examineEach, share*took) }}
	return r.doctor.begin(r, p, func(ctx context.Context) ([]punctual.Finding, error) {
		found, err := e.Examine(ctx)
		if errors.Is(err, punctual.ErrUnsupported) {
			return nil, nil
		}
		return found, err
	})
}

// examined returns what the Examiner found that is not good.
func (r *Reader) examined(ctx context.Context, running <-chan struct{}) []Finding {
	var out []Finding
	for _, f := range r.doctor.await(ctx, running).value {
		if f.Severity > punctual.SeverityGood {
			out = append(out, Finding{
				Kind: KindStore, Severity: f.Severity, Name: f.Name, Value: f.Value, Remedy: f.Remedy, Text: f.Name + ": " + f.Value,
			})
		}
	}
	return out
}

// fewest returns the findings of one kind: one for each of the topics with most messages, and one that sums up the others.
func fewest(o *Overview, of func(punctual.TopicStats, time.Time) (Finding, bool)) []Finding {
	var out []Finding
	for _, t := range o.Topics {
		if f, ok := of(t, o.AsOf); ok {
			out = append(out, f)
		}
	}
	slices.SortStableFunc(out, func(a, b Finding) int {
		return cmp.Or(-cmp.Compare(a.Severity, b.Severity), -cmp.Compare(a.Count, b.Count))
	})
	if len(out) <= mostOfKind+1 {
		return out
	}
	others := Finding{Kind: out[0].Kind, Severity: out[mostOfKind].Severity, Others: len(out) - mostOfKind}
	for _, f := range out[mostOfKind:] {
		others.Count += f.Count
	}
	others.Text = fmt.Sprintf("%s more topics: %s", Grouped(int64(others.Others)), others.Kind)
	return append(out[:mostOfKind], others)
}

func ofLate(t punctual.TopicStats, now time.Time) (Finding, bool) {
	late, ok := lateness(t, now)
	if !ok || late < worthSaying || t.Settings.DeliveryPaused {
		return Finding{}, false
	}
	f := Finding{Kind: KindLate, Severity: punctual.SeverityWarning, Topic: t.Topic, State: punctual.StateReady, Count: t.Ready, Late: late}
	if late >= veryLate {
		f.Severity = punctual.SeverityBad
	}
	f.Text = fmt.Sprintf("%s: the first of %s ready messages waits for %s", t.Topic, Grouped(t.Ready), Short(late))
	return f, true
}

func ofDeliveryPaused(t punctual.TopicStats, now time.Time) (Finding, bool) {
	late, _ := lateness(t, now)
	return Finding{
		Kind: KindDeliveryPaused, Severity: punctual.SeverityWarning, Topic: t.Topic, State: punctual.StateReady, Count: t.Ready, Late: late,
		Text: fmt.Sprintf("%s: delivery is paused; %s ready messages wait", t.Topic, Grouped(t.Ready)),
	}, t.Settings.DeliveryPaused
}

func ofPushPaused(t punctual.TopicStats, _ time.Time) (Finding, bool) {
	return Finding{
		Kind: KindPushPaused, Severity: punctual.SeverityWarning, Topic: t.Topic, Text: t.Topic + ": pushes are refused, because they are paused",
	}, t.Settings.PushPaused
}

func ofDead(t punctual.TopicStats, _ time.Time) (Finding, bool) {
	return Finding{
		Kind: KindDead, Severity: punctual.SeverityWarning, Topic: t.Topic, State: punctual.StateDead, Count: t.Dead,
		Text: fmt.Sprintf("%s: %s dead messages", t.Topic, Grouped(t.Dead)),
	}, t.Dead > 0
}

// looker counts ahead.
type looker func(ctx context.Context, q AheadQuery, now time.Time) (*Ahead, error)

// examinePicture finds what is unusual in a picture: a burst, and in the picture of the days what is due in more than a year.
func (r *Reader) examinePicture(ctx context.Context, p *Picture, topics []punctual.TopicStats, look looker) error {
	counts, step := p.All.Counts, p.All.Step
	if step == Day { // the picture of the hours finds bursts in the first days
		counts = slices.Clone(counts)
		clear(counts[:3])
	}
	n := fullest(counts)
	if count := counts[n]; count >= r.o.Burst && (step == Hour || standsOut(p.All, n)) {
		f, ok, err := r.burst(ctx, p, n, look)
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

// burst describes the burst in step n. An hour is counted by the minute first, because many messages that are spread over an
// hour are no burst; ok is false then.
func (r *Reader) burst(ctx context.Context, p *Picture, n int, look looker) (f Finding, ok bool, err error) {
	at, count, step := p.All.Edges[n], p.All.Counts[n], p.All.Step
	f = Finding{Kind: KindBurst, Severity: punctual.SeverityWarning, State: punctual.StateScheduled}
	for _, t := range p.Topics {
		if t.Counts[n] > count/2 {
			f.Topic = t.Topic
		}
	}
	if step == Hour {
		step = Minute
		end := p.All.Edges[n+1]
		q := AheadQuery{Topic: f.Topic, Step: Minute, Zone: r.o.Zone, Steps: int(end.Sub(Minute.begin(p.All.AsOf)) / time.Minute)}
		a, err := look(ctx, q, p.All.AsOf)
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

// findFar counts what is due in more than a year, and finds one topic that has such.
func (r *Reader) findFar(ctx context.Context, p *Picture, topics []punctual.TopicStats) error {
	from := p.All.AsOf.Add(year)
	for _, t := range largest(topics, mostLooked) {
		if t.Scheduled == 0 {
			continue
		}
		page, err := r.inspector.List(ctx, punctual.ListQuery{Topic: t.Topic, State: punctual.StateScheduled, From: from, Limit: mostFar})
		if err != nil {
			return fmt.Errorf("look for messages due in more than a year: %w", err)
		}
		if len(page.Messages) == 0 {
			continue
		}
		f := Finding{
			Kind: KindFar, Severity: punctual.SeverityWarning, Topic: t.Topic, State: punctual.StateScheduled, From: from,
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

// Grouped writes a number with commas: 312,000.
func Grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	start := len(text) - 3
	for ; start > 0 && text[start-1] != '-'; start -= 3 {
		text = text[:start] + "," + text[start:]
	}
	return text
}

// Short writes a length of time for people, in its two largest units: 3d4h, 2h5m, 1m30s, 850ms.
func Short(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	case d < time.Minute:
		return strconv.FormatFloat(d.Truncate(100*time.Millisecond).Seconds(), 'f', -1, 64) + "s"
	case d < time.Hour:
		return two(d, time.Minute, "m", time.Second, "s")
	case d < 24*time.Hour:
		return two(d, time.Hour, "h", time.Minute, "m")
	}
	return two(d, 24*time.Hour, "d", time.Hour, "h")
}

func two(d, large time.Duration, l string, small time.Duration, s string) string {
	text := strconv.FormatInt(int64(d/large), 10) + l
	if rest := d % large / small; rest > 0 {
		text += strconv.FormatInt(int64(rest), 10) + s
	}
	return text
}
