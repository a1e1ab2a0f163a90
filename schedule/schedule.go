// Package schedule stores messages again and again, at the times of a cron expression in a zone:
// each time exactly once, whatever crashes. For example, Put says that reports gets a message on
// working days at nine in Berlin. A schedule is itself a message, in the companion T@cron of its
// topic T, which is due when the next time comes. A duty (package duty, a server, or a worker that
// is told to) takes it then, and stores the occurrence and the schedule's next time in one step.
package schedule

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/cron"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/schedule/internal/rule"
	"github.com/punctualmq/punctual/storekit"
)

// Suffix ends the name of a companion: reports@cron has the recurring schedules of reports, each of
// them a message.
const Suffix = "@cron"

// Schedule pushes a message to a topic again and again, at the times that Spec names. Each of these
// messages is an occurrence of the schedule. For example, with the Spec "0 9 * * MON-FRI" and the
// Zone "Europe/Berlin" there is one at nine o'clock of each working day, whether the clocks in
// Berlin are set forward or back.
//
// A schedule is itself a message, of the companion topic T@cron: its ID is the Name, and it is due
// when the schedule comes next. A duty (package duty, or 'punctual serve') claims it then, and acks
// it with follow-ups: the occurrences of the times that have come, and the schedule with its next
// time. This is one atomic step, so each occurrence is stored exactly once, however many duties run
// and whichever of them dies.
//
// An occurrence is a message like any other, with retries, dead letters and all settings of its
// topic. Its ID is NAME~20261120T080000Z, with the time in UTC, its Due is that time (later with a
// Spread), and the headers HeaderSchedule and HeaderOccurrence have the name and the time as well.
type Schedule struct {
	// Topic is the topic of the occurrences. It is not a companion.
	Topic string
	// Name names the schedule within its topic: 1 to MaxName of A-Z a-z 0-9 . _ : -
	Name string
	// Spec says when the schedule comes: a cron expression of 5 fields (minute, hour, day of month,
	// month, day of week), 6 with the second in front, or 7 with the second in front and the year
	// behind; a nickname such as @daily; or "@every 90s". Several expressions are divided by ";".
	// docs/schedules.md has the grammar.
	Spec string
	// Zone is the IANA name of the zone whose clock Spec and Except mean, such as Europe/Berlin.
	// Default UTC.
	Zone string
	// From and Until bound the times: the first and the last instant at which the schedule may
	// come. The zero Time sets no bound.
	From, Until time.Time
	// Except are days on which the schedule does not come, by the calendar of Zone: 2026-12-24, or
	// 12-25 for every year. At most 400.
	Except []string
	// Spread has the schedule come later by a part of Spread that its topic and name decide, the
	// same each time. So a thousand schedules for nine o'clock with a Spread of 5 minutes do not
	// all come in one second. 0 to 24 h. The occurrence is due at the later time; its ID and
	// HeaderOccurrence have the time of Spec.
	Spread time.Duration

	// Overlap says what happens when a time comes while the occurrence before it is still
	// scheduled, ready or leased. Default OverlapSkip.
	Overlap Overlap
	// Missed says what becomes of times that nobody could store in time, because no duty ran or the
	// store was away. Default MissedLatest.
	Missed Missed
	// Grace is how late a time may be stored before it counts as missed: 1 s to 366 days. Default 1
	// minute.
	Grace time.Duration
	// Limit ends the schedule after so many occurrences. Default 0: never.
	Limit int64
	// MaxDead pauses the schedule when the last MaxDead occurrences that have ended are all dead:
	// at most 10. Default 0: never.
	MaxDead int

	// Body and Headers are those of the occurrences. Body is at most MaxBody long. Headers are
	// UTF-8, at most limits.MaxHeaderBytes less 1 KiB, and no name begins with "punctual-".
	Body    []byte
	Headers map[string]string
	// MaxAttempts and the fields below it are those of the occurrences; see punctual.NewMessage.
	// ExpireAfter counts from the time at which an occurrence is due, so that one which makes up
	// for a missed time can have expired.
	MaxAttempts int
	ExpireAfter time.Duration
	DropExpired bool
	Remember    time.Duration
	Timeout     time.Duration
	Key         string
}

