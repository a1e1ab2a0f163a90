package cli

import (
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/cron"
	"github.com/punctualmq/punctual/internal/notation"
	"github.com/punctualmq/punctual/internal/wire"
)

// typed returns v, which was parsed from the command line or from a line of input, and makes the
// parser's error one of usage.
func typed[T any](v T, err error) (T, error) {
	if err != nil {
		return v, usagef("%s", strings.TrimSuffix(err.Error(), ": "+punctual.ErrInvalid.Error()))
	}
	return v, nil
}

// parsedFlag is a flag whose text set understands. The text is empty unless the flag was given.
type parsedFlag struct {
	text, kind string
	set        func(string) error
}

// Set, String and Type implement pflag.Value.
func (f *parsedFlag) Set(s string) error {
	f.text = s
	return f.set(s)
}

func (f *parsedFlag) String() string { return f.text }

// Type is the word for the value in a command's help.
func (f *parsedFlag) Type() string { return f.kind }

// parsedVar adds a flag that sets p to what read makes of its text.
func parsedVar[T any](flags *pflag.FlagSet, p *T, name, usage, kind string, read func(string) (T, error)) {
	flags.Var(&parsedFlag{kind: kind, set: func(s string) (err error) {
		*p, err = read(s)
		return err
	}}, name, usage)
}

func durationVar(flags *pflag.FlagSet, p *time.Duration, name, usage string) {
	parsedVar(flags, p, name, usage, "duration", readDuration)
}

// durationTextVar adds a flag that takes a duration and keeps its text for a member of JSON.
func durationTextVar(flags *pflag.FlagSet, p *wire.Given, name, usage string) {
	parsedVar(flags, p, name, usage, "duration", func(s string) (wire.Given, error) {
		_, err := readDuration(s)
		return wire.Given(s), err
	})
}

// attributeFlags adds the flags of push and of schedule put for the attributes of a message.
func attributeFlags(flags *pflag.FlagSet, a *wire.Attributes) {
	for _, f := range &wire.AttributeFields {
		if f.Length() {
			durationTextVar(flags, f.Member(a), f.Name, f.Help)
			continue
		}
		parsedVar(flags, f.Member(a), f.Name, f.Help, "text", func(s string) (given wire.Given, err error) {
			err = given.UnmarshalText([]byte(s))
			return given, err
		})
	}
}

// givenDurationVar adds a flag that leaves p nil unless it is given.
func givenDurationVar(flags *pflag.FlagSet, p **time.Duration, name, usage string) {
	parsedVar(flags, p, name, usage, "duration", func(s string) (*time.Duration, error) {
		d, err := readDuration(s)
		return &d, err
	})
}

func readDuration(s string) (time.Duration, error) { return typed(notation.ParseDuration(s)) }

// timeVar adds a flag that takes a time as readTime understands it. The zero Time says that the
// flag was not given, so it is refused.
func (a *app) timeVar(flags *pflag.FlagSet, p *time.Time, name, usage string) {
	parsedVar(flags, p, name, usage, "time", func(s string) (time.Time, error) { return a.readGivenTime(name, s) })
}

// timeTextVar is timeVar for a member of JSON.
func (a *app) timeTextVar(flags *pflag.FlagSet, p *wire.Given, name, usage string) {
	parsedVar(flags, p, name, usage, "time", func(s string) (wire.Given, error) {
		t, err := a.readGivenTime(name, s)
		return wire.Given(wire.TimeText(t)), err
	})
}

func (a *app) readGivenTime(name, s string) (time.Time, error) {
	t, odd, err := a.readTime(s, a.localZone())
	if odd != "" {
		a.warn("--"+name, []string{odd})
	}
	if err == nil && t.IsZero() {
		err = usagef("time %s cannot be told from none: use a later one", stamp(t))
	}
	return t, err
}

// timeForms says what --at takes.
const timeForms = "2026-11-20T10:00:00Z, '2026-11-20 9:00', 'tomorrow 9:00', 'mon 9am' or '9:30pm'"

