package cron

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// limit says what a field may contain.
type limit struct {
	name        string
	first, last int
	// open is the last value that * and a step without an end reach. It differs from last for the
	// day of the week, where 7 is Sunday once more.
	open  int
	names []string // the names of values, from first on
	isDay bool
}

var (
	seconds     = limit{name: "second", last: 59, open: 59}
	minutes     = limit{name: "minute", last: 59, open: 59}
	hours       = limit{name: "hour", last: 23, open: 23}
	daysOfMonth = limit{name: "day of month", first: 1, last: 31, open: 31, isDay: true}
	months      = limit{name: "month", first: 1, last: 12, open: 12, names: []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}}
	daysOfWeek  = limit{name: "day of week", last: 7, open: 6, names: []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}, isDay: true}
	years       = limit{name: "year", first: FirstYear, last: LastYear, open: LastYear}
)

// field is one field that was read.
type field struct {
	// open fields begin with * or are ?. If one of the two day fields is open, or the day of week
	// begins with +, a day has to match both of them, otherwise one of them.
	open  bool
	items []item
}

// item is one element of a field's list.
type item struct {
	kind itemKind
	// from, to and step are the values of a range; a number has the same from and to, and step 1.
	from, to, step int
	star, ranged   bool // written with a * or ?, or with - or /
	// nth is which one of its month a weekday is, from 1.
	nth int
}

type itemKind int

const (
	values      itemKind = iota
	lastDay              // L, L-3: from days before the last day of the month
	nearest              // 15W: the working day nearest to from
	lastWorking          // LW
	nthWeekday           // FRI#2
	lastWeekday          // FRI#L, 5L
)

// isNumbers tells whether the field lists numbers only.
func (f field) isNumbers() bool {
	for _, i := range f.items {
		if i.star || i.ranged {
			return false
		}
	}
	return true
}

// all tells whether every value matches because the field has a * or is a ?.
func (f field) all() bool {
	for _, i := range f.items {
		if i.star && i.step == 1 {
			return true
		}
	}
	return false
}

// word is a part of the text between blanks.
type word struct {
	text string
	at   int // the index of its first byte
}

func wordsOf(text string) (words []word) {
	start := -1
	for i, r := range text + " " {
		switch blank := unicode.IsSpace(r); {
		case blank && start >= 0:
			words, start = append(words, word{text[start:i], start}), -1
		case !blank && start < 0:
			start = i
		}
	}
	return words
}

// parser reads the fields of one text; its methods make the errors that name the place.
type parser struct{ text string }

func (p *parser) whole(format string, args ...any) *Error {
	return &Error{Spec: p.text, Problem: fmt.Sprintf(format, args...)}
}

func (p *parser) wrong(fieldName string, at int, format string, args ...any) *Error {
	return &Error{Spec: p.text, Field: fieldName, Character: len([]rune(p.text[:min(at, len(p.text))])) + 1, Problem: fmt.Sprintf(format, args...)}
}

// field reads the list of a field.
func (p *parser) field(w word, l limit) (field, error) {
	f := field{open: strings.HasPrefix(w.text, "*")}
	if w.text == "?" {
		if !l.isDay {
			return f, p.wrong(l.name, w.at, "? is for the two day fields: write *")
		}
		return field{open: true, items: []item{{from: l.first, to: l.open, step: 1, star: true}}}, nil
	}
	elements := strings.Split(w.text, ",")
	at := w.at
	for _, element := range elements {
		i, err := p.item(word{element, at}, l)
		if err != nil {
			return f, err
		}
		if len(elements) > 1 && (i.kind == nearest || i.kind == lastWorking) {
			return f, p.wrong(l.name, at, "%s cannot stand in a list: make a schedule of its own for it", element)
		}
		f.items = append(f.items, i)
		at += len(element) + 1
	}
	return f, nil
}

