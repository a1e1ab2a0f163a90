package wire

import (
	"time"

	"github.com/punctualmq/punctual/schedule"
)

// ScheduleItem is what a schedule says, as PUT /v1/topics/T/schedules/NAME takes it. Only Spec is
// required. A member that is left out has the default of schedule.Schedule.
type ScheduleItem struct {
	Spec   Given `json:"spec"`
	Zone   Given `json:"zone,omitzero"`
	From   Given `json:"from,omitzero"`
	Until  Given `json:"until,omitzero"`
	Except Days  `json:"except,omitempty"`
	Spread Given `json:"spread,omitzero"`
	// Overlap is "skip", "allow" or "replace", Missed "latest", "all" or "none".
	Overlap Given `json:"overlap,omitzero"`
	Missed  Given `json:"missed,omitzero"`
	Grace   Given `json:"grace,omitzero"`
	Limit   int64 `json:"limit,omitzero"`
	MaxDead int   `json:"max_dead,omitzero"`
	Body
	Headers
	MaxAttempts int   `json:"max_attempts,omitzero"`
	Expire      Given `json:"expire,omitzero"`
	DropExpired bool  `json:"drop_expired,omitzero"`
	Attributes
}

// Size returns about how many bytes of memory the item takes.
func (i *ScheduleItem) Size() int64 {
	return itemBytes + int64(len(i.Spec)+len(i.Body.Text)+len(i.Body.Base64)) + sizeInMemory(i.Headers.Text) + sizeInMemory(i.Headers.Base64)
}

// ScheduleItemOf returns s for a request or an answer. The item may share the body and headers of
// s.
func ScheduleItemOf(s *schedule.Schedule) ScheduleItem {
	return ScheduleItem{
		Spec: Given(s.Spec), Zone: Given(s.Zone), From: Given(TimeText(s.From)), Until: Given(TimeText(s.Until)), Except: s.Except,
		Spread: Given(DurationText(s.Spread)), Overlap: Given(s.Overlap.String()), Missed: Given(s.Missed.String()), Grace: Given(DurationText(s.Grace)),
		Limit: s.Limit, MaxDead: s.MaxDead, Body: BodyOf(s.Body), Headers: HeadersOf(s.Headers),
		MaxAttempts: s.MaxAttempts, Expire: Given(DurationText(s.ExpireAfter)), DropExpired: s.DropExpired,
		Attributes: attributesOf(s.Attributes()),
	}
}

// Schedule returns the item as a schedule.Schedule, which may share the item's body and headers. A
// malformed member is an ErrInvalid that names it.
func (i *ScheduleItem) Schedule(topic, name string) (s schedule.Schedule, err error) {
	s = schedule.Schedule{
		Topic: topic, Name: name, Spec: string(i.Spec), Zone: string(i.Zone), Except: i.Except,
		Limit: i.Limit, MaxDead: i.MaxDead, MaxAttempts: i.MaxAttempts, DropExpired: i.DropExpired,
	}
	if i.Body.Text != nil || i.Body.Base64 != nil {
		if s.Body, err = i.Bytes(); err != nil {
			return s, err
		}
	}
	if s.Headers, err = i.Map(); err != nil {
		return s, err
	}
	for _, t := range []struct {
		name string
		text Given
		into *time.Time
	}{{"from", i.From, &s.From}, {"until", i.Until, &s.Until}} {
		if *t.into, err = ParseTimeText(t.name, string(t.text)); err != nil {
			return s, err
		}
	}
	for _, d := range []struct {
		name string
		text Given
		into *time.Duration
	}{{"spread", i.Spread, &s.Spread}, {"grace", i.Grace, &s.Grace}, {"expire", i.Expire, &s.ExpireAfter}} {
		if *d.into, err = ParseDurationText(d.name, string(d.text)); err != nil {
			return s, err
		}
	}
	if s.Overlap, err = schedule.ParseOverlap(string(i.Overlap)); err != nil {
		return s, inField("overlap", err)
	}
	if s.Missed, err = schedule.ParseMissed(string(i.Missed)); err != nil {
		return s, inField("missed", err)
	}
	a, err := i.Read()
	s.SetAttributes(a)
	return s, err
}

