package settings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/event"
	"github.com/punctualmq/punctual/internal/notation"
	"github.com/punctualmq/punctual/limits"
)

// Kind is the type of the value of a setting.
type Kind uint8

const (
	// Duration is a length of time: "2h30m" for people and in JSON, "2h30m0s" in stores.
	Duration Kind = iota + 1
	// Count is a whole number.
	Count
	// Truth is true or false.
	Truth
	// Backoff is a list of delays or their exponential growth, as package notation writes it; in
	// stores an object.
	Backoff
	// List is a list of unlike names: "billing,mail" for people, or "none"; an array of strings in
	// JSON and in stores.
	List
	// Events are names of events: "acked,dead".
	Events
	// Rate is a limits.Rate: "10/1s" or "none".
	Rate
)

// String is the word for such a value in a command's help.
func (k Kind) String() string {
	return [...]string{"", "duration", "number", "true or false", "delays", "names", "events", "rate"}[k]
}

// What a JSON value is, in words.
const (
	jsonString = "a string"
	jsonNumber = "a number"
	jsonTruth  = "true or false"
	jsonArray  = "an array"
)

func (k Kind) json() string {
	return [...]string{"", jsonString, jsonNumber, jsonTruth, jsonString, jsonArray, jsonString, jsonString}[k]
}

func jsonKind(value []byte) string {
	switch {
	case len(value) == 0:
		return "nothing"
	case value[0] == '"':
		return jsonString
	case value[0] == '{':
		return "an object"
	case value[0] == '[':
		return jsonArray
	case value[0] == 't', value[0] == 'f':
		return jsonTruth
	case value[0] == 'n':
		return "null"
	}
	return jsonNumber
}

// kind is what a row does with its value, whatever the type of it is. Setting has the same as
// methods that name the setting in errors.
type kind interface {
	Kind() Kind
	// Range is the least and the most of a setting that has an order, in its unit, which is the
	// nanosecond for durations. The most is 0 where there is none.
	Range() (least, most int64)

	text(*punctual.Settings) string
	parse(*punctual.SettingsPatch, string) error
	stored(*punctual.Settings) ([]byte, error)
	restore(*punctual.SettingsPatch, []byte) error
	given(*punctual.SettingsPatch) bool
	apply(*punctual.Settings, *punctual.SettingsPatch)
	take(*punctual.SettingsPatch, *punctual.Settings)
	isZero(*punctual.Settings) bool
	problem(s *punctual.Settings, zero string) string
	allowed(zero string) string
}

// field is a setting whose value is a T: where it stands, in what form it is written, and its least
// and most value where T has an order.
type field[T any] struct {
	of          func(*punctual.Settings) *T
	in          func(*punctual.SettingsPatch) **T
	form        *form[T]
	least, most T
}

// form is how values of a type are written, read and checked.
type form[T any] struct {
	kind    Kind
	text    func(T) string
	parse   func(string) (T, error)
	stored  func(T) ([]byte, error)
	restore func([]byte) (T, error)
	// allowed says which values there are between least and most, zero what 0 means. problem is
	// empty for one of them, and otherwise the rest of a sentence that begins with the name of the
	// setting.
	allowed func(least, most T, zero string) string
	problem func(v, least, most T, zero string) string
	number  func(T) int64 // nil for a type without order
}

func (f *field[T]) Kind() Kind { return f.form.kind }

func (f *field[T]) Range() (least, most int64) {
	if f.form.number == nil {
		return 0, 0
	}
	return f.form.number(f.least), f.form.number(f.most)
}

func (f *field[T]) text(s *punctual.Settings) string { return f.form.text(*f.of(s)) }

func (f *field[T]) parse(p *punctual.SettingsPatch, text string) error {
	v, err := f.form.parse(text)
	return f.set(p, v, err)
}

func (f *field[T]) stored(s *punctual.Settings) ([]byte, error) { return f.form.stored(*f.of(s)) }

func (f *field[T]) restore(p *punctual.SettingsPatch, value []byte) error {
	v, err := f.form.restore(value)
	return f.set(p, v, err)
}

// set puts what was read into p unless reading failed.
func (f *field[T]) set(p *punctual.SettingsPatch, v T, err error) error {
	if err == nil {
		*f.in(p) = &v
	}
	return err
}

func (f *field[T]) given(p *punctual.SettingsPatch) bool { return *f.in(p) != nil }

func (f *field[T]) apply(s *punctual.Settings, p *punctual.SettingsPatch) {
	if v := *f.in(p); v != nil {
		*f.of(s) = *v
	}
}

func (f *field[T]) take(p *punctual.SettingsPatch, s *punctual.Settings) {
	v := *f.of(s)
	*f.in(p) = &v
}

