// Package cron reads the times of a schedule, such as "0 9 * * MON-FRI", and says when they come
// next in a time zone.
//
// The grammar is that of the Open Cron Pattern Specification 1.4: five fields (minute, hour, day of
// month, month, day of week), six with the second in front, seven with the year at the end; lists,
// ranges, steps and names; L, W, # and the + that asks for both days; the nicknames from @hourly to
// @yearly. Beside it stand "@every 90s", counted from 1970 so that all processes agree, and
// CRON_TZ= in front. What could be read in two ways is refused, so that nothing is guessed.
//
// What happens when clocks are set forward or back depends on what the expression means. One that
// names its hour, minute and second by numbers means times of a day: each comes once, at the first
// instant at which the clock on the wall reaches or passes it. Any other (a *, a range or a step in
// one of the three) means an interval: it comes whenever the wall shows a matching time, so never
// in a gap, and twice when an hour is repeated.
package cron

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// FirstYear and LastYear bound what an expression can mean. A bound is needed so that no search is
// without end; this is the one that the specification names as portable.
const (
	FirstYear = 1970
	LastYear  = 2199
)

// maxSpecBytes bounds the text of an expression. The longest one in use is a list of minutes; a
// text far beyond that is a mistake, and would be stored anew with each step of its schedule.
const maxSpecBytes = 512

// ErrNever is wrapped by the error for an expression that can be read and yet never comes, such as
// the 31st of February.
var ErrNever = errors.New("no time ever matches")

// An Error says what is wrong with an expression, and where.
type Error struct {
	// Spec is the text as given, or its beginning if the text is too long.
	Spec string
	// Field names the part that is wrong: "minute" for instance. It is empty when the whole is
	// meant.
	Field string
	// Character is the place of the mistake in Spec, counted from 1; 0 when the whole is meant.
	Character int
	// Problem says what is wrong and what to write instead.
	Problem string
	// Never is set when the expression can be read but no time ever matches; the error then wraps
	// ErrNever.
	Never bool
}

func (e *Error) Error() string {
	switch {
	case e.Field == "":
		return fmt.Sprintf("schedule %q: %s", e.Spec, e.Problem)
	default:
		return fmt.Sprintf("schedule %q: %s, at character %d: %s", e.Spec, e.Field, e.Character, e.Problem)
	}
}

// Unwrap is ErrNever for an expression that never comes.
func (e *Error) Unwrap() error {
	if e.Never {
		return ErrNever
	}
	return nil
}

// A Spec is an expression that was read. It does not change, so it may be shared. The zero Spec has
// no times.
type Spec struct {
	text string
	zone string
	// every is the length in seconds of "@every"; the fields are not used then.
	every int64

	second, minute, hour, dayOfMonth, month, dayOfWeek, year field
	// both asks for a day that matches dayOfMonth and dayOfWeek; otherwise one of them is enough.
	both bool
	// fixed expressions mean times of a day; others mean intervals.
	fixed bool
	dates dates
}

// nicknames are the expressions that have a name.
var nicknames = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

// Parse reads an expression. Its error is always an *Error. An expression that no time ever matches
// is an error, too.
func Parse(text string) (Spec, error) {
	s := Spec{text: text}
	p := parser{text: text}
	if len(text) > maxSpecBytes {
		p.text = text[:40] + "..."
		return Spec{}, p.whole("it has %d bytes: use %d at most", len(text), maxSpecBytes)
	}
	words := wordsOf(text)
	if len(words) > 0 && strings.HasPrefix(words[0].text, "TZ=") {
		return Spec{}, p.wrong("zone", words[0].at, "TZ= is not taken: write CRON_TZ=%s", strings.TrimPrefix(words[0].text, "TZ="))
	}
	if len(words) > 0 {
		if zone, ok := strings.CutPrefix(words[0].text, "CRON_TZ="); ok {
			if zone == "" {
				return Spec{}, p.wrong("zone", words[0].at, "CRON_TZ= names no zone: write it like CRON_TZ=Europe/Berlin")
			}
			s.zone, words = zone, words[1:]
		}
	}
	if len(words) == 0 {
		return Spec{}, p.whole("it has no fields: %s", fieldForms)
	}
	if strings.HasPrefix(text, "cron(") || strings.HasPrefix(text, "rate(") {
		t, err := Translate(text, EventBridge)
		var wrong *Error
		if errors.As(err, &wrong) {
			return Spec{}, p.whole("it is EventBridge's, and %s", wrong.Problem)
		}
		return Spec{}, p.whole("it is EventBridge's: write '%s'", t.Text)
	}
	if strings.Contains(text, "..") || strings.Contains(text, "*-*") {
		return Spec{}, p.whole("it is systemd's OnCalendar: 'Mon..Fri *-*-* 09:00' is '0 9 * * MON-FRI' here")
	}
	var err error
	if strings.HasPrefix(words[0].text, "@") {
		err = s.readNickname(&p, words)
	} else {
		err = s.readFields(&p, words)
	}
	if err != nil {
		return Spec{}, err
	}
	if s.every > 0 {
		return s, nil
	}
	s.prepare()
	if _, ok := s.nextWall(firstWall); !ok {
		never := p.whole("no time ever matches: %s", s.whyNever())
		never.Never = true
		return Spec{}, never
	}
	return s, nil
}