// Limits of schedules.
const (
	// MaxName is the greatest length of a Schedule.Name, in bytes.
	MaxName = 100
	// MaxBody is the greatest length of a Schedule.Body, in bytes: 256 KiB. A larger body would be
	// rewritten with each time of the schedule; put a reference to it into the schedule instead.
	MaxBody = 256 << 10
	// MaxSkip is the most times ahead that can be skipped, and MaxBackfill the most occurrences of
	// one Backfill.
	MaxSkip     = rule.MaxSkip
	MaxBackfill = 10_000
)

// The headers of an occurrence.
const (
	// HeaderSchedule has the name of the schedule.
	HeaderSchedule = "punctual-schedule"
	// HeaderOccurrence has the time that the Spec names, as in 2026-11-20T08:00:00Z, or for Run
	// that of the call. With a Spread an occurrence of the Spec is due later.
	HeaderOccurrence = "punctual-occurrence"
	// HeaderManual is there when somebody asked for the occurrence: "run" by Run, "backfill" by
	// Backfill.
	HeaderManual = "punctual-manual"
)

const (
	defaultGrace = time.Minute
	maxGrace     = 366 * 24 * time.Hour
	maxSpread    = 24 * time.Hour
	mostDead     = 10
	// scheduleHeaderBytes is kept free for the headers that Punctual adds to an occurrence.
	scheduleHeaderBytes = 1 << 10
	reservedHeader      = "punctual-"
)

// Overlap says what happens when a schedule comes while the occurrence before it is not finished.
type Overlap uint8

// What happens when a schedule comes while the occurrence before it is scheduled, ready or leased.
const (
	// OverlapSkip stores no occurrence for that time, and counts it as skipped.
	OverlapSkip Overlap = iota
	// OverlapAllow stores one, so that both may be worked on at once.
	OverlapAllow
	// OverlapReplace cancels the one before and stores a new one. Somebody who works on the one
	// before finishes that attempt; there is none after it.
	OverlapReplace
)

var overlapNames = [...]string{"skip", "allow", "replace"}

// String returns "skip", "allow" or "replace".
func (o Overlap) String() string { return storekit.Word(overlapNames[:], int(o)) }

// ParseOverlap is the inverse of Overlap.String. The empty text is OverlapSkip.
func ParseOverlap(text string) (Overlap, error) {
	i, err := parseName(overlapNames[:], "overlap", text)
	return Overlap(i), err
}

// Missed says what becomes of the times of a schedule that nobody could store in time.
type Missed uint8

// What becomes of times that are later than Schedule.Grace when a duty gets to them.
const (
	// MissedLatest stores one occurrence for all of them, with the last of the times, unless a
	// later one is in time. A schedule for every hour that comes back after a day has one
	// occurrence at once, and 23 are counted as missed.
	MissedLatest Missed = iota
	// MissedAll stores an occurrence for each, at most 50 in a step. With OverlapSkip only the
	// first is stored, because the next one then overlaps with it, and with OverlapReplace only the
	// last of a step.
	MissedAll
	// MissedNone stores none.
	MissedNone
)

var missedNames = [...]string{"latest", "all", "none"}

// String returns "latest", "all" or "none".
func (m Missed) String() string { return storekit.Word(missedNames[:], int(m)) }

// ParseMissed is the inverse of Missed.String. The empty text is MissedLatest.
func ParseMissed(text string) (Missed, error) {
	i, err := parseName(missedNames[:], "missed", text)
	return Missed(i), err
}

// parseName returns the index of text in names; the empty text is the first one.
func parseName(names []string, what, text string) (int, error) {
	if i := slices.Index(names, text); i >= 0 || text == "" {
		return max(i, 0), nil
	}
	return 0, storekit.Invalidf("%s %q: use %s or %s", what, text, strings.Join(names[:len(names)-1], ", "), names[len(names)-1])
}

// definition returns what is stored of s, or the first thing that is wrong with it: an ErrInvalid
// or ErrTooLarge that names the place. It does not read the times.
func (s *Schedule) definition() (rule.Definition, error) {
	grace := cmp.Or(s.Grace, defaultGrace)
	if err := s.check(grace); err != nil {
		return rule.Definition{}, err
	}
	d := rule.Definition{
		Timing:  rule.Timing{Spec: s.Spec, Zone: s.Zone, From: stampOf(s.From), Until: stampOf(s.Until), Except: slices.Clone(s.Except)},
		Spread:  millisUp(s.Spread),
		Overlap: storedOverlaps[s.Overlap], Missed: storedMissed[s.Missed], Grace: millisUp(grace),
		Limit: s.Limit, MaxDead: s.MaxDead,
		Headers: maps.Clone(s.Headers), MaxAttempts: s.MaxAttempts, Expire: millisUp(s.ExpireAfter), DropExpired: s.DropExpired,
		Attributes: rule.NewAttributes(s.Attributes()),
	}
	if len(d.Headers) == 0 {
		d.Headers = nil
	}
	if len(d.Except) == 0 {
		d.Except = nil
	}
	d.SetBody(slices.Clone(s.Body))
	return d, nil
}