func (f *field[T]) isZero(s *punctual.Settings) bool {
	return f.form.number != nil && f.form.number(*f.of(s)) == 0
}

func (f *field[T]) problem(s *punctual.Settings, zero string) string {
	return f.form.problem(*f.of(s), f.least, f.most, zero)
}

func (f *field[T]) allowed(zero string) string { return f.form.allowed(f.least, f.most, zero) }

// ordered is the form of a type with an order: it is written by text, and lies between two bounds,
// of which the upper is 0 where there is none.
func ordered[T ~int | ~int64](k Kind, text func(T) string, f form[T]) *form[T] {
	f.kind, f.text = k, text
	f.number = func(v T) int64 { return int64(v) }
	f.allowed = func(least, most T, zero string) string {
		from := text(least)
		if zero != "" && least == 0 {
			from = fmt.Sprintf("0 (%s)", zero)
		}
		if most == 0 {
			return from + " or more"
		}
		return from + " to " + text(most)
	}
	f.problem = func(v, least, most T, zero string) string {
		if v >= least && (most == 0 || v <= most) {
			return ""
		}
		return fmt.Sprintf("%s: use %s", text(v), f.allowed(least, most, zero))
	}
	return &f
}

var durations = ordered(Duration, notation.FormatDuration, form[time.Duration]{
	parse:   notation.ParseDuration,
	stored:  func(d time.Duration) ([]byte, error) { return []byte(`"` + d.String() + `"`), nil },
	restore: restoreDuration,
})

var counts = ordered(Count, strconv.Itoa, form[int]{
	parse:   strconv.Atoi,
	stored:  func(n int) ([]byte, error) { return strconv.AppendInt(nil, int64(n), 10), nil },
	restore: restoreJSON[int],
})

var truths = &form[bool]{
	kind: Truth,
	text: strconv.FormatBool,
	parse: func(text string) (bool, error) {
		if text != "true" && text != "false" {
			return false, invalidf("%q: use true or false", text)
		}
		return text == "true", nil
	},
	stored:  func(b bool) ([]byte, error) { return strconv.AppendBool(nil, b), nil },
	restore: restoreJSON[bool],
	allowed: func(bool, bool, string) string { return "true or false" },
	problem: func(bool, bool, bool, string) string { return "" },
}

var backoffs = &form[punctual.Backoff]{
	kind:    Backoff,
	text:    notation.FormatBackoff,
	parse:   notation.ParseBackoff,
	stored:  storeBackoff,
	restore: restoreBackoff,
	allowed: func(_, _ punctual.Backoff, _ string) string {
		return fmt.Sprintf("delays like 2m,10m,1h or exp:1s..1h,jitter=0.2, each 0 to %s", notation.FormatDuration(maxDelay))
	},
	problem: func(b, _, _ punctual.Backoff, _ string) string { return problemOf(b) },
}

// none is how people write an empty list of names.
const none = "none"

var names = &form[[]string]{
	kind: List,
	text: func(list []string) string {
		if len(list) == 0 {
			return none
		}
		return strings.Join(list, ",")
	},
	parse: func(text string) ([]string, error) {
		if text == none {
			return nil, nil
		}
		list := strings.Split(text, ",")
		for i := range list {
			list[i] = strings.TrimSpace(list[i])
		}
		return list, nil
	},
	stored: func(list []string) ([]byte, error) {
		if list == nil {
			list = []string{}
		}
		return json.Marshal(list)
	},
	restore: func(value []byte) ([]string, error) {
		list, err := restoreJSON[[]string](value)
		if len(list) == 0 {
			list = nil
		}
		return list, err
	},
	allowed: func(_, _ []string, _ string) string { return allowedNames() },
	problem: func(list, _, _ []string, _ string) string { return problemOfNames(list) },
}

func allowedNames() string {
	return fmt.Sprintf("none, or 1 to %d names of 1 to %d bytes of A-Z a-z 0-9 . _ -", limits.MaxGroups, limits.MaxGroupBytes)
}

// problemOfNames says what is wrong with a list of names, and returns "" when nothing is.
func problemOfNames(list []string) string {
	allowed := allowedNames()
	if len(list) > limits.MaxGroups {
		return fmt.Sprintf("has %d names: use %s", len(list), allowed)
	}
	for i, name := range list {
		switch {
		case name == "", len(name) > limits.MaxGroupBytes, strings.Trim(name, nameBytes) != "":
			return fmt.Sprintf("%q: use %s", name, allowed)
		case name == none, name == "all":
			return fmt.Sprintf("%q: this word stands for %[1]s of them: use another name", name)
		case slices.Contains(list[:i], name):
			return fmt.Sprintf("%q is named twice: name it once", name)
		}
	}
	return ""
}

// nameBytes are the bytes of which a name consists.
const nameBytes = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

