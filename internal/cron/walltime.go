package cron

import (
	"errors"
	"fmt"
	"time"
)

// localForms are the forms of a date and time on the wall.
var localForms = [...]string{"2006-01-02 15:04", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02T15:04:05"}

// LocalTime returns the instant at which the clocks of a zone first show a date and time, such as "2026-11-20 09:00" in
// "Europe/Berlin". The text may have seconds, and T in the place of the space. Of a time that the clocks show twice, because they are
// set back over it, it is the first; of a time that they never show, because they are set forward over it, it is the first instant
// after the gap. The fixed times of a schedule follow the same rule. The zone has to be named, as LoadZone reads it.
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
