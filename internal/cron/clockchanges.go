package cron

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"
)

// Programs find the same times on the wall and differ where clocks are set forward or back. To say
// in which times, the searches of asynq, BullMQ, Kubernetes and Quartz are done here as these
// programs do them.

// search finds the next time, like Spec.Next.
type search = func(after time.Time, loc *time.Location) (time.Time, bool)

// yearsAhead is for how many years In looks at the clock changes of a zone.
const yearsAhead = 2

// In returns the expression for a zone, with what is to say of the schedule that where names: that
// it was written anew, and the clock changes within two years of from at which the program of the
// dialect comes at other times than Punctual. Clock changes are not compared for EventBridge and
// Spring. For cron it writes an expression that comes at cron's times.
func (t Translation) In(where string, loc *time.Location, from time.Time) (text string, findings []Finding) {
	parts := strings.Split(t.Text, ";")
	var differences []string
	for i, part := range parts {
		s, err := Parse(strings.TrimSpace(part))
		if err != nil || s.every > 0 {
			continue // Translate has parsed it
		}
		switch t.dialect {
		case Asynq:
			differences = append(differences, s.differences(s.nextOfRobfig, "asynq", loc, from)...)
		case Kubernetes:
			differences = append(differences, s.differences(s.nextOfRobfig, "Kubernetes", loc, from)...)
		case Quartz:
			differences = append(differences, s.differences(s.nextOfQuartz, "Quartz", loc, from)...)
		case BullMQ:
			differences = append(differences, s.differences(s.nextOfCronParser, "BullMQ", loc, from)...)
		case Crontab:
			there := s
			there.fixed = t.fixed
			if t.fixed != s.fixed && len(s.differences(there.Next, "", loc, from)) > 0 {
				parts[i] = s.withFixed(t.fixed)
			}
		}
	}
	if text = strings.Join(parts, ";"); text != t.given {
		findings = append(findings, Finding{where, fmt.Sprintf("%s is written %s here, so that it means the same", t.given, text), Noted})
	}
	if len(differences) > 0 {
		findings = append(findings, Finding{where, strings.Join(differences, "; "), Changed})
	}
	return text, findings
}

// withFixed is the text of an expression with five fields that means times of a day, or an
// interval, at the same times on the wall.
func (s Spec) withFixed(fixed bool) string {
	words := strings.Fields(s.text)
	if !fixed {
		words[0] += "-" + words[0] // a range makes it an interval
		return strings.Join(words, " ")
	}
	for i, set := range []uint64{s.dates.minute, s.dates.hour} {
		var numbers []string
		for ; set != 0; set &= set - 1 {
			numbers = append(numbers, fmt.Sprint(bits.TrailingZeros64(set)))
		}
		words[i] = strings.Join(numbers, ",")
	}
	return strings.Join(words, " ")
}

// differences compares the times of s with those of another search at the clock changes of a zone.
func (s Spec) differences(peer search, who string, loc *time.Location, from time.Time) (out []string) {
	for t, end := from.In(loc), from.AddDate(yearsAhead, 0, 0); ; {
		_, change := t.ZoneBounds()
		switch {
		case change.IsZero() || change.After(end):
			return out
		case !change.After(t):
			t = t.Add(daySeconds * time.Second) // see stretch
			continue
		}
		t = change
		until := change.Add(mostApart)
		for _, next := range []search{s.Next, peer} { // a day that is lost may be much later
			if first, ok := next(change.Add(-time.Second), loc); ok && first.After(until) {
				until = first
			}
		}
		here, there := around(s.Next, change, until, loc), around(peer, change, until, loc)
		alone, others := without(here, there), without(there, here)
		on := "at the clock change of " + change.In(loc).Format(time.DateOnly)
		switch {
		case len(alone) > 0 && len(others) > 0:
			out = append(out, fmt.Sprintf("%s %s comes %s, and Punctual %s", on, who, clocks(others, loc), clocks(alone, loc)))
		case len(alone) > 0:
			out = append(out, fmt.Sprintf("%s Punctual comes %s, and %s does not", on, clocks(alone, loc), who))
		case len(others) > 0:
			out = append(out, fmt.Sprintf("%s %s comes %s, and Punctual does not", on, who, clocks(others, loc)))
		}
	}
}

// mostApart is more than a clock change moves a time that other times do not follow.
const mostApart = 26 * time.Hour

// around are the times from shortly before a clock change to an instant, in seconds.
func around(next search, change, until time.Time, loc *time.Location) (times []int64) {
	for t := change.Add(-mostApart); ; {
		at, ok := next(t, loc)
		if !ok || at.After(until) {
			return times
		}
		times, t = append(times, at.Unix()), at
	}
}