// item reads one element of a list.
func (p *parser) item(w word, l limit) (item, error) {
	upper := strings.ToUpper(w.text)
	switch {
	case w.text == "":
		return item{}, p.wrong(l.name, w.at, "an element is missing: write %s", l.forms())
	case upper == "H" || strings.HasPrefix(upper, "H/") || strings.HasPrefix(upper, "H("):
		return item{}, p.wrong(l.name, w.at, "H is not taken: write %s; the schedule's spread keeps schedules apart", l.forms())
	case strings.HasPrefix(upper, "+"):
		return item{}, p.wrong(l.name, w.at, "+ stands only at the start of the day of week: write it like +MON")
	case l.name == daysOfMonth.name && strings.ContainsAny(upper, "LW"):
		return p.monthDay(word{upper, w.at}, l)
	case l.name == daysOfWeek.name && (strings.Contains(upper, "#") || strings.HasSuffix(upper, "L")):
		return p.weekday(word{upper, w.at}, l)
	}
	base, step, stepped := strings.Cut(upper, "/")
	i := item{from: l.first, to: l.open, step: 1, ranged: stepped}
	from, to, isRange := strings.Cut(base, "-")
	var err error
	switch {
	case base == "":
		return item{}, p.wrong(l.name, w.at, "the step %q has no base: write *%s", w.text, w.text)
	case base == "*":
		i.star = true
	case strings.Contains(base, "?"):
		return item{}, p.wrong(l.name, w.at, "? stands alone and only in the two day fields: write *")
	case isRange:
		i.ranged = true
		if i.from, err = p.value(word{from, w.at}, l); err != nil {
			return i, err
		}
		if i.to, err = p.value(word{to, w.at + len(from) + 1}, l); err != nil {
			return i, err
		}
		if l.name == daysOfWeek.name && to == "SUN" && from != "SUN" {
			i.to = 7 // FRI-SUN ends with a week's last day; no other reading has a meaning
		}
	default:
		if i.from, err = p.value(word{base, w.at}, l); err != nil {
			return i, err
		}
		if !stepped {
			i.to = i.from
		}
	}
	if stepped {
		n, err := strconv.Atoi(step)
		if err != nil || n < 1 || n > l.last || strings.HasPrefix(step, "+") {
			return i, p.wrong(l.name, w.at+len(base)+1, "step %q: use 1 to %d", step, l.last)
		}
		i.step = n
	}
	if i.from > i.to && isRange {
		return i, p.wrong(l.name, w.at, "the range %s runs backwards: %s", base, backwards(i, l))
	}
	return i, nil
}

// backwards says how to write a range whose first value is greater than its last: as two ranges,
// such as 22-23,0-2 for 22-2 of the hours, and for years the other way round.
func backwards(i item, l limit) string {
	if l.name == years.name {
		return fmt.Sprintf("write %d-%d", i.to, i.from)
	}
	if i.from > l.open { // 7 for Sunday
		return "write " + span(l.first, i.to)
	}
	return "write " + span(i.from, l.open) + "," + span(l.first, i.to)
}

// span writes a range, or its only value.
func span(first, last int) string {
	if first == last {
		return strconv.Itoa(first)
	}
	return fmt.Sprintf("%d-%d", first, last)
}

// value reads a number or a name.
func (p *parser) value(w word, l limit) (int, error) {
	for i, name := range l.names {
		if w.text == name {
			return l.first + i, nil
		}
	}
	n, err := strconv.Atoi(w.text)
	switch digits := strings.Trim(w.text, "0123456789") == ""; {
	case !digits || w.text == "":
		return 0, p.wrong(l.name, w.at, "%q is not understood: write %s", w.text, l.forms())
	case err != nil || n < l.first || n > l.last:
		return 0, p.wrong(l.name, w.at, "%s is out of range: use %d to %d", w.text, l.first, l.last)
	}
	return n, nil
}

// forms says what a field takes.
func (l limit) forms() string {
	if l.names != nil {
		return fmt.Sprintf("%d to %d or %s to %s", l.first, l.last, l.names[0], l.names[len(l.names)-1])
	}
	return fmt.Sprintf("%d to %d", l.first, l.last)
}

// monthDay reads L, L-3, LW and 15W.
func (p *parser) monthDay(w word, l limit) (item, error) {
	switch {
	case w.text == "L":
		return item{kind: lastDay}, nil
	case w.text == "LW" || w.text == "WL":
		return item{kind: lastWorking}, nil
	case strings.HasPrefix(w.text, "L-"):
		n, err := strconv.Atoi(w.text[2:])
		if err != nil || n < 1 || n > 30 || w.text[2] == '+' {
			return item{}, p.wrong(l.name, w.at, "%s is not understood: use L-1 to L-30 for days before the last one", w.text)
		}
		return item{kind: lastDay, from: n}, nil
	case strings.HasSuffix(w.text, "W") && !strings.ContainsAny(w.text, "-/*L"):
		n, err := p.value(word{strings.TrimSuffix(w.text, "W"), w.at}, l)
		return item{kind: nearest, from: n}, err
	}
	return item{}, p.wrong(l.name, w.at, "%s is not understood: use L for the last day, L-3, LW for the last working day, or 15W for the one nearest to a day", w.text)
}

// weekday reads FRI#2, FRI#L and 5L.
func (p *parser) weekday(w word, l limit) (item, error) {
	day, nth, hash := strings.Cut(w.text, "#")
	if !hash {
		day, nth = strings.TrimSuffix(w.text, "L"), "L"
	}
	if day == "" {
		return item{}, p.wrong(l.name, w.at, "%s names no weekday: write it like FRI#L or 5L", w.text)
	}
	n, err := p.value(word{day, w.at}, l)
	if err != nil {
		return item{}, err
	}
	n %= 7
	if nth == "L" {
		return item{kind: lastWeekday, from: n}, nil
	}
	if len(nth) != 1 || nth[0] < '1' || nth[0] > '5' {
		return item{}, p.wrong(l.name, w.at+len(day)+1, "%q is not understood: use #1 to #5, or #L for the last one of the month", nth)
	}
	return item{kind: nthWeekday, from: n, nth: int(nth[0] - '0')}, nil
}