// readTime reads what --at takes. That is an RFC 3339 time, or a day and a time of day, or a time
// of day alone, as clocks on the wall in loc show it. Words that it does not know are refused,
// because a time that is understood in part is a wrong one. Where the clocks skip the time or show
// it twice, it is the first instant at which they show it or a later one (cron.FirstInstant), and
// odd says so.
func (a *app) readTime(s string, loc *time.Location) (t time.Time, odd string, err error) {
	if hasOffset(s) || notation.HasLongYear(s) {
		t, err = typed(notation.ParseTime(s))
		return t, "", err
	}
	return readOnWall(s, a.now().In(loc))
}

// hasOffset tells whether s is a date and time that says how far it is from UTC.
func hasOffset(s string) bool {
	return dateAndTime.MatchString(s) && (strings.HasSuffix(s, "Z") || strings.ContainsAny(s[len(time.DateOnly):], "+-"))
}

// readOnWall is readTime for a time on the wall, in the zone of now.
func readOnWall(s string, now time.Time) (t time.Time, odd string, err error) {
	take := func(day, clock time.Time) {
		wall := time.Date(day.Year(), day.Month(), day.Day(), clock.Hour(), clock.Minute(), clock.Second(), 0, time.UTC)
		t, odd = cron.FirstInstant(wall, now.Location()), cron.OddWall(wall, now.Location())
	}
	words := strings.Fields(strings.ToLower(dateAndTime.ReplaceAllString(s, "$1 $2")))
	if n := len(words); n > 1 && (words[n-1] == "am" || words[n-1] == "pm") { // 9 am
		words = append(words[:n-2], words[n-2]+words[n-1])
	}
	if len(words) == 3 && words[1] == "at" {
		words = []string{words[0], words[2]}
	}
	switch len(words) {
	case 1:
		if _, ok := dayOf(words[0], now); ok {
			return t, "", usagef("time %q has no time of day: write it like '%s 9:00'", s, words[0])
		}
		clock, ok := timeOfDay(words[0])
		if !ok {
			break
		}
		if take(now, clock); !t.After(now) {
			take(now.AddDate(0, 0, 1), clock)
		}
		return t, odd, nil
	case 2:
		day, known := dayOf(words[0], now)
		clock, ok := timeOfDay(words[1])
		if !known || !ok {
			break
		}
		take(day, clock)
		if _, weekday := weekdays[words[0]]; weekday && !t.After(now) {
			take(day.AddDate(0, 0, 7), clock)
		}
		return t, odd, nil
	}
	if notation.ImpossibleDay(s) {
		return t, "", usagef("time %q: the calendar has no such day: use one that it has", s)
	}
	return t, "", usagef("time %q is not understood: write it like %s", s, timeForms)
}

// dateAndTime matches the start of a time in RFC 3339's form. Without an offset from UTC it is a
// time on the wall.
var dateAndTime = regexp.MustCompile(`^(\d{4}-\d\d-\d\d)T(\d)`)

var weekdays = map[string]time.Weekday{
	"sun": time.Sunday, "mon": time.Monday, "tue": time.Tuesday, "wed": time.Wednesday, "thu": time.Thursday, "fri": time.Friday, "sat": time.Saturday,
	"sunday": time.Sunday, "monday": time.Monday, "tuesday": time.Tuesday, "wednesday": time.Wednesday, "thursday": time.Thursday, "friday": time.Friday, "saturday": time.Saturday,
}

// dayOf is some instant of the day that a word names, seen from now. A weekday is today or one of
// the six days ahead.
func dayOf(word string, now time.Time) (day time.Time, ok bool) {
	switch word {
	case "today":
		return now, true
	case "tomorrow":
		return now.AddDate(0, 0, 1), true
	}
	if w, ok := weekdays[word]; ok {
		return now.AddDate(0, 0, int(w-now.Weekday()+7)%7), true
	}
	day, err := time.ParseInLocation(time.DateOnly, word, now.Location())
	return day, err == nil
}

// timeOfDay reads 9:00, 21:30:05, 9am, 9:30pm or noon, as a time of the year 0 in UTC.
func timeOfDay(s string) (clock time.Time, ok bool) {
	if s == "noon" {
		s = "12:00"
	}
	for _, layout := range []string{"15:04", "15:04:05", "3pm", "3:04pm"} {
		if t, err := time.Parse(layout, s); err == nil && (!strings.Contains(layout, "pm") || !strings.HasPrefix(s, "0")) {
			return t, true
		}
	}
	return clock, false
}
