package overview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/stalled"
	"github.com/punctualmq/punctual/storekit"
)

// Kind is what a finding is about.
type Kind string

// The kinds of findings, in the order in which those of the same severity are shown.
const (
	// KindUnreachable: the store does not answer.
	KindUnreachable Kind = "unreachable"
	// KindStore: what the store's storekit.Examiner reports about its disk or servers.
	KindStore Kind = "store"
	// KindLacking: the store is no punctual.Inspector.
	KindLacking Kind = "lacking"
	// KindSchedule: a schedule does not come.
	KindSchedule Kind = "schedule"
	// KindLate: the first message of a topic has been ready for long, or nobody reads the events of
	// a topic.
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

// Kinds returns all kinds, in the order in which findings of the same severity are shown.
func Kinds() []Kind {
	return []Kind{
		KindUnreachable, KindStore, KindLacking, KindSchedule, KindLate, KindDeliveryPaused, KindPushPaused, KindBurst, KindFar, KindDead,
	}
}

// Finding is something that somebody should see to. The fields besides Kind, Severity and Text hold
// what the sentence is made of, for another language, and say where to look.
type Finding struct {
	Kind     Kind
	Severity storekit.Severity
	// Text says it in English, in one sentence.
	Text string
	// Topic is empty when it is about the store, or about several topics.
	Topic string
	// State, From and To say which list of the topic shows it; see punctual.ListQuery.
	State    punctual.State
	From, To time.Time
	// Count is how many messages it is about: the ready ones of a topic that is late or whose
	// delivery is paused, those of a burst, the dead ones, or the far ones up to mostFar.
	Count int64
	// At is when a burst, or the first far message, is due, or the last time that a schedule has
	// missed. For an unreachable store it is the AsOf of what is shown.
	At time.Time
	// Step is how exact At is for a burst.
	Step Step
	// Late is for how long the first message has been ready, or a schedule has not come.
	Late time.Duration
	// Others, if not 0, is how many more topics have what the findings of this kind before it say.
	Others int
	// Name, Value and Remedy are those of a storekit.Finding. For a schedule Name is its name and
	// Value its problem, "" if it has only missed times. For an unreachable store Value is the
	// error, and Remedy says what to do.
	Name, Value, Remedy string
}

const (
	// unread is how long an event waits at least before there is a finding that nobody reads the
	// events of its topic.
	unread = time.Minute
	// veryLate, times a topic's LateAfter, is the lateness from which on a topic is bad and not
	// only a warning.
	veryLate = 60
	// mostOfKind is how many findings of a kind that each topic may have are shown beside one that
	// sums up the others (see fewest).
	mostOfKind = 5
	// burstRatio is how many times as many messages as on average have to be due in a step for a
	// burst.
	burstRatio = 10
	// mostLooked bounds the topics in which messages due in more than a year are searched.
	mostLooked = 20
	year       = 365 * 24 * time.Hour
)

// attention returns what somebody should see to: first that the topic of o.Oldest is late, then the
// worst and of these the oldest.
func attention(o *Overview, examined []Finding) []Finding {
	var all []Finding
	if o.Err != nil {
		all = append(all, Finding{
			Kind: KindUnreachable, Severity: storekit.SeverityBad, At: o.AsOf, Value: o.Err.Error(),
			Text: "the store does not answer; what is shown is as of " + o.AsOf.UTC().Format(time.DateTime) + " UTC", Remedy: "look at its server or disk",
		})
	}
	if !o.Inspected {
		all = append(all, Finding{Kind: KindLacking, Severity: storekit.SeverityWarning, Text: "this store cannot be inspected: there are no counts and lists"})
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
	rank := func(f *Finding) int { return slices.Index(order, f.Kind) }
	lacking := slices.Index(order, KindLacking) // up to this kind, findings are about the whole store, and have no age
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(
			o.compareFirst(&a, &b), -cmp.Compare(a.Severity, b.Severity), cmp.Compare(min(rank(&a), lacking+1), min(rank(&b), lacking+1)),
			-cmp.Compare(a.Late, b.Late), cmp.Compare(rank(&a), rank(&b)))
	})
	return all
}

