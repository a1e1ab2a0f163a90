package cron

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Dialect is the way in which another program reads expressions.
type Dialect string

// The dialects, with the versions whose behaviour Translate knows.
const (
	Asynq       Dialect = "asynq"       // asynq 0.26, whose parser is robfig/cron 3.0.1
	BullMQ      Dialect = "bullmq"      // BullMQ 6.7, whose parser is cron-parser 5.10
	Crontab     Dialect = "crontab"     // Debian's cron 3.0pl1 and cronie 1.7
	EventBridge Dialect = "eventbridge" // cron(...) and rate(...) of Amazon EventBridge
	Kubernetes  Dialect = "kubernetes"  // a CronJob, whose parser is robfig/cron 3.0.1
	Quartz      Dialect = "quartz"      // Quartz 2.3
	Spring      Dialect = "spring"      // Spring 5.3 and newer
)

// A Finding is what an import says of a schedule that another program has.
type Finding struct {
	// Where names the schedule: "line 3" of a crontab, or queue and scheduler.
	Where, Text string
	Kind        FindingKind
}

// String returns the finding as a line.
func (f Finding) String() string { return f.Where + ": " + f.Text }

// FindingKind says what became of the schedule.
type FindingKind int

// Of a schedule that is Noted its user should know something. One that is Changed means something
// else here, as the Finding says. One that is Left was not taken over.
const (
	Noted FindingKind = iota
	Changed
	Left
)

// rules say where a dialect reads an expression in another way than Parse.
type rules struct {
	least, most int // how many fields an expression has
	// sunday is the number of Sunday, and weekEnd the number that N/2 in the weekdays reaches.
	sunday, weekEnd int
	// marks tells that one of the day fields has to be ?, which then leaves the day to the other.
	marks bool
	// anywhere tells that ? stands for * in each field.
	anywhere bool
	// wraps tells that a range may begin anew behind the last value: 22-2.
	wraps bool
	// both tells whether a day has to match both day fields.
	both func(dayOfMonth, dayOfWeek string) bool
	// names are nicknames that Parse does not have.
	names map[string]string
}

func always(string, string) bool { return true }

// robfig are the rules of robfig/cron's standard parser.
var robfig = &rules{least: 5, most: 5, weekEnd: 6, anywhere: true, both: func(m, w string) bool {
	return slices.ContainsFunc(strings.Split(m+","+w, ","), func(element string) bool {
		base, step, stepped := strings.Cut(element, "/")
		n, err := strconv.Atoi(step)
		return (base == "*" || base == "?") && (!stepped || err == nil && n == 1)
	})
}}

// dialects has the rules of all dialects. It does not change.
var dialects = map[Dialect]*rules{
	Asynq:      robfig,
	Kubernetes: robfig,
	BullMQ: {least: 1, most: 6, weekEnd: 7, anywhere: true, both: func(m, w string) bool {
		return m == "*" || m == "?" || w == "*" || w == "?"
	}, names: map[string]string{"@minutely": "* * * * *", "@secondly": "* * * * * *", "@weekdays": "0 0 * * 1-5", "@weekends": "0 0 * * 0,6"}},
	Crontab: {least: 5, most: 5, weekEnd: 7, both: func(m, w string) bool {
		return strings.HasPrefix(m, "*") || strings.HasPrefix(w, "*")
	}},
	EventBridge: {least: 6, most: 6, sunday: 1, weekEnd: 7, marks: true, both: always},
	Quartz:      {least: 6, most: 7, sunday: 1, weekEnd: 7, marks: true, wraps: true, both: always},
	Spring:      {least: 6, most: 6, weekEnd: 7, both: always},
}

// A Translation is an expression of a dialect as Parse reads it.
type Translation struct {
	// Text is the expression. It is the text that was given where both mean the same.
	Text    string
	given   string
	dialect Dialect
	// fixed tells that the other program takes it for times of a day. Only cron makes a difference.
	fixed bool
}

// Translate writes an expression of a dialect, or several with ";" between them, so that Parse
// reads the same times on the wall. What has no equivalent is an error that names the remedy; what
// the dialect itself would refuse may be one.
func Translate(text string, d Dialect) (Translation, error) {
	r := dialects[d]
	if r == nil {
		return Translation{}, fmt.Errorf("dialect %q is not known: use one of %v", d, slices.Sorted(maps.Keys(dialects)))
	}
	t := Translation{dialect: d, given: text}
	parts := strings.Split(text, ";")
	for i, part := range parts {
		p := parser{text: strings.TrimSpace(part)}
		words, err := r.words(&p, p.text, d)
		if err != nil {
			return t, err
		}
		if written := strings.Join(words, " "); written != strings.Join(strings.Fields(part), " ") {
			parts[i] = written
		}
		if s, err := Parse(parts[i]); err != nil {
			return t, err
		} else if t.fixed = s.fixed; d == Crontab && s.every == 0 && p.text[0] != '@' {
			hour := strings.Fields(p.text)[1]
			t.fixed = p.text[0] != '*' && hour[0] != '*'
		}
	}
	t.Text = strings.Join(parts, ";")
	return t, nil
}

