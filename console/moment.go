package console

import (
	"math"
	"strconv"
	"time"

	"github.com/punctualmq/punctual/internal/cron"
)

// moment is an instant in the forms in which pages show it.
type moment struct {
	// ISO is in UTC, for machines. Full and Short are in the reader's time zone. Short leaves out
	// the date if that is the date of frame.Now.
	ISO, Full, Short string
	// Relative is the time since or until frame.Now, such as "in 5 min". Past is true if the
	// instant is before that.
	Relative string
	Past     bool
}

// Time returns an instant for a page, nil for the zero time.
func (f *frame) Time(t time.Time) *moment {
	if t.IsZero() {
		return nil
	}
	in, now := t.In(f.call.look.zone), f.Now.In(f.call.look.zone)
	m := &moment{ISO: t.UTC().Format(time.RFC3339Nano), Full: in.Format("2006-01-02 15:04:05.000 MST"), Short: in.Format("2006-01-02 15:04:05"), Past: t.Before(f.Now)}
	if in.YearDay() == now.YearDay() && in.Year() == now.Year() {
		m.Short = in.Format("15:04:05")
	}
	if m.Past {
		m.Relative = f.call.look.language.text("time.ago", f.Span(f.Now.Sub(t)))
	} else {
		m.Relative = f.call.look.language.text("time.in", f.Span(t.Sub(f.Now)))
	}
	return m
}

// AsOf returns Now without its date, in the reader's time zone.
func (f *frame) AsOf() string { return f.Now.In(f.call.look.zone).Format("15:04:05") }

// Span writes a duration in at most two units, such as 2 h 5 min, rounded down. From 1 s on it
// leaves out milliseconds.
func (f *frame) Span(d time.Duration) string {
	text := f.call.look.language.text
	units := []struct {
		key  string
		size time.Duration
	}{
		{"unit.d", 24 * time.Hour},
		{"unit.h", time.Hour},
		{"unit.min", time.Minute},
		{"unit.s", time.Second},
		{"unit.ms", time.Millisecond},
	}
	if d < time.Millisecond {
		return text("unit.ms", 0)
	}
	for i, u := range units {
		if d < u.size {
			continue
		}
		whole := text(u.key, int64(d/u.size))
		if rest := d % u.size; i+1 < len(units)-1 && rest >= units[i+1].size {
			whole += " " + text(units[i+1].key, int64(rest/units[i+1].size))
		}
		return whole
	}
	return ""
}

// Lateness writes a duration as Span does, but between 1 s and 10 s in tenths of a second, rounded
// up. So a lateness of 1.001 s is shown as 1.1 s, and does not look as if the promise of one second
// had been kept.
func (f *frame) Lateness(d time.Duration) string {
	if d <= time.Second || d >= 10*time.Second {
		return f.Span(d)
	}
	return f.call.look.language.text("unit.s", strconv.FormatFloat(math.Ceil(d.Seconds()*10)/10, 'f', -1, 64))
}

// Input writes an instant, in whole seconds of the reader's time zone, as the value of a form's
// field for date and time. The zero time is "".
func (f *frame) Input(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.In(f.call.look.zone).Format(wallClock)
}

// stamp writes an instant by the clock of a zone, such as 2026-11-23 09:02:11 CET.
func stamp(t time.Time, zone *time.Location) string {
	return t.In(zone).Format("2006-01-02 15:04:05 MST")
}

// InZone writes an instant by the clock of the time zone with this name, such as Mon 2026-11-23
// 09:02:11 CET. It returns "" if this program does not know the zone.
func (f *frame) InZone(t time.Time, name string) string {
	zone, err := cron.LoadZone(name)
	if err != nil {
		return ""
	}
	return f.call.look.language.text("weekday."+strconv.Itoa(int(t.In(zone).Weekday()))) + " " + stamp(t, zone)
}
