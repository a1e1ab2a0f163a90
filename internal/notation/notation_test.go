package notation

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
)

func TestDurations(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"0": 0, "0s": 0, "500ms": 500 * time.Millisecond, "90s": 90 * time.Second, "1.5h": 90 * time.Minute,
		"2d12h": 60 * time.Hour, "1w": 7 * day, "1.5d": 36 * time.Hour, "1w2d3h4m5s": 9*day + 3*time.Hour + 4*time.Minute + 5*time.Second,
		"106751d": 106751 * day, "10us": 10 * time.Microsecond,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "5", "-5m", "-1", "m", "5x", "5 m", "5m ", "d", "1e3s", "1..5s", "+5m",
		"10000000000000ms", "106752d", "20000w", "106751d24h", "99999999999999999999s",
	} {
		if got, err := ParseDuration(text); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("ParseDuration(%q) = %v, %v; want ErrInvalid", text, got, err)
		}
	}
}

func TestDurationsSurvivePrinting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Min(0).Draw(t, "d"))
		if got, err := ParseDuration(FormatDuration(d)); err != nil || got != d {
			t.Fatalf("%d ns prints as %q and reads as %d, %v", d, FormatDuration(d), got, err)
		}
	})
}

func TestTimes(t *testing.T) {
	for text, want := range map[string]time.Time{
		"2026-11-20T10:00:00Z":           time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC),
		"2026-11-20T10:00:00.25+01:00":   time.Date(2026, 11, 20, 9, 0, 0, 250e6, time.UTC),
		"2026-11-20T10:00:00.123456789Z": time.Date(2026, 11, 20, 10, 0, 0, 123456789, time.UTC),
		"9999-12-31T23:59:59.999Z":       limits.MaxDue,
		"1969-07-20T20:17:40Z":           time.Date(1969, 7, 20, 20, 17, 40, 0, time.UTC),
	} {
		if got, err := ParseTime(text); err != nil || !got.Equal(want) {
			t.Errorf("ParseTime(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "tomorrow", "2026-11-20", "2026-13-20T10:00:00Z", "2026-11-20T10:00:00", "10000-01-01T00:00:00Z", "+10000-01-01T00:00:00Z",
		"9999-12-31T23:59:59.9991Z", "9999-12-31T23:59:59-01:00",
	} {
		if got, err := ParseTime(text); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("P9: ParseTime(%q) = %v, %v; want ErrInvalid", text, got, err)
		}
	}
}

func TestBackoffs(t *testing.T) {
	for text, want := range map[string]punctual.Backoff{
		"2m,10m,1h":              {Delays: []time.Duration{2 * time.Minute, 10 * time.Minute, time.Hour}},
		"exp:1s..1h,jitter=0.2":  {Base: time.Second, Max: time.Hour, Jitter: 0.2},
		"exp:500ms..1d,jitter=0": {Base: 500 * time.Millisecond, Max: 24 * time.Hour},
	} {
		got, err := ParseBackoff(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("ParseBackoff(%q) = %+v, %v; want %+v", text, got, err, want)
		}
		if printed := FormatBackoff(got); printed != text {
			t.Errorf("backoff %q prints as %q", text, printed)
		}
	}
	for _, text := range []string{"", "2m,,1h", "2m;1h", "exp:", "exp:1s", "exp:1s..", "exp:1s..1h,", "exp:1s..1h,jitter=x", "exp:1s..1h,wobble=1", "-1s"} {
		if got, err := ParseBackoff(text); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("ParseBackoff(%q) = %+v, %v; want ErrInvalid", text, got, err)
		}
	}
}
