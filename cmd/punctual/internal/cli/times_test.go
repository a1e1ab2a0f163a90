package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

func TestTimesAsPeopleWriteThem(t *testing.T) {
	r := newRig(t) // Friday 2026-11-20 10:00 UTC, in Berlin 11:00
	r.env["TZ"] = "Europe/Berlin"
	a := r.app(&buffer{}, &buffer{})
	for text, want := range map[string]string{
		"2026-11-20T10:00:00Z": "2026-11-20T10:00:00.000Z",
		"2026-12-01 9:00":      "2026-12-01T08:00:00.000Z",
		"2026-12-01T09:00":     "2026-12-01T08:00:00.000Z",
		"2026-07-01 9:00:30":   "2026-07-01T07:00:30.000Z",
		"tomorrow 9:00":        "2026-11-21T08:00:00.000Z",
		"tomorrow at 9 am":     "2026-11-21T08:00:00.000Z",
		"Tomorrow noon":        "2026-11-21T11:00:00.000Z",
		"today 23:59":          "2026-11-20T22:59:00.000Z",
		"today 9:00":           "2026-11-20T08:00:00.000Z", // past: delivered at once
		"12:00":                "2026-11-20T11:00:00.000Z",
		"11:00":                "2026-11-21T10:00:00.000Z", // not ahead any more today
		"9:30pm":               "2026-11-20T20:30:00.000Z",
		"12am":                 "2026-11-20T23:00:00.000Z",
		"fri 11:01":            "2026-11-20T10:01:00.000Z",
		"friday 11:00":         "2026-11-27T10:00:00.000Z",
		"thu 9am":              "2026-11-26T08:00:00.000Z",
		"2026-10-25 2:30":      "2026-10-25T00:30:00.000Z", // comes twice: the first
		"2026-03-29 2:30":      "2026-03-29T01:00:00.000Z", // does not come: when clocks pass it
	} {
		if got, _, err := a.readTime(text, a.localZone()); err != nil || stamp(got) != want {
			t.Errorf("%q is %v, %v; want %s", text, stamp(got), err, want)
		}
	}
	for text, says := range map[string]string{
		"":                          "not understood",
		"tomorrow":                  "no time of day",
		"monday":                    "'monday 9:00'",
		"2026-12-01":                "no time of day",
		"9":                         "not understood",
		"25:00":                     "not understood",
		"13pm":                      "not understood",
		"0am":                       "not understood",
		"tomorrow 9:00 or so":       "not understood",
		"yesterday 9:00":            "not understood",
		"2026-02-30 9:00":           "no such day",
		"2026-11-31T10:00:00Z":      "no such day",
		"10000-01-01T00:00:00Z":     "after the last one",
		"9999-12-31T23:59:59-01:00": "after the last one",
	} {
		got, _, err := a.readTime(text, a.localZone())
		if exitFor(err) != exitUsage {
			t.Errorf("P9: %q is %v, %v; want an error of usage", text, got, err)
			continue
		}
		if f := describe(err); !strings.Contains(f.text, says) {
			t.Errorf("%q: %q does not say %q", text, f.text, says)
		}
	}
}

func TestPushAtATimeOfTheLocalDay(t *testing.T) {
	r := newRig(t)
	r.env["TZ"] = "Asia/Shanghai" // 18:00 there
	r.run("push", "t", "x", "--id", "a", "--at", "tomorrow 9:00").ok()
	if got, want := r.get("t", "a").Due, time.Date(2026, 11, 21, 1, 0, 0, 0, time.UTC); !got.Equal(want) {
		t.Errorf("due %v, want %v", got, want)
	}
	r.run("reschedule", "a", "--at", "sun 8:00").ok().prints("a rescheduled, due 2026-11-22T00:00:00.000Z\n")
	r.run("reschedule", "a", "--at", "soon").exits(exitUsage, "'tomorrow 9:00'")
	if m := r.get("t", "a"); m.State != punctual.StateScheduled {
		t.Errorf("a is %v, want scheduled", m.State)
	}
}

// A time that clocks never show, or show twice, is taken as everywhere else, and push says how.
func TestPushAtOddTimesSaysSo(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct{ at, zone, says, due string }{
		{"2027-03-28 2:30", "Europe/Berlin", "--at: note: clocks in Europe/Berlin are set forward over 2027-03-28 02:30:00", "2027-03-28T01:00:00.000Z"},
		{"2027-10-31 2:30", "Europe/Berlin", "the first is taken, 2027-10-31T02:30:00+02:00, and not 2027-10-31T02:30:00+01:00", "2027-10-31T00:30:00.000Z"},
		{"2027-03-28 2:30", "", "clocks in Europe/Berlin are set forward over 2027-03-28 02:30:00", "2027-03-28T01:00:00.000Z"},
		{"2027-10-31 2:30", "", "clocks in Europe/Berlin are set back, and show 2027-10-31 02:30:00 twice", "2027-10-31T00:30:00.000Z"},
		{"2027-10-31T02:30:00+02:00", "", "", "2027-10-31T00:30:00.000Z"},
		{"2027-10-31 3:30", "", "", "2027-10-31T02:30:00.000Z"},
		{"2027-10-31 3:30", "Europe/Berlin", "", "2027-10-31T02:30:00.000Z"},
	} {
		r.env["TZ"] = "Europe/Berlin"
		args := []string{"push", "t", "x", "--at", c.at, "--json"}
		if c.zone != "" {
			args = append(args, "--zone", c.zone)
		}
		got := r.run(args...)
		if c.says == "" {
			got.ok()
		} else {
			got.exits(exitOK, c.says)
		}
		got.contains(c.due)
	}
}