// check returns the first thing that is wrong with s, whose Grace is grace once the default is
// filled in.
func (s *Schedule) check(grace time.Duration) error {
	if err := checkScheduleName(s.Topic, s.Name); err != nil {
		return err
	}
	headerBytes := 0
	for name, value := range s.Headers {
		headerBytes += len(name) + len(value)
		switch {
		case strings.HasPrefix(name, reservedHeader):
			return s.errorf(punctual.ErrInvalid, "header %q: names that begin with %s are Punctual's", name, reservedHeader)
		case !utf8.ValidString(name) || !utf8.ValidString(value):
			return s.errorf(punctual.ErrInvalid, "header %q is not UTF-8: encode it", name)
		}
	}
	switch {
	case len(s.Body) > MaxBody:
		return s.errorf(punctual.ErrTooLarge, "body has %d bytes: use at most %d", len(s.Body), MaxBody)
	case headerBytes > limits.MaxHeaderBytes-scheduleHeaderBytes:
		return s.errorf(punctual.ErrTooLarge, "headers have %d bytes: use at most %d", headerBytes, limits.MaxHeaderBytes-scheduleHeaderBytes)
	case int(s.Overlap) >= len(overlapNames):
		return s.errorf(punctual.ErrInvalid, "overlap %d: use OverlapSkip, OverlapAllow or OverlapReplace", s.Overlap)
	case int(s.Missed) >= len(missedNames):
		return s.errorf(punctual.ErrInvalid, "missed %d: use MissedLatest, MissedAll or MissedNone", s.Missed)
	case grace < time.Second || grace > maxGrace:
		return s.errorf(punctual.ErrInvalid, "grace %v: use 1s to %v, or 0 for %v", grace, maxGrace, defaultGrace)
	case s.Spread < 0 || s.Spread > maxSpread:
		return s.errorf(punctual.ErrInvalid, "spread %v: use 0 to %v", s.Spread, maxSpread)
	case s.Limit < 0:
		return s.errorf(punctual.ErrInvalid, "limit %d is negative: use 0 for no limit", s.Limit)
	case s.MaxDead < 0 || s.MaxDead > mostDead:
		return s.errorf(punctual.ErrInvalid, "pause after %d dead occurrences: use 1 to %d, or 0 for never", s.MaxDead, mostDead)
	case s.MaxAttempts < 0 || s.MaxAttempts > limits.MaxAttemptsLimit:
		return s.errorf(punctual.ErrInvalid, "%d attempts: use 1 to %d, or 0 for the topic's", s.MaxAttempts, limits.MaxAttemptsLimit)
	case s.ExpireAfter < 0:
		return s.errorf(punctual.ErrInvalid, "expiry %v is negative: use 0 for none", s.ExpireAfter)
	case s.From.After(limits.MaxDue) || s.Until.After(limits.MaxDue):
		return s.errorf(punctual.ErrInvalid, "a bound is after %s", limits.MaxDue.Format(time.RFC3339))
	}
	if err := s.Attributes().Check(); err != nil {
		return fmt.Errorf("schedule %s in %s: %w", s.Name, s.Topic, err)
	}
	return nil
}

var (
	storedOverlaps = [...]rule.Overlap{rule.OverlapSkip, rule.OverlapAllow, rule.OverlapReplace}
	storedMissed   = [...]rule.Missed{rule.MissedLatest, rule.MissedAll, rule.MissedNone}
)

// scheduleOf is the inverse of Schedule.definition.
func scheduleOf(topic, name string, d *rule.Definition) Schedule {
	s := Schedule{
		Topic: topic, Name: name, Spec: d.Spec, Zone: d.Zone, From: timeOf(d.From), Until: timeOf(d.Until), Except: d.Except,
		Spread:  durationOf(d.Spread),
		Overlap: Overlap(max(slices.Index(storedOverlaps[:], d.Overlap), 0)), Missed: Missed(max(slices.Index(storedMissed[:], d.Missed), 0)),
		Grace: durationOf(d.Grace), Limit: d.Limit, MaxDead: d.MaxDead,
		Body: d.Body(), Headers: d.Headers, MaxAttempts: d.MaxAttempts, ExpireAfter: durationOf(d.Expire),
		DropExpired: d.DropExpired,
	}
	s.SetAttributes(d.Attributes.Attributes)
	return s
}

