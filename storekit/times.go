package storekit

import (
	"time"

	"github.com/punctualmq/punctual"
)

// Millis returns t as the Unix milliseconds in which stores count, rounded down.
func Millis(t time.Time) int64 { return t.UnixMilli() }

// CeilMillis returns t as Unix milliseconds rounded up, so that nothing due at
// t is ever early.
func CeilMillis(t time.Time) int64 {
	ms := t.UnixMilli()
	if time.UnixMilli(ms).Before(t) {
		ms++
	}
	return ms
}

// FromMillis is the inverse of Millis, in UTC. The zero Time survives both.
func FromMillis(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// CeilDuration returns d in milliseconds, rounded up.
func CeilDuration(d time.Duration) int64 {
	ms := d.Milliseconds()
	if time.Duration(ms)*time.Millisecond < d {
		ms++
	}
	return ms
}

// WholeMillis returns d rounded up to whole milliseconds, for a length that a store has bounded before.
func WholeMillis(d time.Duration) time.Duration {
	return time.Duration(CeilDuration(d)) * time.Millisecond
}

// DueAt turns a due time or a delay into the due time to store. It is due if that is not zero, else delay after now,
// which is the store's clock as finely as it knows it. Both are rounded up to whole milliseconds (P2). A time in the
// past is kept. Beyond MaxDue it returns an ErrInvalid (P9).
func DueAt(now, due time.Time, delay time.Duration) (time.Time, error) {
	var ms int64
	if due.IsZero() {
		ms = CeilMillis(now) + CeilDuration(delay)
	} else {
		ms = CeilMillis(due)
	}
	if ms > punctual.MaxDue.UnixMilli() {
		return time.Time{}, invalidf("due time lies after %s", punctual.MaxDue.Format(time.RFC3339))
	}
	if ms < minDue {
		return time.Time{}, invalidf("due time lies before the year 1")
	}
	return FromMillis(ms), nil
}

// ExpiresAt returns the expiry of a message first due at due, or zero for after
// being 0. It never passes MaxDue, behind which nothing can be due anyway.
func ExpiresAt(due time.Time, after time.Duration) time.Time {
	if after == 0 {
		return time.Time{}
	}
	ms := min(due.UnixMilli()+CeilDuration(after), punctual.MaxDue.UnixMilli()+1)
	return FromMillis(ms)
}

// minDue is the first instant of the year 1, where time.Time begins; times before
// it come from broken arithmetic.
const minDue = -62135596800000
