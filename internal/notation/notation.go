// Package notation is how people write durations, times and backoffs: on the command line, in JSON,
// in requests to the server and in the forms of the console. Whatever is written this way is read
// back as the same value.
package notation

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
)

// ParseDuration reads a duration in Go's syntax without a sign, plus d (24 hours) and w (7 days):
// 90s, 2h30m, 2d12h, 1w. A negative, overflowing or malformed one is an ErrInvalid
// that names the value.
func ParseDuration(s string) (time.Duration, error) {
	if strings.HasPrefix(s, "-") {
		return 0, invalidf("duration %q is negative: use 0 or more", s)
	}
	if s == "0" {
		return 0, nil
	}
	if d, err := time.ParseDuration(s); err == nil && s[0] != '+' {
		return d, nil // most are Go's own, and this is quick
	}
	parts := durationPart.FindAllStringSubmatch(s, -1)
	if parts == nil || !durationForm.MatchString(s) {
		return 0, invalidf("duration %q is not understood: write it like 500ms, 90s, 30m, 2h30m, 2d12h or 1w", s)
	}
	var sum time.Duration
	for _, p := range parts {
		d, ok := durationOf(p[1], p[2])
		if !ok || sum > math.MaxInt64-d {
			return 0, invalidf("duration %q is too long: the longest is 106751d; a time farther away can be given as a date", s)
		}
		sum += d
	}
	return sum, nil
}

var (
	durationPart = regexp.MustCompile(`(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h|d|w)`)
	durationForm = regexp.MustCompile(`^((\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h|d|w))+$`)
)

// durationOf returns number times unit; not ok when it overflows.
func durationOf(number, unit string) (d time.Duration, ok bool) {
	hours := map[string]time.Duration{"d": 24, "w": 7 * 24}[unit]
	if hours == 0 {
		d, err := time.ParseDuration(number + unit)
		return d, err == nil
	}
	d, err := time.ParseDuration(number + "h")
	if err != nil || d > math.MaxInt64/hours {
		return 0, false
	}
	return d * hours, true
}

// FormatDuration writes d as ParseDuration reads it, without needless zeros at the end: 2d12h, 30s.
func FormatDuration(d time.Duration) string {
	const day = 24 * time.Hour
	if d < day {
		return trimZeros(d.String())
	}
	out := strconv.FormatInt(int64(d/day), 10) + "d"
	if rest := d % day; rest > 0 {
		out += trimZeros(rest.String())
	}
	return out
}

func trimZeros(s string) string {
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// ParseTime reads an RFC 3339 time with any fraction. It is not rounded here: the
// store rounds up.
func ParseTime(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, s)
	switch {
	case HasLongYear(s):
		return time.Time{}, invalidf("time %q lies after the last one possible: use up to %s", s, FormatTime(limits.MaxDue))
	case ImpossibleDay(s):
		return time.Time{}, invalidf("time %q: the calendar has no such day: use one that it has", s)
	case err != nil:
		return time.Time{}, invalidf("time %q is not understood: write it like 2026-11-20T10:00:00Z or 2026-11-20T10:00:00.250+01:00", s)
	}
	if t.After(limits.MaxDue) {
		return time.Time{}, invalidf("time %q lies after the last one possible: use up to %s", s, FormatTime(limits.MaxDue))
	}
	return t, nil
}

// HasLongYear tells whether s begins with a year of five digits or more, which lies after
// limits.MaxDue.
func HasLongYear(s string) bool {
	year, _, dash := strings.Cut(strings.TrimPrefix(s, "+"), "-")
	return dash && len(year) >= 5 && strings.Trim(year, "0123456789") == ""
}

// ImpossibleDay tells whether s begins with a day that no calendar has, 2026-02-30 for instance.
func ImpossibleDay(s string) bool {
	if !writtenDay.MatchString(s) {
		return false
	}
	_, err := time.Parse(time.DateOnly, s[:len(time.DateOnly)])
	return err != nil
}

// writtenDay is a day in the form of RFC 3339 at the start of a text.
var writtenDay = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}([Tt ]|$)`)

// ParseBackoff reads a list of delays, "2m,10m,1h", or "exp:1s..1h,jitter=0.2".
func ParseBackoff(s string) (punctual.Backoff, error) {
	if rest, ok := strings.CutPrefix(s, "exp:"); ok {
		return parseExponential(s, rest)
	}
	var b punctual.Backoff
	for part := range strings.SplitSeq(s, ",") {
		d, err := ParseDuration(strings.TrimSpace(part))
		if err != nil {
			return b, fmt.Errorf("backoff %q: %w", s, err)
		}
		b.Delays = append(b.Delays, d)
	}
	return b, nil
}

func parseExponential(whole, s string) (b punctual.Backoff, err error) {
	span, option, hasOption := strings.Cut(s, ",")
	base, top, ok := strings.Cut(span, "..")
	jitter, isJitter := strings.CutPrefix(option, "jitter=")
	if !ok || hasOption != isJitter {
		return b, invalidf("backoff %q is not understood: write it like 2m,10m,1h or exp:1s..1h,jitter=0.2", whole)
	}
	if b.Base, err = ParseDuration(base); err != nil {
		return b, fmt.Errorf("backoff %q: %w", whole, err)
	}
	if b.Max, err = ParseDuration(top); err != nil {
		return b, fmt.Errorf("backoff %q: %w", whole, err)
	}
	if hasOption {
		if b.Jitter, err = strconv.ParseFloat(jitter, 64); err != nil {
			return b, invalidf("backoff %q: jitter %q is not a number: use 0 to 1", whole, jitter)
		}
	}
	return b, nil
}

// FormatBackoff writes b as ParseBackoff reads it.
func FormatBackoff(b punctual.Backoff) string {
	if len(b.Delays) == 0 {
		return fmt.Sprintf("exp:%s..%s,jitter=%v", FormatDuration(b.Base), FormatDuration(b.Max), b.Jitter)
	}
	parts := make([]string, len(b.Delays))
	for i, d := range b.Delays {
		parts[i] = FormatDuration(d)
	}
	return strings.Join(parts, ",")
}

// FormatTime writes t in UTC as ParseTime reads it. It writes three digits of a second's fraction,
// and more only for a time finer than a millisecond.
func FormatTime(t time.Time) string { return string(AppendTime(nil, t)) }

// AppendTime appends to b what FormatTime returns.
func AppendTime(b []byte, t time.Time) []byte {
	t = t.UTC()
	if t.Nanosecond()%int(time.Millisecond) == 0 {
		return t.AppendFormat(b, "2006-01-02T15:04:05.000Z")
	}
	return t.AppendFormat(b, time.RFC3339Nano)
}

func invalidf(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), punctual.ErrInvalid)
}