// Schedule is a stored schedule, as GET answers it.
type Schedule struct {
	Topic string `json:"topic"`
	Name  string `json:"name"`
	// Result stands in the answer of PUT alone: "stored" for a new schedule, "replaced" for a
	// changed one, "duplicate" for one that was like this already.
	Result string `json:"result,omitzero"`
	ScheduleItem
	// Words say in English when the schedule comes, Warnings what its author may not expect.
	Words    string   `json:"words,omitzero"`
	Warnings []string `json:"warnings,omitempty"`
	// Next are the next times, Last the last ones, the latest first.
	Next   []Occurrence   `json:"next"`
	Last   []Occurrence   `json:"last"`
	Counts ScheduleCounts `json:"counts"`
	// Created and Changed are when the schedule was stored first and changed last.
	Created Time           `json:"created,omitzero"`
	Changed Time           `json:"changed,omitzero"`
	Paused  *SchedulePause `json:"paused,omitzero"`
	// Ended says that no time comes any more, Overdue which time has come and is not decided yet.
	Ended   bool `json:"ended,omitzero"`
	Overdue Time `json:"overdue,omitzero"`
	// Problem says why the schedule does not come, or why the server cannot say when.
	Problem string `json:"problem,omitzero"`
}

// Occurrence is one time of a schedule.
type Occurrence struct {
	// ID is that of the message, whether one was stored or not.
	ID string `json:"id"`
	// At is the time that the expression names, Due when the message is due: later by a part of the
	// spread.
	At  Time `json:"at"`
	Due Time `json:"due"`
	// Status says what became of it; left out for a time ahead, except in the answer to a skip.
	Status string `json:"status,omitzero"`
}

// ScheduleCounts say how many times were stored, missed and skipped.
type ScheduleCounts struct {
	Stored  int64 `json:"stored"`
	Missed  int64 `json:"missed"`
	Skipped int64 `json:"skipped"`
}

// SchedulePause says since when, by whom and why a schedule is paused.
type SchedulePause struct {
	At   Time   `json:"at"`
	By   string `json:"by,omitzero"`
	Note string `json:"note,omitzero"`
}

// ScheduleOf returns i for an answer.
func ScheduleOf(i *schedule.Info) Schedule {
	out := Schedule{
		Topic: i.Topic, Name: i.Name, ScheduleItem: ScheduleItemOf(&i.Schedule), Words: i.Words, Warnings: i.Warnings,
		Next: OccurrencesOf(i.Next), Last: OccurrencesOf(i.Last), Counts: ScheduleCounts(i.Counts),
		Created: Time(i.Created), Changed: Time(i.Changed), Ended: i.Ended, Overdue: Time(i.Overdue), Problem: i.Problem,
	}
	if p := i.Paused; p != nil {
		out.Paused = &SchedulePause{At: Time(p.At), By: p.By, Note: p.Note}
	}
	return out
}

// OccurrencesOf returns times for an answer.
func OccurrencesOf(times []schedule.Occurrence) []Occurrence {
	out := make([]Occurrence, len(times))
	for i, o := range times {
		out[i] = Occurrence{ID: o.ID, At: Time(o.At), Due: Time(o.Due), Status: string(o.Status)}
	}
	return out
}

// Schedules is the answer of GET /v1/topics/T/schedules.
type Schedules struct {
	Schedules []Schedule `json:"schedules"`
	// Next is the value of the parameter "after" for the next page. It is left out on the last
	// page.
	Next string `json:"next,omitzero"`
}

// Occurrences is the answer to a skip and a backfill: the times that are skipped, or that the
// backfill has found.
type Occurrences struct {
	Occurrences []Occurrence `json:"occurrences"`
	// Stored and Kept are how many a backfill has stored, and how many were there.
	Stored int `json:"stored,omitzero"`
	Kept   int `json:"kept,omitzero"`
}