func checkScheduleName(topic, name string) error {
	about := Schedule{Topic: topic, Name: name}
	switch {
	case topic == "":
		return storekit.Invalidf("schedule %q has no topic: name the one that its occurrences go to", name)
	case strings.Contains(topic, "@"):
		return storekit.Invalidf("schedule %q in %s: a companion has no schedules; use the topic %s", name, topic, topic[:strings.Index(topic, "@")])
	case name == "":
		return storekit.Invalidf("a schedule in %s has no name: name it with 1 to %d of A-Z a-z 0-9 . _ : -", topic, MaxName)
	case len(name) > MaxName:
		return about.errorf(punctual.ErrInvalid, "the name has %d bytes: use at most %d", len(name), MaxName)
	}
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > ':') && (c < 'A' || c > 'Z') && c != '.' && c != '_' && c != '-' {
			return about.errorf(punctual.ErrInvalid, "byte %d of the name is not one of A-Z a-z 0-9 . _ : -", i+1)
		}
	}
	return nil
}

// Attributes returns the attributes that the messages of s get.
func (s *Schedule) Attributes() storekit.Attributes {
	return storekit.Attributes{Remember: s.Remember, Timeout: s.Timeout, Key: s.Key}
}

// SetAttributes has the messages of s get the attributes a.
func (s *Schedule) SetAttributes(a storekit.Attributes) {
	s.Remember, s.Timeout, s.Key = a.Remember, a.Timeout, a.Key
}

// errorf returns an error that names the schedule.
func (s *Schedule) errorf(kind error, format string, args ...any) error {
	return fmt.Errorf("schedule %s in %s: %s: %w", s.Name, s.Topic, fmt.Sprintf(format, args...), kind)
}

// wrong returns err of package schedule as an error of the vocabulary that names the schedule.
func (s *Schedule) wrong(err error) error {
	kind := punctual.ErrInvalid
	if errors.Is(err, rule.ErrBehind) {
		kind = punctual.ErrOverloaded
	}
	return fmt.Errorf("schedule %s in %s: %w: %w", s.Name, s.Topic, err, kind)
}

// Same reports whether s and t say the same, so that a Put of one where the other is stored changes
// nothing. Neither may be one that Put refuses.
func (s Schedule) Same(t Schedule) bool {
	d, err := s.definition()
	e, err2 := t.definition()
	return err == nil && err2 == nil && s.Topic == t.Topic && s.Name == t.Name && d.Equal(&e)
}

// Times say when a schedule comes.
type Times struct {
	// Words say it in English: "at 09:00 on Monday to Friday (Europe/Berlin)".
	Words string
	// Warnings are sentences about what Spec means and its author may not expect.
	Warnings []string
	// Next are the next times.
	Next []Occurrence
}

// Preview returns the first n times, 0 to 10,000, at which s comes after the instant named, and
// needs no store. The Topic and Name of s may both be empty; with a Spread they decide how much
// later s comes. Preview refuses a malformed Schedule with the error of Put, but does not check the
// bytes of Topic. It does not find what only a store knows: whether the messages can be copied to
// the groups of the topic, whether a time is left by the store's clock, whether the times were
// changed too often, and whether the store has follow-ups. An instant before 1970 counts as 1970.
func (s Schedule) Preview(after time.Time, n int) (Times, error) {
	if n < 0 || n > MaxBackfill {
		return Times{}, storekit.Invalidf("preview of %d times: use 0 to %d", n, MaxBackfill)
	}
	if s.Topic == "" && s.Name == "" {
		s.Topic, s.Name = "topic", "preview"
	}
	d, err := s.definition()
	if err != nil {
		return Times{}, err
	}
	var zones cron.Zones
	r, err := rule.New(d, max(stampOf(after), 0), &zones)
	if err != nil {
		return Times{}, s.wrong(err)
	}
	return preview(s.Topic, s.Name, r, n, &zones)
}