// compareFirst puts that the topic of o.Oldest is late before any other finding, because a page
// says first for how long that message waits.
func (o *Overview) compareFirst(a, b *Finding) int {
	first := func(f *Finding) int {
		if f.Kind == KindLate && f.Others == 0 && o.Err == nil && o.Oldest != nil && f.Topic == o.Oldest.Topic {
			return 0
		}
		return 1
	}
	return cmp.Compare(first(a), first(b))
}

// examine begins to ask the store's storekit.Examiner, unless the last answer is still fresh.
func (r *Reader) examine() (running <-chan struct{}) {
	e, err := punctual.As[storekit.Examiner](r.store)
	if err != nil {
		return nil
	}
	p := policy{timeout: 10 * time.Second, fresh: func(took time.Duration) time.Duration { return max(examineEach, share*took) }}
	return r.doctor.begin(r, p, func(ctx context.Context) ([]storekit.Finding, error) {
		found, err := e.Examine(ctx)
		if errors.Is(err, punctual.ErrUnsupported) {
			return nil, nil
		}
		return found, err
	})
}

// examined returns what the storekit.Examiner found that is not good.
func (r *Reader) examined(ctx context.Context, running <-chan struct{}) []Finding {
	var out []Finding
	for _, f := range r.doctor.await(ctx, running).value {
		if f.Severity > storekit.SeverityGood {
			out = append(out, Finding{
				Kind: KindStore, Severity: f.Severity, Name: f.Name, Value: f.Value, Remedy: f.Remedy, Text: f.Name + ": " + f.Value,
			})
		}
	}
	return out
}

// lookAtSchedules begins to look for schedules that do not come, unless that was done a short time
// ago.
func (r *Reader) lookAtSchedules(topics []punctual.TopicStats) (running <-chan struct{}) {
	var names []string
	for _, t := range topics {
		names = append(names, t.Topic)
	}
	with := stalled.Topics(names)
	p := policy{timeout: r.o.Timeout, fresh: func(time.Duration) time.Duration { return stalledEach }}
	return r.stalled.begin(r, p, func(ctx context.Context) ([]stalled.Schedule, error) {
		found, err := r.watch.Look(ctx, with)
		return append(found, r.watch.Missed()...), err
	})
}

// schedulesOf returns the findings about schedules that do not come, and about those that have
// missed times within the last day: of the first ones one each, and one that sums up the others.
func schedulesOf(found []stalled.Schedule, now time.Time) []Finding {
	var bad, missed []Finding
	for _, s := range found {
		f := Finding{Kind: KindSchedule, Severity: storekit.SeverityBad, Topic: s.Topic, Name: s.Name, Value: s.Problem}
		switch {
		case s.Problem != "":
			f.Text = fmt.Sprintf("%s: schedule %s: %s", s.Topic, s.Name, s.Problem)
			if !s.Since.IsZero() {
				f.Late = max(0, now.Sub(s.Since))
			}
			bad = append(bad, f)
		case now.Sub(s.Since) < 24*time.Hour:
			f.Severity, f.At, f.Late = storekit.SeverityWarning, s.Since, now.Sub(s.Since)
			f.Text = fmt.Sprintf("%s: schedule %s has missed times, the last at %s UTC: nobody did the duties then", s.Topic, s.Name, s.Since.UTC().Format(time.DateTime))
			missed = append(missed, f)
		}
	}
	return append(first(bad, "%s more schedules do not come"), first(missed, "%s more schedules have missed times")...)
}

