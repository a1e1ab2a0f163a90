package cron

import (
	"fmt"
	"strings"
	"time"
)

// mostTimes is how many times of a day are listed one by one.
const mostTimes = 6

// Words says in English when the schedule comes: "at 09:00 on Monday to Friday".
func (s Spec) Words() string { return s.WordsLater(0) }

// WordsLater is Words for something that comes later than the times of the expression by a fixed
// delay: "at 09:02:11 on Monday to Friday". Where that cannot be said, because the delay leads into
// the next day or the times are many, the delay stands after the words: "every hour, 2m11s later".
func (s Spec) WordsLater(delay time.Duration) string {
	if _, few := s.fewTimes(delay); delay > 0 && !few {
		return s.words(0) + ", " + duration(delay) + " later"
	}
	return s.words(delay)
}

func (s Spec) words(delay time.Duration) string {
	switch {
	case s.every > 0:
		return "every " + duration(time.Duration(s.every)*time.Second) + ", counted from 1970"
	case s.dates.years == nil:
		return "never"
	}
	parts := []string{s.timeWords(delay)}
	days := s.dayWords()
	switch {
	case days != "":
		parts = append(parts, days)
	case strings.HasPrefix(parts[0], "at ") && !strings.Contains(parts[0], "every"):
		parts = append(parts, "every day")
	}
	if !s.month.all() {
		parts = append(parts, "in "+s.month.list(func(m int) string { return time.Month(m).String() }, "month"))
	}
	if !s.year.all() {
		parts = append(parts, "in "+s.year.list(func(y int) string { return fmt.Sprint(y) }, "year"))
	}
	return strings.Join(parts, " ")
}

// timeWords says which times of a day match.
func (s Spec) timeWords(delay time.Duration) string {
	if times, few := s.fewTimes(delay); few {
		return "at " + and(times)
	}
	number := func(n int) string { return fmt.Sprint(n) }
	onTheMinute, onTheHour := s.dates.second == 1, s.dates.minute == 1
	every := ""
	switch {
	case s.second.all() && s.minute.all():
		every = "every second"
	case onTheMinute && s.minute.all():
		every = "every minute"
	case onTheMinute && onTheHour && s.hour.all():
		return "every hour"
	case onTheMinute && onTheHour:
		if n, ok := s.hour.evenly(24); ok {
			return fmt.Sprintf("every %d hours", n)
		}
		if r, ok := s.hour.oneRange(); ok && r.step == 1 {
			return fmt.Sprintf("every hour from %02d:00 to %02d:00", r.from, r.to)
		}
	default:
		if n, ok := s.second.evenly(60); ok && s.minute.all() {
			every = fmt.Sprintf("every %d seconds", n)
		}
		if n, ok := s.minute.evenly(60); ok && onTheMinute {
			every = fmt.Sprintf("every %d minutes", n)
		}
	}
	if every == "" {
		var parts []string
		switch {
		case s.second.all():
			parts = append(parts, "every second")
		case !onTheMinute:
			parts = append(parts, "at second "+s.second.list(number, "second"))
		}
		switch {
		case s.minute.all():
			parts = append(parts, "every minute")
		default:
			parts = append(parts, strings.Replace("at minute "+s.minute.list(number, "minute"), "at minute every", "at every", 1))
		}
		every = strings.Join(parts, ", ")
	}
	if s.hour.all() {
		if strings.HasPrefix(every, "at ") {
			return every + " of every hour"
		}
		return every
	}
	if r, ok := s.hour.oneRange(); ok && r.step == 1 {
		return fmt.Sprintf("%s from %02d:00 to %02d:59", every, r.from, r.to)
	}
	return every + " of hour " + s.hour.list(number, "hour")
}

// fewTimes lists the times of a day, each later by delay, if there are few, each is at one minute
// of an hour that is named, and none is in the next day.
func (s Spec) fewTimes(delay time.Duration) (times []string, few bool) {
	if s.every > 0 || s.dates.years == nil || s.hour.all() || s.minute.all() {
		return nil, false
	}
	layout := "15:04"
	switch {
	case delay%time.Second != 0:
		layout = "15:04:05.000"
	case s.dates.second != 1 || delay%time.Minute != 0:
		layout = time.TimeOnly
	}
	for t, ok := s.timeOfDay(0); ok; t, ok = s.timeOfDay(t + 1) {
		at := time.Unix(int64(t), 0).Add(delay)
		if len(times) == mostTimes || at.Unix() >= daySeconds {
			return nil, false
		}
		times = append(times, at.UTC().Format(layout))
		if t+1 == daySeconds {
			break
		}
	}
	return times, true
}

