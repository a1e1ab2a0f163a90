package cron

import (
	"errors"
	"fmt"
	"time"
)

// localForms are the forms of a date and time on the wall.
var localForms = [...]string{"2006-01-02 15:04", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02T15:04:05"}

// LocalTime returns the instant at which the clocks of a zone first show a date and time, such as
// "2026-11-20 09:00" in "Europe/Berlin". The text may have seconds, and T in the place of the
// space. Of a time that the clocks show twice, because they are set back over it, it is the first;
// of a time that they never show, because they are set forward over it, it is the first instant
// after the gap. The fixed times of a schedule follow the same rule. The zone has to be named, as
// LoadZone reads it.
func LocalTime(text, zone string) (time.Time, error) {
	if zone == "" {
		return time.Time{}, errors.New("a time on the wall needs a zone: name it like Europe/Berlin or UTC")
	}
	loc, err := LoadZone(zone)
	if err != nil {
		return time.Time{}, err
	}
	for _, form := range localForms {
		if wall, err := time.Parse(form, text); err == nil {
			return FirstInstant(wall, loc), nil
		}
	}
	for _, form := range [...]string{time.RFC3339, "2006-01-02 15:04:05Z07:00", "2006-01-02T15:04Z07:00", "2006-01-02 15:04Z07:00"} {
		if _, err := time.Parse(form, text); err == nil {
			return time.Time{}, fmt.Errorf("time %q names an offset from UTC, and the zone %s has its own: leave one of them out", text, zone)
		}
	}
	return time.Time{}, fmt.Errorf("time %q: write date and time like 2026-11-20 09:00", text)
}

// FirstInstant is when the clock on the wall first reaches or passes the date and time of wall,
// whose own zone does not count. If clocks are set back over that time, this is the first of two
// instants; if they are set forward over it, the first after the gap.
func FirstInstant(wall time.Time, loc *time.Location) time.Time {
	year, month, day := wall.Date()
	hour, minute, second := wall.Clock()
	w := time.Date(year, month, day, hour, minute, second, 0, time.UTC).Unix()
	return time.Unix(firstAt(w, loc), 0).In(loc)
}

// OddWall says what is to know of a date and time that the clocks of a zone never show, or show
// twice, and which instant FirstInstant takes. It is "" for a time that they show once.
func OddWall(wall time.Time, loc *time.Location) string {
	w := wall.Unix()
	first := firstAt(w, loc)
	asked, taken := wall.Format(time.DateTime), time.Unix(first, 0).In(loc).Format(time.RFC3339)
	offset, end := stretch(first, loc)
	if first+offset != w {
		return fmt.Sprintf("clocks in %s are set forward over %s, and never show it: %s is taken, when they pass it", loc, asked, taken)
	}
	for end < first+apart {
		start := end
		offset, end = stretch(start, loc)
		if second := w - offset; second >= start && second < end {
			return fmt.Sprintf("clocks in %s are set back, and show %s twice: the first is taken, %s, and not %s", loc, asked, taken, time.Unix(second, 0).In(loc).Format(time.RFC3339))
		}
	}
	return ""
}

// stretch is the offset of the zone at t, and until when it stays.
func stretch(t int64, loc *time.Location) (offset, end int64) {
	at := time.Unix(t, 0).In(loc)
	_, o := at.Zone()
	_, until := at.ZoneBounds()
	switch {
	case until.IsZero():
		end = t + 400*365*daySeconds // for ever, as far as the years of a Spec go
	case until.Unix() > t:
		end = until.Unix()
	default:
		// On 31 December of a leap year, package time says that the offset ended the day before,
		// since it counts 365 days from the start of the year.
		end = t - t%daySeconds + daySeconds
	}
	return int64(o), end
}

// highest is the latest wall time that was shown up to t.
func highest(t int64, loc *time.Location) int64 {
	wall := int64(-1 << 62)
	for u := t - apart; u <= t; {
		offset, end := stretch(u, loc)
		wall = max(wall, min(end-1, t)+offset)
		u = end
	}
	return wall
}

// firstAt is the first instant at which the wall shows the time wall or a later one.
func firstAt(wall int64, loc *time.Location) int64 {
	for t := wall - apart; ; {
		offset, end := stretch(t, loc)
		if at := max(t, wall-offset); at < end {
			return at
		}
		t = end
	}
}
