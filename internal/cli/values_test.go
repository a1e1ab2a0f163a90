package cli

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/punctualmq/punctual"
)

func TestDurations(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"0": 0, "0s": 0, "500ms": 500 * time.Millisecond, "90s": 90 * time.Second, "1.5h": 90 * time.Minute,
		"2d12h": 60 * time.Hour, "1w": 7 * day, "1.5d": 36 * time.Hour, "1w2d3h4m5s": 9*day + 3*time.Hour + 4*time.Minute + 5*time.Second,
		"106751d": 106751 * day, "10us": 10 * time.Microsecond,
	} {
		if got, err := parseDuration(text); err != nil || got != want {
			t.Errorf("parseDuration(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "5", "-5m", "-1", "m", "5x", "5 m", "5m ", "d", "1e3s", "1..5s", "+5m",
		"10000000000000ms", "106752d", "20000w", "106751d24h", "99999999999999999999s",
	} {
		if got, err := parseDuration(text); exitFor(err) != exitUsage {
			t.Errorf("parseDuration(%q) = %v, %v; want an error of usage", text, got, err)
		}
	}
}

func exitFor(err error) int {
	if err == nil {
		return exitOK
	}
	return describe(err).exit
}

func TestDurationsSurvivePrinting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Min(0).Draw(t, "d"))
		if got, err := parseDuration(formatDuration(d)); err != nil || got != d {
			t.Fatalf("%d ns prints as %q and reads as %d, %v", d, formatDuration(d), got, err)
		}
	})
}

func TestTimes(t *testing.T) {
	for text, want := range map[string]time.Time{
		"2026-11-20T10:00:00Z":           time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC),
		"2026-11-20T10:00:00.25+01:00":   time.Date(2026, 11, 20, 9, 0, 0, 250e6, time.UTC),
		"2026-11-20T10:00:00.123456789Z": time.Date(2026, 11, 20, 10, 0, 0, 123456789, time.UTC),
		"9999-12-31T23:59:59.999Z":       punctual.MaxDue,
		"1969-07-20T20:17:40Z":           time.Date(1969, 7, 20, 20, 17, 40, 0, time.UTC),
	} {
		if got, err := parseTime(text); err != nil || !got.Equal(want) {
			t.Errorf("parseTime(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "tomorrow", "2026-11-20", "2026-13-20T10:00:00Z", "2026-11-20T10:00:00", "10000-01-01T00:00:00Z", "+10000-01-01T00:00:00Z",
		"9999-12-31T23:59:59.9991Z", "9999-12-31T23:59:59-01:00",
	} {
		if got, err := parseTime(text); exitFor(err) != exitUsage {
			t.Errorf("P9: parseTime(%q) = %v, %v; want an error of usage", text, got, err)
		}
	}
}

func TestBackoffs(t *testing.T) {
	for text, want := range map[string]punctual.Backoff{
		"2m,10m,1h":              {Delays: []time.Duration{2 * time.Minute, 10 * time.Minute, time.Hour}},
		"exp:1s..1h,jitter=0.2":  {Base: time.Second, Max: time.Hour, Jitter: 0.2},
		"exp:500ms..1d,jitter=0": {Base: 500 * time.Millisecond, Max: 24 * time.Hour},
	} {
		got, err := parseBackoff(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("parseBackoff(%q) = %+v, %v; want %+v", text, got, err, want)
		}
		if printed := formatBackoff(got); printed != text {
			t.Errorf("backoff %q prints as %q", text, printed)
		}
	}
	for _, text := range []string{"", "2m,,1h", "2m;1h", "exp:", "exp:1s", "exp:1s..", "exp:1s..1h,", "exp:1s..1h,jitter=x", "exp:1s..1h,wobble=1", "-1s"} {
		if got, err := parseBackoff(text); exitFor(err) != exitUsage {
			t.Errorf("parseBackoff(%q) = %+v, %v; want an error of usage", text, got, err)
		}
	}
}

func TestStampsHaveExactlyMilliseconds(t *testing.T) {
	for in, want := range map[time.Time]string{
		start: "2026-11-20T10:00:00.000Z",
		start.Add(1500 * time.Microsecond).In(time.FixedZone("", 3600)): "2026-11-20T10:00:00.001Z",
		punctual.MaxDue: "9999-12-31T23:59:59.999Z",
	} {
		if got := stamp(in).String(); got != want {
			t.Errorf("stamp of %v is %s, want %s", in, got, want)
		}
	}
}

func TestPrintableTakesControlCharactersAway(t *testing.T) {
	if got, want := printable("a\x1b[31mb\u202ec\x00\n"), "a�[31mb�c�\n"; got != want {
		t.Errorf("printable gives %q, want %q", got, want)
	}
}

func TestEveryErrorCodeHasItsExit(t *testing.T) {
	for _, k := range punctual.ErrorKinds() {
		f := describe(errors.Join(errors.New("push"), k.Err))
		if f.code != k.Code || f.exit == exitOK || f.definite != k.Definite {
			t.Errorf("%v: code %q, exit %d, definite %v; want code %q, an exit and definite %v (P13)", k.Err, f.code, f.exit, f.definite, k.Code, k.Definite)
		}
	}
}
