package rule

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/punctualmq/punctual/internal/cron"
)

// Timing is the part of a definition that says at which times a schedule comes. Times are Unix
// milliseconds.
type Timing struct {
	// Spec is one cron expression, or several with ";" between them. The schedule comes whenever
	// one of them does, and once where several name the same instant.
	Spec string `json:"spec"`
	// Zone is the IANA name of the zone whose clock Spec means; empty is UTC.
	Zone string `json:"zone,omitempty"`
	// From and Until are the first and the last instant at which the schedule may come; 0 sets no
	// bound.
	From  int64 `json:"from,omitempty"`
	Until int64 `json:"until,omitempty"`
	// Except are the days on which the schedule does not come, by the calendar of Zone:
	// "2026-12-24", or "12-25" of every year.
	Except []string `json:"except,omitempty"`
}

// MaxSpecs and MaxExcept bound the expressions and the days of one Timing.
const (
	MaxSpecs  = 10
	MaxExcept = 400
)

func (t Timing) equal(u Timing) bool {
	return t.Spec == u.Spec && t.Zone == u.Zone && t.From == u.From && t.Until == u.Until && slices.Equal(t.Except, u.Except)
}

// Time is one time of a schedule.
type Time struct {
	// At is the instant, in Unix milliseconds. It is a whole second, unless Behind returned the
	// Time; 0 stands for no time.
	At int64 `json:"at,omitempty"`
	// Offset is the offset of the zone at that instant, in seconds east of UTC, by the zone data of
	// the process that found it.
	Offset int `json:"offset,omitempty"`
}

// Times is a Timing that was read. It does not change, so it may be shared.
type Times struct {
	specs  []cron.Spec
	loc    *time.Location
	from   int64 // in Unix milliseconds; 0: no bound
	until  int64 // in Unix milliseconds; 0: no bound
	except map[string]bool
}

// Read reads t. An expression that never comes is an error, too; whether From, Until and Except
// leave a time, New and Redefine find out.
func (t Timing) Read(zones *cron.Zones) (*Times, error) {
	out := &Times{from: t.From, until: t.Until}
	zone := t.Zone
	parts := strings.Split(t.Spec, ";")
	if len(parts) > MaxSpecs {
		return nil, fmt.Errorf("%d expressions: use at most %d", len(parts), MaxSpecs)
	}
	for _, text := range parts {
		s, err := cron.Parse(strings.TrimSpace(text))
		if err != nil {
			return nil, err
		}
		if named := s.Zone(); named != "" {
			if zone != "" && zone != named {
				return nil, fmt.Errorf("zone %s and CRON_TZ=%s contradict each other: name one", zone, named)
			}
			zone = named
		}
		out.specs = append(out.specs, s)
	}
	var err error
	if out.loc, err = zones.Load(zone); err != nil {
		return nil, err
	}
	if t.From != 0 && t.Until != 0 && t.Until < t.From {
		return nil, fmt.Errorf("until %s is before from %s: exchange them", stamp(t.Until), stamp(t.From))
	}
	if out.except, err = readExcept(t.Except); err != nil {
		return nil, err
	}
	return out, nil
}

func stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }

// leapYear is in front of a day without a year, so that 02-29 is one.
const leapYear = "2024-"

func readExcept(days []string) (map[string]bool, error) {
	if len(days) > MaxExcept {
		return nil, fmt.Errorf("%d exceptions: use at most %d", len(days), MaxExcept)
	}
	var out map[string]bool
	for i, day := range days {
		full := day
		if len(day) == len("12-25") {
			full = leapYear + day
		}
		if _, err := time.Parse(time.DateOnly, full); err != nil {
			return nil, fmt.Errorf("exception %d, %q, is no day: write it like 2026-12-24, or 12-25 for every year", i+1, day)
		}
		if out == nil {
			out = make(map[string]bool, len(days))
		}
		out[day] = true
	}
	return out, nil
}

// Next returns the first time later than after, or the zero Time when there is none.
func (t *Times) Next(after Time) Time {
	if first := t.from - 1; t.from != 0 && after.At < first {
		after = t.shown(first - first%1000) // times are of whole seconds, so none lies between this one and first
		if after.At > first {
			after.At -= 1000 // a from before 1970
		}
	}
	for {
		next := t.first(after)
		switch {
		case next.At == 0 || t.until != 0 && next.At > t.until:
			return Time{}
		case !t.excepted(next.At):
			return next
		}
		after = t.dayEnd(next)
	}
}

// first is the first time of an expression later than after, whatever the bounds and exceptions.
func (t *Times) first(after Time) (first Time) {
	for _, s := range t.specs {
		next, ok := s.NextBeyond(time.UnixMilli(after.At), after.Offset, t.loc)
		if at := next.UnixMilli(); ok && (first.At == 0 || at < first.At) {
			first = t.shown(at)
		}
	}
	return first
}

// shown is the instant at with the offset of the zone.
func (t *Times) shown(at int64) Time {
	_, offset := time.UnixMilli(at).In(t.loc).Zone()
	return Time{At: at, Offset: offset}
}

// Behind returns the instant now as a Time to continue from: the argument of Next, for the first
// time after now.
func (t *Times) Behind(now int64) Time { return t.shown(now) }

func (t *Times) excepted(at int64) bool {
	if t.except == nil {
		return false
	}
	day := time.UnixMilli(at).In(t.loc).Format(time.DateOnly)
	return t.except[day] || t.except[day[len(leapYear):]]
}

// dayEnd is the last second before the day that follows the day of at, so that the search does not
// go through each second of an exception. Where clocks are set back over midnight, that day begins
// before the last time of the day of at. Then the search goes on from at.
func (t *Times) dayEnd(at Time) Time {
	next := time.UnixMilli(at.At).In(t.loc).AddDate(0, 0, 1)
	begin := cron.FirstInstant(time.Date(next.Year(), next.Month(), next.Day(), 0, 0, 0, 0, time.UTC), t.loc)
	if end := begin.UnixMilli() - 1000; end > at.At {
		return t.shown(end)
	}
	return at
}

// Words says when the schedule comes if it comes later than its expressions say by delay, in
// milliseconds.
func (t *Times) Words(delay int64) string {
	var parts []string
	for _, s := range t.specs {
		parts = append(parts, s.WordsLater(time.Duration(delay)*time.Millisecond))
	}
	return strings.Join(parts, "; and ") + " (" + t.loc.String() + ")"
}

// Warnings are sentences about what the expressions mean and their author may not expect.
func (t *Times) Warnings() (out []string) {
	for _, s := range t.specs {
		out = append(out, s.Warnings()...)
	}
	return out
}

// Delay returns by how much the schedule comes later than the times of its expression: a part of
// spread, in milliseconds, that its topic and name decide. So many schedules for one instant do not
// all come at once, and each keeps its distance from one time to the next. A spread of a second or
// more gives whole seconds.
func Delay(spread int64, topic, name string) int64 {
	if spread <= 0 {
		return 0
	}
	sum := sha256.Sum256([]byte(topic + "\x00" + name))
	delay := int64(binary.BigEndian.Uint64(sum[:8]) % uint64(spread))
	if spread >= 1000 {
		delay -= delay % 1000
	}
	return delay
}