// first returns the oldest findings, and one that sums up the others with a text that has their
// number.
func first(all []Finding, text string) []Finding {
	slices.SortStableFunc(all, func(a, b Finding) int { return -cmp.Compare(a.Late, b.Late) })
	if len(all) <= mostOfKind+1 {
		return all
	}
	others := Finding{Kind: all[0].Kind, Severity: all[0].Severity, At: all[mostOfKind].At, Late: all[mostOfKind].Late, Others: len(all) - mostOfKind}
	others.Text = fmt.Sprintf(text, Grouped(int64(others.Others)))
	return append(all[:mostOfKind], others)
}

// fewest returns the findings of one kind: one for each of the topics whose findings are the most
// severe, the oldest, or about most messages, in this order, after that of o.Oldest, and one that
// sums up the others.
func fewest(o *Overview, of func(punctual.TopicStats, time.Time) (Finding, bool)) []Finding {
	var out []Finding
	for _, t := range o.Topics {
		if f, ok := of(t, o.AsOf); ok {
			out = append(out, f)
		}
	}
	slices.SortStableFunc(out, func(a, b Finding) int {
		return cmp.Or(o.compareFirst(&a, &b), -cmp.Compare(a.Severity, b.Severity), -cmp.Compare(a.Late, b.Late), -cmp.Compare(a.Count, b.Count))
	})
	if len(out) <= mostOfKind+1 {
		return out
	}
	others := Finding{Kind: out[0].Kind, Severity: out[mostOfKind].Severity, Late: out[mostOfKind].Late, Others: len(out) - mostOfKind}
	for _, f := range out[mostOfKind:] {
		others.Count += f.Count
	}
	others.Text = fmt.Sprintf("%s more topics: %s", Grouped(int64(others.Others)), others.Kind)
	return append(out[:mostOfKind], others)
}

func ofLate(t punctual.TopicStats, now time.Time) (Finding, bool) {
	late, ok := lateness(t, now)
	if !ok || late < t.Settings.LateAfter || t.Settings.DeliveryPaused {
		return Finding{}, false
	}
	f := Finding{Kind: KindLate, Severity: storekit.SeverityWarning, Topic: t.Topic, State: punctual.StateReady, Count: t.Ready, Late: late}
	if strings.HasSuffix(t.Topic, storekit.EventSuffix) { // no message is late because of them
		f.Text = fmt.Sprintf("%s: %s events wait, the first for %s: nobody reads them", t.Topic, Grouped(t.Ready), Short(late))
		return f, late >= unread
	}
	if late/veryLate >= t.Settings.LateAfter {
		f.Severity = storekit.SeverityBad
	}
	f.Text = fmt.Sprintf("%s: the first of %s ready messages waits for %s", t.Topic, Grouped(t.Ready), Short(late))
	return f, true
}

func ofDeliveryPaused(t punctual.TopicStats, now time.Time) (Finding, bool) {
	late, _ := lateness(t, now)
	return Finding{
		Kind: KindDeliveryPaused, Severity: storekit.SeverityWarning, Topic: t.Topic, State: punctual.StateReady, Count: t.Ready, Late: late,
		Text: fmt.Sprintf("%s: delivery is paused; %s ready messages wait", t.Topic, Grouped(t.Ready)),
	}, t.Settings.DeliveryPaused
}

func ofPushPaused(t punctual.TopicStats, _ time.Time) (Finding, bool) {
	return Finding{
		Kind: KindPushPaused, Severity: storekit.SeverityWarning, Topic: t.Topic, Text: t.Topic + ": pushes are refused, because they are paused",
	}, t.Settings.PushPaused
}

func ofDead(t punctual.TopicStats, _ time.Time) (Finding, bool) {
	return Finding{
		Kind: KindDead, Severity: storekit.SeverityWarning, Topic: t.Topic, State: punctual.StateDead, Count: t.Dead,
		Text: fmt.Sprintf("%s: %s dead messages", t.Topic, Grouped(t.Dead)),
	}, t.Dead > 0
}