// preview returns the Times of a record, with its next n times.
func preview(topic, name string, r *rule.Record, n int, zones *cron.Zones) (Times, error) {
	s := Schedule{Topic: topic, Name: name}
	t, err := r.Read(zones)
	if err != nil {
		return Times{}, s.wrong(err)
	}
	next, err := r.Upcoming(n, zones)
	if err != nil {
		return Times{}, s.wrong(err)
	}
	delay := rule.Delay(r.Spread, topic, name)
	p := Times{Words: t.Words(delay), Warnings: t.Warnings()}
	for _, at := range next {
		p.Next = append(p.Next, Occurrence{ID: occurrenceID(name, at), At: timeOf(at), Due: timeOf(at + delay)})
	}
	if r.Missed == rule.MissedAll && r.Overlap == rule.OverlapSkip {
		p.Warnings = append(p.Warnings, "of the times that were missed one is stored and the others are skipped, because they overlap; overlap allow stores each")
	}
	return p, nil
}

// Occurrence is one time of a schedule.
type Occurrence struct {
	// ID is that of the message, in the topic of the schedule. A time that was not stored has one
	// as well, which no message has.
	ID string
	// At is the time that the Spec names, Due when the occurrence is due: later by a part of
	// Spread.
	At, Due time.Time
	// Status says what became of it. It is empty for a time ahead, except that Skip returns its
	// times as OccurrenceSkipped.
	Status OccurrenceStatus
}

// OccurrenceStatus says what became of an occurrence.
type OccurrenceStatus string

// What became of an occurrence, as far as the store knows. Beside these it is a State of its
// message, "scheduled", "ready", "leased" or "dead", or the Outcome in the record of the finished
// message, "acked", "cancelled" or "expired". In a BackfillReport it may be OccurrenceStored.
const (
	// OccurrenceFinished: it was stored, and neither its message nor a record of it is there any
	// more. A topic with a FinishedRetention keeps records.
	OccurrenceFinished OccurrenceStatus = "finished"
	// OccurrenceMissed: it was not stored, because no duty got to it in time.
	OccurrenceMissed OccurrenceStatus = "missed"
	// OccurrenceOverlap: it was not stored, because of the occurrences before or after it
	// (Schedule.Overlap).
	OccurrenceOverlap OccurrenceStatus = "overlap"
	// OccurrenceSkipped: it was not stored, because somebody had asked to skip it.
	OccurrenceSkipped OccurrenceStatus = "skipped"
	// OccurrencePaused: it was not stored, because the schedule was paused.
	OccurrencePaused OccurrenceStatus = "paused"
)

var leftOut = map[rule.Why]OccurrenceStatus{
	rule.WhyMissed: OccurrenceMissed, rule.WhyOverlap: OccurrenceOverlap, rule.WhySkipped: OccurrenceSkipped, rule.WhyPaused: OccurrencePaused,
}

// occurrenceID is the ID of the occurrence of an instant in Unix milliseconds. Its stem is the
// name, so it lies in the partition of its schedule.
func occurrenceID(name string, at int64) string {
	return name + "~" + timeOf(at).Format("20060102T150405Z")
}

// manualID is the ID of an occurrence that Run stores at an instant. Its milliseconds keep it apart
// from the IDs of the times of the Spec.
func manualID(name string, at int64) string {
	return name + "~" + timeOf(at).Format("20060102T150405.000Z")
}

// occurrence is the message of the time at, which is due at due; both are Unix milliseconds. manual
// is the HeaderManual; empty leaves it out.
func occurrence(topic, name, id string, d *rule.Definition, at, due int64, manual string) punctual.NewMessage {
	headers := make(map[string]string, len(d.Headers)+3)
	maps.Copy(headers, d.Headers)
	headers[HeaderSchedule] = name
	headers[HeaderOccurrence] = timeOf(at).Format(time.RFC3339)
	if manual != "" {
		headers[HeaderManual] = manual
	}
	m := punctual.NewMessage{
		Topic: topic, ID: id, Body: d.Body(), Headers: headers, Due: timeOf(due), MaxAttempts: d.MaxAttempts,
		ExpireAfter: durationOf(d.Expire), DropExpired: d.DropExpired,
	}
	d.Attributes.SetNew(&m)
	return m
}

// stampOf is t in Unix milliseconds, rounded down; 0 for the zero Time.
func stampOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// timeOf is the inverse of stampOf.
func timeOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// millisUp is d in milliseconds, rounded up.
func millisUp(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// durationOf is the inverse of millisUp.
func durationOf(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
