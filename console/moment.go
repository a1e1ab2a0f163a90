package console

import (
	"math"
	"strconv"
	"time"
)

// moment is an instant as pages show it.
type moment struct {
	// ISO is for machines, Full and Short for people, in their time zone; Short leaves out the date of today.
	ISO, Full, Short string
	// Relative is how far away it is.
	Relative string
	Past     bool
}

// Time is an instant, nil for the zero one.
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

// AsOf is the store's clock when the page was made.
func (f *frame) AsOf() string { return f.Now.In(f.call.look.zone).Format("15:04:05") }

// Span is a duration in at most two units: 2 h 5 min.
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

// Lateness is a span, to the tenth of a second where that tells whether a promise was kept. It is rounded up.
func (f *frame) Lateness(d time.Duration) string {
	if d <= time.Second || d >= 10*time.Second {
		return f.Span(d)
	}
	return f.call.look.language.text("unit.s", strconv.FormatFloat(math.Ceil(d.Seconds()*10)/10, 'f', -1, 64))
}

// Input is an instant as a field for date and time has it, "" for none.
func (f *frame) Input(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.In(f.call.look.zone).Format(wallClock)
}
