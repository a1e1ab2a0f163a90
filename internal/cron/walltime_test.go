package cron

import (
	"strings"
	"testing"
	"time"
)

func TestLocalTime(t *testing.T) {
	for _, c := range []struct{ text, zone, want string }{
		{"2026-11-20 09:00", "Europe/Berlin", "2026-11-20T08:00:00Z"},
		{"2026-11-20T09:00:30", "Europe/Berlin", "2026-11-20T08:00:30Z"},
		{"2026-07-01 09:00:00", "Europe/Berlin", "2026-07-01T07:00:00Z"},
		{"2026-11-20T09:00", "UTC", "2026-11-20T09:00:00Z"},
		{"2026-03-29 02:30", "Europe/Berlin", "2026-03-29T01:00:00Z"},       // never shown: the first instant behind the gap, 3:00
		{"2026-10-25 02:30", "Europe/Berlin", "2026-10-25T00:30:00Z"},       // shown twice: the first
		{"2026-04-05 01:45", "Australia/Lord_Howe", "2026-04-04T14:45:00Z"}, // half an hour is repeated
		{"2011-12-30 12:00", "Pacific/Apia", "2011-12-30T10:00:00Z"},        // a day that Samoa left out: 31 December, 0:00
		{"0001-01-01 00:00", "UTC", "0001-01-01T00:00:00Z"},
		{"9999-12-31 23:59:59", "UTC", "9999-12-31T23:59:59Z"},
	} {
		got, err := LocalTime(c.text, c.zone)
		if err != nil || got.UTC().Format(time.RFC3339) != c.want {
			t.Errorf("%s in %s is %v, %v instead of %s", c.text, c.zone, got.UTC(), err, c.want)
		}
	}
	for _, c := range []struct{ text, zone, says string }{
		{"2026-11-20 09:00", "", "needs a zone"},
		{"2026-11-20 09:00", "Local", "another one on each machine"},
		{"2026-11-20 09:00", "Europe/Atlantis", "not known"},
		{"2026-11-20T09:00:00Z", "Europe/Berlin", "offset from UTC"},
		{"2026-11-20 09:00+01:00", "Europe/Berlin", "offset from UTC"},
		{"2026-02-30 09:00", "Europe/Berlin", "write date and time"},
		{"09:00", "Europe/Berlin", "write date and time"},
		{"", "Europe/Berlin", "write date and time"},
	} {
		if got, err := LocalTime(c.text, c.zone); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q in %q is %v, %v; the error should say %q", c.text, c.zone, got, err, c.says)
		}
	}
}

func TestOddWall(t *testing.T) {
	for _, c := range []struct{ text, zone, want string }{
		{"2027-03-28 02:30", "Europe/Berlin", "clocks in Europe/Berlin are set forward over 2027-03-28 02:30:00, and never show it: 2027-03-28T03:00:00+02:00 is taken, when they pass it"},
		{"2027-10-31 02:30", "Europe/Berlin", "clocks in Europe/Berlin are set back, and show 2027-10-31 02:30:00 twice: the first is taken, 2027-10-31T02:30:00+02:00, and not 2027-10-31T02:30:00+01:00"},
		{"2026-04-05 01:45", "Australia/Lord_Howe", "clocks in Australia/Lord_Howe are set back, and show 2026-04-05 01:45:00 twice: the first is taken, 2026-04-05T01:45:00+11:00, and not 2026-04-05T01:45:00+10:30"},
		{"2027-03-28 03:00", "Europe/Berlin", ""},
		{"2027-10-31 03:00", "Europe/Berlin", ""},
		{"2027-10-30 02:30", "Europe/Berlin", ""},
		{"2027-10-31 02:30", "UTC", ""},
	} {
		loc, err := time.LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		wall, err := time.Parse("2006-01-02 15:04", c.text)
		if err != nil {
			t.Fatal(err)
		}
		if got := OddWall(wall, loc); got != c.want {
			t.Errorf("%s in %s: %q; want %q", c.text, c.zone, got, c.want)
		}
	}
}
