package storekit

import (
	"time"

	"github.com/punctualmq/punctual/limits"
)

// Millis returns t as the Unix milliseconds in which stores count, rounded down.
func Millis(t time.Time) int64 { return t.UnixMilli() }

// CeilMillis returns t as Unix milliseconds, rounded up, so that a message due at t is never
// delivered before t.
func CeilMillis(t time.Time) int64 {
	ms := t.UnixMilli()
	if time.UnixMilli(ms).Before(t) {
		ms++
	}
	return ms
}

// FromMillis is the inverse of Millis; the time is in UTC. FromMillis(Millis(t)) of the zero Time
// is the zero Time.
func FromMillis(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// CeilDuration returns d in milliseconds, rounded up.
func CeilDuration(d time.Duration) int64 {
	ms := d.Milliseconds()
	if time.Duration(ms)*time.Millisecond < d {
		ms++
	}
	return ms
}

// WholeMillis returns d rounded up to whole milliseconds. The caller has checked an upper bound of
// d, since the result must be a time.Duration.
func WholeMillis(d time.Duration) time.Duration {
	return time.Duration(CeilDuration(d)) * time.Millisecond
}

// DueAt returns the due time to store: due if it is not zero, else delay after now, each rounded up
// to whole milliseconds (P2). now is the store's clock in the resolution that it has, because a
// delay that counted from a clock rounded down could end too early. A due time in the past is not
// replaced by now. A due time after limits.MaxDue, or before the year 1, is an ErrInvalid (P9).
func DueAt(now, due time.Time, delay time.Duration) (time.Time, error) {
	var ms int64
	if due.IsZero() {
		ms = CeilMillis(now) + CeilDuration(delay)
	} else {
		ms = CeilMillis(due)
	}
	if ms > limits.MaxDue.UnixMilli() {
		return time.Time{}, Invalidf("due time lies after %s", limits.MaxDue.Format(time.RFC3339))
	}
	if ms < minDue {
		return time.Time{}, Invalidf("due time lies before the year 1")
	}
	return FromMillis(ms), nil
}

// ExpiresAt returns the expiry of a message first due at due that expires after so long, or the
// zero Time when after is 0. It is at most the millisecond after limits.MaxDue, because no message
// is due then.
func ExpiresAt(due time.Time, after time.Duration) time.Time {
	if after == 0 {
		return time.Time{}
	}
	ms := min(due.UnixMilli()+CeilDuration(after), limits.MaxDue.UnixMilli()+1)
	return FromMillis(ms)
}

// minDue is the first instant of the year 1, in Unix milliseconds. An earlier due time comes from
// an arithmetic error of the caller.
const minDue = -62135596800000