var events = &form[punctual.Events]{
	kind:   Events,
	text:   punctual.Events.String,
	parse:  punctual.ParseEvents,
	stored: func(e punctual.Events) ([]byte, error) { return []byte(`"` + e.String() + `"`), nil },
	restore: func(value []byte) (punctual.Events, error) {
		text, err := restoreJSON[string](value)
		if err != nil {
			return 0, err
		}
		e, err := punctual.ParseEvents(text)
		if err != nil {
			return 0, fmt.Errorf("%w: %w", punctual.ErrUnsupported, err) // of a newer program, which knows more events
		}
		return e, nil
	},
	allowed: func(_, _ punctual.Events, _ string) string {
		return strings.ReplaceAll(event.All.String(), ",", ", ") + " with commas between them, or none"
	},
	problem: func(e, _, _ punctual.Events, _ string) string {
		if unknown := e &^ event.All; unknown != 0 {
			return fmt.Sprintf("have bits without a meaning: %#x", uint8(unknown))
		}
		return ""
	},
}

var rates = &form[limits.Rate]{
	kind: Rate,
	text: limits.Rate.String,
	parse: func(text string) (limits.Rate, error) {
		r, err := limits.ParseRate(text)
		if err != nil {
			err = invalidf("%v", err)
		}
		return r, err
	},
	stored: func(r limits.Rate) ([]byte, error) { return []byte(`"` + r.String() + `"`), nil },
	restore: func(value []byte) (limits.Rate, error) {
		text, err := restoreJSON[string](value)
		if err != nil {
			return limits.Rate{}, err
		}
		return limits.ParseRate(text)
	},
	allowed: func(_, _ limits.Rate, _ string) string { return "none, or a rate like 10/1s or 1000/1m,burst=5" },
	problem: func(r, _, _ limits.Rate, _ string) string { return r.Problem() },
}

// maxDelay bounds every delay of a backoff; it keeps the doubling from overflowing.
const maxDelay = 10 * 365 * 24 * time.Hour

// problemOf says what is wrong with a backoff, and returns "" when nothing is.
func problemOf(b punctual.Backoff) string {
	write := notation.FormatDuration
	for i, d := range b.Delays {
		if d < 0 || d > maxDelay {
			return fmt.Sprintf("delay %d is %s: use 0 to %s", i+1, write(d), write(maxDelay))
		}
	}
	switch {
	case len(b.Delays) > 0:
		return ""
	case b.Base < 0 || b.Base > maxDelay:
		return fmt.Sprintf("base %s: use 0 to %s", write(b.Base), write(maxDelay))
	case b.Max < b.Base || b.Max > maxDelay:
		return fmt.Sprintf("max %s: use the base %s to %s", write(b.Max), write(b.Base), write(maxDelay))
	case !(b.Jitter >= 0 && b.Jitter <= 1): // NaN is refused, too
		return fmt.Sprintf("jitter %v: use 0 to 1", b.Jitter)
	}
	return ""
}

// storedDuration is a duration as stores keep it, as Go writes it: "1h30m0s".
type storedDuration time.Duration

func (d storedDuration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d *storedDuration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = storedDuration(v)
	return err
}

// storedBackoff has delays, or base, max and jitter.
type storedBackoff struct {
	Delays []storedDuration `json:"delays,omitempty"`
	Base   storedDuration   `json:"base,omitzero"`
	Max    storedDuration   `json:"max,omitzero"`
	Jitter float64          `json:"jitter,omitzero"`
}

func storeBackoff(b punctual.Backoff) ([]byte, error) {
	x := storedBackoff{Base: storedDuration(b.Base), Max: storedDuration(b.Max), Jitter: b.Jitter}
	for _, d := range b.Delays {
		x.Delays = append(x.Delays, storedDuration(d))
	}
	return json.Marshal(x)
}

func restoreBackoff(value []byte) (b punctual.Backoff, err error) {
	var x storedBackoff
	known := json.NewDecoder(bytes.NewReader(value))
	known.DisallowUnknownFields()
	if err := known.Decode(&x); err != nil {
		if json.Unmarshal(value, &storedBackoff{}) == nil {
			return b, fmt.Errorf("%w: %w", punctual.ErrUnsupported, err)
		}
		return b, err
	}
	b = punctual.Backoff{Base: time.Duration(x.Base), Max: time.Duration(x.Max), Jitter: x.Jitter}
	for _, d := range x.Delays {
		b.Delays = append(b.Delays, time.Duration(d))
	}
	return b, nil
}

func restoreDuration(value []byte) (time.Duration, error) {
	d, err := restoreJSON[storedDuration](value)
	return time.Duration(d), err
}

func restoreJSON[T any](value []byte) (v T, err error) {
	err = json.Unmarshal(value, &v)
	return v, err
}
