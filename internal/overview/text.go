package overview

import (
	"strconv"
	"time"
)

// Grouped writes a number with commas: 312,000.
func Grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	start := len(text) - 3
	for ; start > 0 && text[start-1] != '-'; start -= 3 {
		text = text[:start] + "," + text[start:]
	}
	return text
}

// Short writes a length of time for people, in at most its two largest units: 3d4h, 2h5m, 1m30s,
// 1.5s, 850ms.
func Short(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	case d < time.Minute:
		return strconv.FormatFloat(d.Truncate(100*time.Millisecond).Seconds(), 'f', -1, 64) + "s"
	case d < time.Hour:
		return two(d, time.Minute, "m", time.Second, "s")
	case d < 24*time.Hour:
		return two(d, time.Hour, "h", time.Minute, "m")
	}
	return two(d, 24*time.Hour, "d", time.Hour, "h")
}

func two(d, large time.Duration, l string, small time.Duration, s string) string {
	text := strconv.FormatInt(int64(d/large), 10) + l
	if rest := d % large / small; rest > 0 {
		text += strconv.FormatInt(int64(rest), 10) + s
	}
	return text
}