// without are the times that others, which are in order, does not have.
func without(times, others []int64) []int64 {
	return slices.DeleteFunc(slices.Clone(times), func(at int64) bool {
		_, found := slices.BinarySearch(others, at)
		return found
	})
}

// clocks says what the clock on the wall shows at some times.
func clocks(times []int64, loc *time.Location) string {
	var parts []string
	for _, at := range times {
		parts = append(parts, time.Unix(at, 0).In(loc).Format("Mon 15:04:05 -07:00"))
	}
	if n := len(parts); n > mostTimes/2 {
		return fmt.Sprintf("%d times from %s to %s", n, parts[0], parts[n-1])
	}
	return "at " + and(parts)
}

// onDay tells whether the date of a time on the wall matches.
func (s Spec) onDay(t time.Time) bool {
	return s.days(time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC))>>t.Day()&1 == 1
}

// nextOfQuartz is Next as Quartz 2.3.2 finds it. Of a time on the wall that clocks show twice it
// takes the second, also when it begins at the first, so that it does not come for an hour.
func (s Spec) nextOfQuartz(after time.Time, loc *time.Location) (time.Time, bool) {
	from := onWall(after.In(loc).Add(time.Second))
	for {
		next, ok := s.Next(from.Add(-time.Second), time.UTC)
		at := lenient(next, loc)
		if from = onWall(at); !ok || !from.After(next) {
			return at, ok && at.After(after) // also in a zone that changes its clocks twice in two days
		}
		if from.Hour() != next.Hour() { // it tries the next hour, also if that is one of another day
			from = onWall(lenient(from.Add(time.Duration(next.Hour()+1-from.Hour())*time.Hour), loc))
		}
	}
}

// lenient is the instant that Java's Calendar takes for a time on the wall: the second of two, and
// of a time that clocks are set forward over one as far behind the gap.
func lenient(wall time.Time, loc *time.Location) time.Time {
	_, before := wall.Add(-mostApart).In(loc).Zone()
	_, behind := wall.Add(mostApart).In(loc).Zone()
	if at := wall.Add(-time.Duration(behind) * time.Second).In(loc); onWall(at).Equal(wall) {
		return at
	}
	return wall.Add(-time.Duration(before) * time.Second).In(loc)
}

// onWall is the time that the clocks of t's zone show, as one of UTC.
func onWall(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
}

// nextOfRobfig is Next as robfig/cron 3.0.1 finds it, on which asynq's scheduler and the CronJobs
// of Kubernetes rest.
func (s Spec) nextOfRobfig(after time.Time, loc *time.Location) (time.Time, bool) {
	t := after.In(loc).Add(time.Second)
	begun := false // the units of t below the first that did not match are at their start
	begin := func(year int, month time.Month, day, hour int) {
		if !begun {
			t, begun = time.Date(year, month, day, hour, 0, 0, 0, loc), true
		}
	}
again:
	for last := t.Year() + 5; t.Year() <= last; {
		for s.dates.month>>t.Month()&1 == 0 {
			begin(t.Year(), t.Month(), 1, 0)
			if t = t.AddDate(0, 1, 0); t.Month() == time.January {
				continue again
			}
		}
		for !s.onDay(t) {
			begin(t.Year(), t.Month(), t.Day(), 0)
			t = t.AddDate(0, 0, 1)
			if h := t.Hour(); h > 12 {
				t = t.Add(time.Duration(24-h) * time.Hour)
			} else {
				t = t.Add(-time.Duration(h) * time.Hour)
			}
			if t.Day() == 1 {
				continue again
			}
		}
		for s.dates.hour>>t.Hour()&1 == 0 {
			begin(t.Year(), t.Month(), t.Day(), t.Hour())
			if t = t.Add(time.Hour); t.Hour() == 0 {
				continue again
			}
		}
		for s.dates.minute>>t.Minute()&1 == 0 {
			if !begun {
				t, begun = t.Truncate(time.Minute), true
			}
			if t = t.Add(time.Minute); t.Minute() == 0 {
				continue again
			}
		}
		for s.dates.second>>t.Second()&1 == 0 {
			begun = true
			if t = t.Add(time.Second); t.Second() == 0 {
				continue again
			}
		}
		return t, true
	}
	return time.Time{}, false
}

// cronParser is the state of a search of cron-parser 5.10.3, on which BullMQ's schedulers rest.
type cronParser struct {
	dates *dates
	t     int64 // in seconds since 1970
	loc   *time.Location
	// skipped is the first hour that clocks were set forward over at the last step, and landing the
	// hour that they were set to; again is the hour that began a second time. -1 stands for none.
	skipped, landing, again int
}

func (c *cronParser) offset(t int64) int64 {
	_, offset := time.Unix(t, 0).In(c.loc).Zone()
	return int64(offset)
}

// wall is what the clock shows, in seconds, and its hour.
func (c *cronParser) wall() (wall int64, hour int) {
	wall = c.t + c.offset(c.t)
	return wall, int(wall % daySeconds / hourSeconds)
}

