package cron

import (
	"math/bits"
	"time"
)

// A wall time is what the clock on the wall shows, as the seconds since 1970 that UTC would have
// with that date and time. A search is done in wall times, where each day has 86400 seconds, and
// then brought to the zone.

const (
	daySeconds = 24 * 60 * 60
	// apart is more than the walls of two zones differ, and more than a clock is ever set: offsets
	// are from -12 h to +14 h, and a country that changed sides of the date line moved by a day.
	apart = 2 * daySeconds
)

var (
	firstWall = time.Date(FirstYear, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	endWall   = time.Date(LastYear+1, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
)

// dates are the sets of a Spec as bits, by value.
type dates struct {
	second, minute, hour, dayOfMonth, month, dayOfWeek uint64
	// fromLast has bit n for the day n days before the last of the month; nearest has bit d for dW.
	fromLast, nearest uint64
	lastWorking       bool
	nth               [7]uint8 // for each weekday bit n for its n-th day in a month, bit 0 for its last
	years             []bool   // from FirstYear on
}

func datesOf(s *Spec) dates {
	d := dates{years: make([]bool, LastYear-FirstYear+1)}
	for _, f := range []struct {
		from field
		into *uint64
	}{
		{s.second, &d.second}, {s.minute, &d.minute}, {s.hour, &d.hour}, {s.dayOfMonth, &d.dayOfMonth}, {s.month, &d.month}, {s.dayOfWeek, &d.dayOfWeek},
	} {
		for _, i := range f.from.items {
			switch i.kind {
			case values:
				for v := i.from; v <= i.to; v += i.step {
					*f.into |= 1 << v
				}
			case lastDay:
				d.fromLast |= 1 << i.from
			case nearest:
				d.nearest |= 1 << i.from
			case lastWorking:
				d.lastWorking = true
			case nthWeekday:
				d.nth[i.from] |= 1 << i.nth
			case lastWeekday:
				d.nth[i.from] |= 1
			}
		}
	}
	d.dayOfWeek |= d.dayOfWeek >> 7 & 1 // 7 is Sunday, too
	for _, i := range s.year.items {
		for y := i.from; y <= i.to; y += i.step {
			d.years[y-FirstYear] = true
		}
	}
	return d
}

// Next is the first time after the given one, in the zone, or false when none comes before the end
// of LastYear.
func (s Spec) Next(after time.Time, loc *time.Location) (time.Time, bool) {
	return s.NextBeyond(after, -apart, loc)
}

// NextBeyond is Next for a process that goes on where another one has stopped, whose zone data may
// be older or newer. offset is the offset of the zone at the time after, in seconds east of UTC, by
// the data of the other process. The two processes have the same clock on the wall in mind and
// differ in the instants that it stands for. So a fixed time that the other process has had comes
// no second time at the instant that this process knows for it. For example, "0 9 * * *" is 07:00Z
// by the newer data and 08:00Z by the older. After 07:00Z with an offset of 2 h comes 08:00Z of the
// next day by the older data.
func (s Spec) NextBeyond(after time.Time, offset int, loc *time.Location) (time.Time, bool) {
	from := max(after.Unix(), firstWall-1) // a fraction of a second is cut off, since times are whole seconds
	if from >= endWall {
		return time.Time{}, false
	}
	var t int64
	var ok bool
	switch {
	case s.every > 0:
		t = (from/s.every + 1) * s.every
		ok = t > from && t < endWall
		if from < 0 {
			t, ok = 0, true
		}
	case s.fixed:
		var wall int64
		if wall, ok = s.nextWall(max(highest(from, loc), from+int64(offset)) + 1); ok {
			t = firstAt(wall, loc)
		}
	default:
		t, ok = s.nextShown(from+1, loc)
	}
	if !ok {
		return time.Time{}, false
	}
	return time.Unix(t, 0).In(loc), true
}

// nextShown is the first instant from t on at which the wall shows a time that matches.
func (s Spec) nextShown(t int64, loc *time.Location) (int64, bool) {
	for t < endWall+apart {
		offset, end := stretch(t, loc)
		wall, ok := s.nextWall(t + offset)
		if ok && wall-offset < end {
			return wall - offset, true
		}
		// No time matches from here to the end of the stretch. If the stretch is so long that no
		// clock is set back over its start, none matches before wall either, and the years between
		// need no look.
		switch {
		case end < t+apart:
			t = end
		case !ok:
			return 0, false
		default:
			t = max(end, wall-apart)
		}
	}
	return 0, false
}

// nextWall is the first wall time from w on that matches.
func (s Spec) nextWall(w int64) (int64, bool) {
	w = max(w, firstWall)
	if w >= endWall || s.dates.years == nil {
		return 0, false
	}
	start := time.Unix(w, 0).UTC()
	year, startMonth, startDay := start.Date()
	month, day, second := int(startMonth), startDay, int(w%daySeconds)
	for ; year <= LastYear; year, month, day, second = year+1, 1, 1, 0 {
		if !s.dates.years[year-FirstYear] {
			continue
		}
		for ; month <= 12; month, day, second = month+1, 1, 0 {
			if s.dates.month>>month&1 == 0 {
				continue
			}
			first := time.Date(year, time.Month(month), 1, 0, 0, 0, 0, time.UTC)
			days := s.days(first) >> day << day
			for ; days != 0; days &= days - 1 {
				d := bits.TrailingZeros64(days)
				if d > day {
					second = 0
				}
				if in, ok := s.timeOfDay(second); ok {
					return first.Unix() + int64(d-1)*daySeconds + int64(in), true
				}
			}
		}
	}
	return 0, false
}

// timeOfDay is the first second of a day, from the given one on, that matches.
func (s Spec) timeOfDay(from int) (int, bool) {
	hour, minute, second := from/3600, from/60%60, from%60
	for hours := s.dates.hour >> hour << hour; hours != 0; hours &= hours - 1 {
		h := bits.TrailingZeros64(hours)
		if h > hour {
			minute, second = 0, 0
		}
		for minutes := s.dates.minute >> minute << minute; minutes != 0; minutes &= minutes - 1 {
			m := bits.TrailingZeros64(minutes)
			if h > hour || m > minute {
				second = 0
			}
			if seconds := s.dates.second >> second << second; seconds != 0 {
				return h*3600 + m*60 + bits.TrailingZeros64(seconds), true
			}
		}
	}
	return 0, false
}

// days are the days of a month that match, as bits from 1 on.
func (s Spec) days(first time.Time) uint64 {
	n := first.AddDate(0, 1, -1).Day()
	weekday := int(first.Weekday())
	var inMonth, inWeek uint64
	for day := 1; day <= n; day++ {
		w := (weekday + day - 1) % 7
		isLast := day+7 > n
		if s.dates.dayOfMonth>>day&1 == 1 || s.dates.fromLast>>(n-day)&1 == 1 {
			inMonth |= 1 << day
		}
		if s.dates.nearest>>day&1 == 1 {
			inMonth |= 1 << workingDay(day, w, n)
		}
		if s.dates.dayOfWeek>>w&1 == 1 || s.dates.nth[w]>>((day-1)/7+1)&1 == 1 || isLast && s.dates.nth[w]&1 == 1 {
			inWeek |= 1 << day
		}
	}
	if s.dates.lastWorking {
		day := n
		for w := (weekday + n - 1) % 7; w == 0 || w == 6; w = (w + 6) % 7 {
			day--
		}
		inMonth |= 1 << day
	}
	if s.both {
		return inMonth & inWeek
	}
	return inMonth | inWeek
}

// workingDay is the day from Monday to Friday that is nearest to a day and in the same month.
func workingDay(day, weekday, daysInMonth int) int {
	switch {
	case weekday == 6 && day > 1:
		return day - 1
	case weekday == 6:
		return day + 2
	case weekday == 0 && day < daysInMonth:
		return day + 1
	case weekday == 0:
		return day - 2
	}
	return day
}
