package cli

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
)

// The values that flags and NDJSON lines take: durations, times, days, backoffs.

// parseDuration reads a duration in Go's syntax plus d (24 hours) and w (7 days):
// 90s, 2h30m, 2d12h, 1w. A negative, overflowing or malformed one is an error of usage
// that names the value.
func parseDuration(s string) (time.Duration, error) {
	if strings.HasPrefix(s, "-") {
		return 0, usagef("duration %q is negative: use 0 or more", s)
	}
	if s == "0" {
		return 0, nil
	}
	parts := durationPart.FindAllStringSubmatch(s, -1)
	if parts == nil || !durationForm.MatchString(s) {
		return 0, usagef("duration %q is not understood: write it like 500ms, 90s, 30m, 2h30m, 2d12h or 1w", s)
	}
	var sum time.Duration
	for _, p := range parts {
		d, ok := durationOf(p[1], p[2])
		if !ok || sum > math.MaxInt64-d {
			return 0, usagef("duration %q is too long: the longest is 106751d; a time farther away can be given as a date", s)
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

// formatDuration writes d as parseDuration reads it, without needless zeros: 2d12h, 30s.
func formatDuration(d time.Duration) string {
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

// parseTime reads an RFC 3339 time with any fraction. It is not rounded here: the
// store rounds up.
func parseTime(s string) (time.Time, error) {
	if longYear.MatchString(s) {
		return time.Time{}, usagef("time %q lies after the last one possible: use up to %s", s, stamp(punctual.MaxDue))
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}, usagef("time %q is not understood: write it like 2026-11-20T10:00:00Z or 2026-11-20T10:00:00.250+01:00", s)
	}
	if t.After(punctual.MaxDue) {
		return time.Time{}, usagef("time %q lies after the last one possible: use up to %s", s, stamp(punctual.MaxDue))
	}
	return t, nil
}

var longYear = regexp.MustCompile(`^\+?\d{5,}-`)

// parseDay reads 2026-11-20 as the UTC day from its first to the next day's first instant.
func parseDay(s string) (from, to time.Time, err error) {
	from, err = time.Parse(time.DateOnly, s)
	if err != nil {
		return from, from, usagef("day %q is not understood: write it like 2026-11-20 (UTC)", s)
	}
	return from, from.AddDate(0, 0, 1), nil
}

// parseInstant reads a day (its first instant, UTC) or an RFC 3339 time.
func parseInstant(s string) (time.Time, error) {
	if t, err := time.Parse(time.DateOnly, s); err == nil {
		return t, nil
	}
	return parseTime(s)
}

// parseBackoff reads a list of delays, "2m,10m,1h", or "exp:1s..1h,jitter=0.2".
func parseBackoff(s string) (punctual.Backoff, error) {
	if rest, ok := strings.CutPrefix(s, "exp:"); ok {
		return parseExponential(s, rest)
	}
	var b punctual.Backoff
	for part := range strings.SplitSeq(s, ",") {
		d, err := parseDuration(strings.TrimSpace(part))
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
		return b, usagef("backoff %q is not understood: write it like 2m,10m,1h or exp:1s..1h,jitter=0.2", whole)
	}
	if b.Base, err = parseDuration(base); err != nil {
		return b, fmt.Errorf("backoff %q: %w", whole, err)
	}
	if b.Max, err = parseDuration(top); err != nil {
		return b, fmt.Errorf("backoff %q: %w", whole, err)
	}
	if hasOption {
		if b.Jitter, err = strconv.ParseFloat(jitter, 64); err != nil {
			return b, usagef("backoff %q: jitter %q is not a number: use 0 to 1", whole, jitter)
		}
	}
	return b, nil
}

// formatBackoff writes b as parseBackoff reads it.
func formatBackoff(b punctual.Backoff) string {
	if len(b.Delays) == 0 {
		return fmt.Sprintf("exp:%s..%s,jitter=%v", formatDuration(b.Base), formatDuration(b.Max), b.Jitter)
	}
	parts := make([]string, len(b.Delays))
	for i, d := range b.Delays {
		parts[i] = formatDuration(d)
	}
	return strings.Join(parts, ",")
}

// durationFlag is a flag that takes a duration; nil means that it was not given.
type durationFlag struct{ d *time.Duration }

// Set, String and Type implement pflag.Value.
func (f *durationFlag) Set(s string) error {
	d, err := parseDuration(s)
	f.d = &d
	return err
}

func (f *durationFlag) String() string {
	if f.d == nil {
		return ""
	}
	return formatDuration(*f.d)
}

// Type is the word for the value in a command's help.
func (f *durationFlag) Type() string { return "duration" }

func (f *durationFlag) or(otherwise time.Duration) time.Duration {
	if f.d == nil {
		return otherwise
	}
	return *f.d
}

// timeFlag is a flag that takes an RFC 3339 time; nil means that it was not given.
type timeFlag struct{ t *time.Time }

// Set, String and Type implement pflag.Value.
func (f *timeFlag) Set(s string) error {
	t, err := parseTime(s)
	f.t = &t
	return err
}

func (f *timeFlag) String() string {
	if f.t == nil {
		return ""
	}
	return stamp(*f.t).String()
}

// Type is the word for the value in a command's help.
func (f *timeFlag) Type() string { return "time" }