// show has the clock show a time. Of a time that the clock shows twice, or never, it takes the one
// that luxon, whose dates cron-parser uses, finds from the offset that it has.
func (c *cronParser) show(wall int64) {
	before := c.offset(c.t)
	c.t = wall - before
	if first := c.offset(c.t); first != before {
		c.t = wall - first
		if second := c.offset(c.t); second != first {
			c.t = wall - min(first, second)
		}
	}
}

const hourSeconds, minuteSeconds = 60 * 60, 60

// step goes on to the start of the next hour, minute or second.
func (c *cronParser) step(length int64) {
	_, hour := c.wall()
	before := c.offset(c.t)
	c.t += length
	wall, _ := c.wall()
	c.show(wall - wall%length)
	wall, now := c.wall()
	switch hours := (now - hour + 24) % 24; {
	case bits.OnesCount64(c.dates.hour) == 24:
	case c.offset(c.t) > before && hours >= 2:
		c.skipped, c.landing = (hour+1)%24, now
	case hours == 0 && wall%hourSeconds == 0:
		c.again = now
	}
}

// nextDay goes on to the start of the next day.
func (c *cronParser) nextDay() {
	wall, _ := c.wall()
	c.show(wall + daySeconds)
	wall, _ = c.wall()
	c.show(wall - wall%daySeconds)
}

// rewind goes back to the first second that matches within the minute, or to the first minute and
// second within the hour.
func (c *cronParser) rewind(length int64) {
	wall, _ := c.wall()
	wall += int64(bits.TrailingZeros64(c.dates.second)) - wall%length
	if length == hourSeconds {
		wall += minuteSeconds * int64(bits.TrailingZeros64(c.dates.minute))
	}
	c.show(wall)
}

// forward goes on to the next value of a set behind the present one, in units of a length, or steps
// over to the next larger unit, where the set begins anew.
func (c *cronParser) forward(set uint64, value int, length int64) {
	above := set >> (value + 1) << (value + 1)
	if above == 0 {
		c.step(length * 60)
		c.rewind(length * 60)
		return
	}
	wall, _ := c.wall()
	c.show(wall + int64(bits.TrailingZeros64(above)-value)*length)
	if length == minuteSeconds {
		c.rewind(length)
	}
}

// nextOfCronParser is Next as cron-parser finds it when it begins anew behind each time, as BullMQ
// has it do.
func (s Spec) nextOfCronParser(after time.Time, loc *time.Location) (time.Time, bool) {
	c := &cronParser{dates: &s.dates, t: after.Unix(), loc: loc, skipped: -1, again: -1}
	const mostSteps = 10_000 - 1
	for range mostSteps {
		wall, _ := c.wall()
		w := time.Unix(wall, 0).UTC()
		switch minute, second := w.Minute(), w.Second(); {
		case s.dates.month>>w.Month()&1 == 0:
			c.show(w.AddDate(0, 1, 1-w.Day()).Unix())
			wall, _ = c.wall()
			c.show(wall - wall%daySeconds)
		case !s.onDay(w):
			c.nextDay()
		case !c.hourMatches():
		case s.dates.minute>>minute&1 == 0:
			c.forward(s.dates.minute, minute, minuteSeconds)
		case s.dates.second>>second&1 == 0:
			c.forward(s.dates.second, second, 1)
		case c.t == after.Unix():
			c.step(1)
		default:
			return time.Unix(c.t, 0).In(loc), true
		}
	}
	return time.Time{}, false
}

// hourMatches tells whether the hour matches, and otherwise goes on to one that may.
func (c *cronParser) hourMatches() bool {
	wall, hour := c.wall()
	matches := func(h int) bool { return c.dates.hour>>h&1 == 1 }
	if c.skipped >= 0 && c.landing == hour {
		for skipped := c.skipped; skipped != hour; skipped = (skipped + 1) % 24 {
			if matches(skipped) {
				return true
			}
		}
	}
	above := c.dates.hour >> (hour + 1) << (hour + 1)
	switch day := *c; {
	case c.again == hour:
		c.again = -1
		c.step(hourSeconds)
		return false
	case matches(hour):
		return true
	case above == 0:
		c.skipped = -1
		c.nextDay()
		return false
	default:
		c.skipped = -1
		next := bits.TrailingZeros64(above)
		day.show(wall - wall%daySeconds)
		start := day.offset(day.t)
		if day.nextDay(); day.offset(day.t-1) == start {
			c.show(wall + int64(next-hour)*hourSeconds)
		} else {
			for steps, now := next-hour, hour; steps > 0 && now < next; steps-- {
				c.step(hourSeconds)
				_, now = c.wall()
			}
		}
		c.rewind(hourSeconds)
		return false
	}
}