const fieldForms = "write minute, hour, day of month, month and day of week, like '0 9 * * MON-FRI', with the second in front as a sixth field and the year behind as a seventh if needed"

// readNickname reads an expression that begins with @.
func (s *Spec) readNickname(p *parser, words []word) error {
	name := words[0]
	switch expression, known := nicknames[name.text]; {
	case name.text == "@every":
		return s.readEvery(p, words)
	case name.text == "@reboot":
		return p.wrong("nickname", name.at, "@reboot is no time that a clock shows: push a message when the program starts")
	case known && len(words) > 1:
		return p.wrong("nickname", words[1].at, "%s stands alone: leave out %q", name.text, words[1].text)
	case known:
		return s.readFields(p, wordsOf(expression))
	}
	if lower := strings.ToLower(name.text); nicknames[lower] != "" || lower == "@every" {
		return p.wrong("nickname", name.at, "nicknames are in small letters: write %s", lower)
	}
	return p.wrong("nickname", name.at, "%q is not known: use @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually or @every 90s", name.text)
}

// readEvery reads "@every 90s".
func (s *Spec) readEvery(p *parser, words []word) error {
	if len(words) != 2 {
		return p.wrong("nickname", words[0].at, "@every takes one duration: write it like '@every 90s'")
	}
	d, err := time.ParseDuration(words[1].text)
	days, inDays := strings.CutSuffix(words[1].text, "d")
	switch n, notDays := strconv.Atoi(days); {
	case inDays && notDays == nil && n > 0:
		return p.wrong("duration", words[1].at, "days are not always 24 hours long: write %dh, or @daily for each midnight", 24*n)
	case err != nil:
		return p.wrong("duration", words[1].at, "%q is not understood: write it like 90s, 15m or 36h", words[1].text)
	case d < time.Second:
		return p.wrong("duration", words[1].at, "%s is too short: use 1s or more", words[1].text)
	case d%time.Second != 0:
		return p.wrong("duration", words[1].at, "%s is not in whole seconds: use %s", words[1].text, d.Truncate(time.Second))
	}
	s.every = int64(d / time.Second)
	return nil
}

// readFields reads five to seven fields.
func (s *Spec) readFields(p *parser, words []word) error {
	const least, most = 5, 7
	if len(words) < least || len(words) > most {
		return p.whole("it has %s: %s", counted(len(words), "field"), fieldForms)
	}
	zero := word{text: "0"}
	switch len(words) {
	case least:
		words = append([]word{zero}, append(words, word{text: "*"})...)
	case least + 1:
		words = append(words, word{text: "*"})
	}
	for i, f := range []struct {
		into  *field
		limit limit
	}{
		{&s.second, seconds},
		{&s.minute, minutes},
		{&s.hour, hours},
		{&s.dayOfMonth, daysOfMonth},
		{&s.month, months},
		{&s.dayOfWeek, daysOfWeek},
		{&s.year, years},
	} {
		w := words[i]
		if f.limit.name == daysOfWeek.name && strings.HasPrefix(w.text, "+") {
			s.both = true
			w = word{text: w.text[1:], at: w.at + 1}
		}
		var err error
		if *f.into, err = p.field(w, f.limit); err != nil {
			return err
		}
	}
	return nil
}

// prepare works out what the search for the next time needs.
func (s *Spec) prepare() {
	s.fixed = s.second.isNumbers() && s.minute.isNumbers() && s.hour.isNumbers()
	s.both = s.both || s.dayOfMonth.open || s.dayOfWeek.open
	s.dates = datesOf(s)
}

// whyNever says why no day matches.
func (s *Spec) whyNever() string {
	if s.dayOfWeek.open {
		return "no such day is in these months and years"
	}
	return "no such day with that weekday is in these months and years"
}

// String returns the text as given to Parse.
func (s Spec) String() string { return s.text }

// Zone is the zone that CRON_TZ= names in the text, or "" without one. Whether this machine knows
// the zone is for LoadZone to say, because a schedule may be read where the zone is not known.
func (s Spec) Zone() string { return s.zone }

// LoadZone is the zone of the IANA time zone database with that name. "" is UTC. The error says how
// a name is written. The name "Local" is refused, because it means another zone on another machine.
// A former name of a zone that the machine's files lack is that zone in these files, so that both
// names mean the same: Debian 13 and newer have no Canada/Central, and the copy in the program may
// be of another year than their America/Winnipeg.
func LoadZone(name string) (*time.Location, error) {
	if name == "Local" {
		return nil, errors.New(`zone "Local" is another one on each machine: name it like Europe/Berlin`)
	}
	loc, err := time.LoadLocation(presentName(name, zoneFolders()))
	if err != nil {
		return nil, &UnknownZoneError{name}
	}
	return loc, nil
}

// UnknownZoneError says that the zone data of this process lacks a zone, or that its name is
// malformed.
type UnknownZoneError struct{ Name string }

func (e *UnknownZoneError) Error() string {
	return fmt.Sprintf("zone %q is not known here: use a name of the IANA database, like Europe/Berlin or UTC", e.Name)
}

func counted(n int, what string) string {
	if n == 1 {
		return fmt.Sprintf("%d %s", n, what)
	}
	return fmt.Sprintf("%d %ss", n, what)
}