// words are the fields of one expression, as Parse reads them.
func (r *rules) words(p *parser, text string, d Dialect) ([]string, error) {
	if d == EventBridge {
		if inner, ok := strings.CutPrefix(text, "rate("); ok {
			return rate(p, strings.TrimSuffix(inner, ")"))
		}
		text = strings.TrimSuffix(strings.TrimPrefix(text, "cron("), ")")
	}
	words := strings.Fields(text)
	switch {
	case len(words) == 0:
		return words, nil // Parse says what is wrong
	case strings.HasPrefix(words[0], "CRON_TZ="):
		rest, err := r.words(p, strings.Join(words[1:], " "), d)
		return append(words[:1], rest...), err
	case r.names[text] != "":
		return []string{r.names[text]}, nil
	case strings.HasPrefix(words[0], "@"):
		return words, nil
	case len(words) < r.least || len(words) > r.most:
		return nil, p.whole("it has %s, and %s wants %s", counted(len(words), "field"), d, span(r.least, r.most))
	}
	fields := []limit{seconds, minutes, hours, daysOfMonth, months, daysOfWeek, years}
	if missing := 5 - len(words); missing > 0 { // BullMQ puts * in front
		words = slices.Concat(slices.Repeat([]string{"*"}, missing), words)
	}
	if len(words) == 5 || d == EventBridge {
		fields = fields[1:]
	}
	days := slices.IndexFunc(fields, func(l limit) bool { return l.name == daysOfMonth.name })
	inMonth, inWeek := &words[days], &words[days+2]
	if marked := *inMonth == "?" || *inWeek == "?"; r.marks && (!marked || *inMonth == *inWeek) {
		return nil, p.whole("%s wants ? in one of the two day fields", d)
	}
	both := r.both(*inMonth, *inWeek)
	for i := range words {
		elements := strings.Split(words[i], ",")
		for j, element := range elements {
			written, err := r.element(p, strings.ToUpper(element), fields[i], d)
			if err != nil {
				return nil, err
			}
			if !strings.EqualFold(written, element) {
				elements[j] = written
			}
		}
		words[i] = strings.Join(elements, ",")
	}
	open := func(field string) bool { return field == "?" || strings.HasPrefix(field, "*") }
	switch {
	case both && !open(*inMonth) && !open(*inWeek):
		*inWeek = "+" + *inWeek
	case !both:
		*inMonth, *inWeek = explicit(*inMonth, "1-31"), explicit(*inWeek, "0-6")
	}
	if d == EventBridge && words[5] == "*" {
		return words[:5], nil
	} else if d == EventBridge {
		return append([]string{"0"}, words...), nil
	}
	return words, nil
}