// dayWords says which days match, "" for all.
func (s Spec) dayWords() string {
	inMonth, inWeek := s.dayOfMonth.days(), s.dayOfWeek.weekdays()
	switch {
	case inMonth == "" || inWeek == "":
		return inMonth + inWeek
	case s.both:
		return inMonth + ", only if it is " + strings.TrimPrefix(s.dayOfWeek.weekdayNames("a "), "on ")
	}
	return inMonth + " and " + s.dayOfWeek.either()
}

// either says weekdays after days of the month that match, too: "on every Monday".
func (f field) either() string {
	for _, i := range f.items {
		if i.kind != values || i.from != i.to {
			return f.weekdays()
		}
	}
	return "on every " + strings.TrimPrefix(f.weekdayNames(""), "on ")
}

// days says a day of the month field, "" when it is open to all.
func (f field) days() string {
	if f.all() {
		return ""
	}
	var parts []string
	for _, i := range f.items {
		switch {
		case i.kind == lastDay && i.from == 0:
			parts = append(parts, "the last day of the month")
		case i.kind == lastDay:
			parts = append(parts, fmt.Sprintf("the day %s before the last of the month", counted(i.from, "day")))
		case i.kind == lastWorking:
			parts = append(parts, "the last Monday-to-Friday day of the month")
		case i.kind == nearest:
			parts = append(parts, fmt.Sprintf("the Monday-to-Friday day nearest to the %s", ordinal(i.from)))
		case i.step > 1:
			parts = append(parts, fmt.Sprintf("every %s day from the %s to the %s", ordinal(i.step), ordinal(i.from), ordinal(i.to)))
		case i.from != i.to:
			parts = append(parts, fmt.Sprintf("the %s to the %s", ordinal(i.from), ordinal(i.to)))
		default:
			parts = append(parts, "the "+ordinal(i.from))
		}
	}
	return "on " + and(parts)
}

// weekdays says a day of the week field, "" when it is open to all.
func (f field) weekdays() string {
	if f.all() {
		return ""
	}
	return f.weekdayNames("")
}

// weekdayNames lists the weekdays, each single one with the article before it.
func (f field) weekdayNames(article string) string {
	name := func(d int) string { return time.Weekday(d % 7).String() }
	var parts []string
	for _, i := range f.items {
		switch {
		case i.kind == lastWeekday:
			parts = append(parts, "the last "+name(i.from)+" of the month")
		case i.kind == nthWeekday:
			parts = append(parts, fmt.Sprintf("the %s %s of the month", ordinal(i.nth), name(i.from)))
		case i.step > 1:
			for d := i.from; d <= i.to; d += i.step {
				parts = append(parts, article+name(d))
			}
		case i.from != i.to:
			parts = append(parts, name(i.from)+" to "+name(i.to))
		default:
			parts = append(parts, article+name(i.from))
		}
	}
	joined := and(parts)
	if article != "" {
		joined = or(parts)
	}
	return "on " + joined
}

// list says the values of a field.
func (f field) list(name func(int) string, unit string) string {
	var parts []string
	for _, i := range f.items {
		switch {
		case i.step > 1:
			parts = append(parts, fmt.Sprintf("every %s %s from %s to %s", ordinal(i.step), unit, name(i.from), name(i.to)))
		case i.from != i.to:
			parts = append(parts, name(i.from)+" to "+name(i.to))
		default:
			parts = append(parts, name(i.from))
		}
	}
	return and(parts)
}

// evenly is the step of a field that is */N where N divides the whole.
func (f field) evenly(whole int) (int, bool) {
	i, ok := f.oneRange()
	return i.step, ok && i.from == 0 && i.to == whole-1 && i.step > 1 && whole%i.step == 0
}

// oneRange is the only element of a field, if that is a range.
func (f field) oneRange() (item, bool) {
	return f.items[0], len(f.items) == 1 && f.items[0].from < f.items[0].to
}

