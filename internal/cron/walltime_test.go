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