// rate reads what stands in rate(...) of EventBridge.
func rate(p *parser, text string) ([]string, error) {
	number, unit, _ := strings.Cut(text, " ")
	n, err := strconv.Atoi(number)
	length := map[string]time.Duration{"minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour}[strings.TrimSuffix(unit, "s")]
	if err != nil || n < 1 || n > maxRate || length == 0 {
		return nil, p.whole("rate(%s) is not understood: write it like rate(5 minutes), in minutes, hours or days", text)
	}
	return []string{"@every", duration(time.Duration(n) * length)}, nil
}

// maxRate is far beyond what a rate is used for, and small enough for a time.Duration.
const maxRate = 100_000

// explicit writes the * of a day field as its range, so that it no longer leaves the day to the
// other field.
func explicit(field, all string) string {
	if rest, ok := strings.CutPrefix(field, "*"); ok {
		return all + rest
	}
	return field
}

// element writes one element of a field's list, in capitals, as Parse reads it.
func (r *rules) element(p *parser, text string, l limit, d Dialect) (string, error) {
	refuse := func(format string, args ...any) (string, error) {
		return "", p.whole("%s %q: %s", l.name, text, fmt.Sprintf(format, args...))
	}
	week := l.name == daysOfWeek.name
	if text == "?" && l.isDay {
		return text, nil
	}
	if r.anywhere && strings.HasPrefix(text, "?") {
		text = "*" + text[1:]
	}
	if l.name == daysOfMonth.name && strings.ContainsAny(text, "LW") {
		if n, err := strconv.Atoi(strings.TrimSuffix(text, "W")); err == nil && n > 28 {
			return refuse("where a month has no such day, %s and Punctual differ: write LW for the last working day", d)
		}
		return text, nil
	}
	if day, nth, special := strings.Cut(text, "#"); week && (special || strings.HasSuffix(text, "L")) {
		if !special {
			day, nth = strings.TrimSuffix(text, "L"), "L"
		}
		switch n, err := strconv.Atoi(day); {
		case day == "" && r.sunday == 1:
			return "SAT", nil
		case err == nil && r.sunday == 1 && n >= 1 && n <= 7:
			return daysOfWeek.names[n-1] + "#" + nth, nil
		}
		return text, nil
	}
	theirs, ok := r.item(p, text, l, d)
	if !ok || l.name == years.name {
		return text, nil // Parse says what is wrong with it
	}
	mine, err := p.item(word{text: text}, l)
	switch {
	case theirs.from > theirs.to:
		return refuse("cron refuses it or never runs it: %s", backwards(theirs, l))
	case d == Crontab && !theirs.star && strings.Contains(text, "/") && !strings.Contains(text, "-"):
		return refuse("cron refuses a step without a range: write %s/%d", span(theirs.from, l.open), theirs.step)
	case err == nil && mine.set(l, 0) == theirs.set(l, r.sunday):
		return text, nil
	}
	if i := (item{from: l.first, to: l.open, step: theirs.step}); theirs.star && i.step <= l.last && i.set(l, 0) == theirs.set(l, r.sunday) {
		return fmt.Sprintf("*/%d", i.step), nil
	}
	return listed(theirs.set(l, r.sunday), l), nil
}

// item reads an element as the dialect does. It returns false for what the dialect cannot read.
func (r *rules) item(p *parser, text string, l limit, d Dialect) (i item, ok bool) {
	week := l.name == daysOfWeek.name
	if week {
		l.first, l.last, l.open = r.sunday, max(r.weekEnd, 6+r.sunday), r.weekEnd
	}
	base, step, stepped := strings.Cut(text, "/")
	from, to, isRange := strings.Cut(base, "-")
	i = item{from: l.first, to: l.open, step: 1, star: base == "*" || base == "" && d == Quartz}
	var err error
	if !i.star {
		if i.from, err = p.value(word{text: from}, l); err != nil {
			return i, false
		}
		if isRange {
			if i.to, err = p.value(word{text: to}, l); err != nil {
				return i, false
			}
		} else if !stepped {
			i.to = i.from
		}
	}
	if d == Spring && week { // a week begins with Monday, and Sunday is 7 unless a range begins with it
		switch {
		case i.star:
			i.from = 1
		case isRange && i.from == 7:
			i.from = 0
		case !isRange && from == "SUN":
			i.from, i.to = 7, 7
		}
		if to == "SUN" {
			i.to = 7
		}
	}
	if stepped {
		if i.step, err = strconv.Atoi(step); err != nil || i.step < 1 {
			return i, false
		}
		i.step = min(i.step, LastYear) // so that no sum overflows
	}
	if i.from > i.to && r.wraps {
		i.to += l.last - l.first + 1
	}
	return i, i.from <= i.to || d == Crontab
}

// set are the values of an item as bits. Of weekdays, whose Sunday has the given number in the
// item, they are 0 to 6.
func (i item) set(l limit, sunday int) (bits uint64) {
	if l.name != daysOfWeek.name {
		sunday = 0
	}
	for v := i.from; v <= i.to; v += i.step {
		bits |= 1 << (l.first + (v-sunday-l.first)%(l.open-l.first+1))
	}
	return bits
}

// listed writes the values of a set, weekdays by their names.
func listed(set uint64, l limit) string {
	name := func(v int) string {
		if l.name == daysOfWeek.name {
			return l.names[v]
		}
		return strconv.Itoa(v)
	}
	var parts []string
	for v := l.first; v <= l.open; v++ {
		end := v
		for end < l.open && set>>(end+1)&1 == 1 {
			end++
		}
		switch {
		case set>>v&1 == 0:
		case end > v+1:
			parts = append(parts, name(v)+"-"+name(end))
			v = end
		default:
			parts = append(parts, name(v))
		}
	}
	return strings.Join(parts, ",")
}