// Warnings are sentences about what the expression means and its author may not expect.
func (s Spec) Warnings() []string {
	if s.every > 0 || s.dates.years == nil {
		return nil
	}
	var out []string
	if inMonth, inWeek := s.dayOfMonth.days(), s.dayOfWeek.weekdays(); !s.both && inMonth != "" && inWeek != "" {
		out = append(out, fmt.Sprintf("%s and %s; +%s for %s only when it is %s", inMonth, s.dayOfWeek.either(), s.dayOfWeekText(),
			strings.TrimPrefix(inMonth, "on "), strings.TrimPrefix(s.dayOfWeek.weekdayNames("a "), "on ")))
		if i := s.dayOfWeek.items[0]; len(s.dayOfWeek.items) == 1 && i.kind == values && i.from == i.to {
			if d := s.dayOfMonth.items[0]; len(s.dayOfMonth.items) == 1 && d.kind == values && d.from == d.to {
				name := time.Weekday(i.from % 7).String()
				out[0] = fmt.Sprintf("on the %s and on every %s; +%s for %ss that are the %s", ordinal(d.from), name, s.dayOfWeekText(), name, ordinal(d.from))
			}
		}
	}
	for _, f := range []struct {
		field
		unit, whole string
		size        int
	}{{s.second, "second", "minute", 60}, {s.minute, "minute", "hour", 60}, {s.hour, "hour", "day", 24}} {
		for _, i := range f.items {
			if i.star && f.size%i.step != 0 {
				out = append(out, fmt.Sprintf("*/%d in the field %s starts anew with each %s, so the last step is shorter; @every counts on", i.step, f.unit, f.whole))
			}
		}
	}
	if q, err := Translate(s.text, Quartz); err == nil && q.Text != s.text {
		if there, err := Parse(q.Text); err == nil && (there.dates.dayOfWeek != s.dates.dayOfWeek || there.dates.nth != s.dates.nth) {
			out = append(out, fmt.Sprintf("%s is %s here, where Sunday is 0; in Quartz and EventBridge Sunday is 1, and it is %s: names of days, or --dialect quartz", s.dayOfWeekText(), s.dayOfWeek.weekdays(), there.dayOfWeek.weekdays()))
		}
	}
	if rare := s.missingDays(); rare != "" {
		out = append(out, rare)
	}
	return out
}

// dayOfWeekText is the day of week as it stands in the text.
func (s Spec) dayOfWeekText() string {
	words := wordsOf(s.text)
	if s.zone != "" {
		words = words[1:]
	}
	switch len(words) {
	case 5:
		return words[4].text
	default:
		return words[5].text
	}
}

// missingDays warns of a single day that some of the months do not have.
func (s Spec) missingDays() string {
	if !s.dayOfWeek.open || len(s.dayOfMonth.items) != 1 {
		return ""
	}
	i := s.dayOfMonth.items[0]
	if i.kind != values || i.from != i.to || i.from < 29 {
		return ""
	}
	var without []string
	for m, n := range [...]int{31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31} {
		if s.dates.month>>(m+1)&1 == 1 && n < i.from {
			without = append(without, time.Month(m+1).String())
		}
	}
	switch {
	case len(without) == 0:
		return ""
	case i.from == 29:
		return "not in February of most years, which has no 29th; L for the last day of a month"
	}
	return fmt.Sprintf("not in %s, which %s no %s; L for the last day of a month", and(without), has(len(without)), ordinal(i.from))
}

func has(n int) string {
	if n == 1 {
		return "has"
	}
	return "have"
}

// duration says a duration without the minutes and seconds at its end that are zero: 1h30m.
func duration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// ordinal is 1st, 2nd, 3rd.
func ordinal(n int) string {
	suffix := "th"
	if n/10%10 != 1 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprint(n) + suffix
}

func and(parts []string) string { return join(parts, " and ") }

func or(parts []string) string { return join(parts, " or ") }

// join lists parts with commas and a word before the last.
func join(parts []string, last string) string {
	if len(parts) < 2 {
		return strings.Join(parts, "")
	}
	n := len(parts) - 1
	return strings.Join(parts[:n], ", ") + last + parts[n]
}
