package storekit

import (
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
)

// Rounding a due time up never makes it early (P2), and by less than a millisecond late.
func TestCeilMillis(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := time.Unix(rapid.Int64Range(-62135596800, 253402300799).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns"))
		up, down := FromMillis(CeilMillis(at)), FromMillis(Millis(at))
		if up.Before(at) || up.Sub(at) >= time.Millisecond {
			t.Fatalf("P2: %v was rounded up to %v", at, up)
		}
		if down.After(at) || at.Sub(down) >= time.Millisecond {
			t.Fatalf("P2: %v was rounded down to %v", at, down)
		}
	})
}

func TestCeilDuration(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, -1: 0, -time.Millisecond: -1,
		math.MaxInt64: math.MaxInt64/1_000_000 + 1,
	} {
		if got := CeilDuration(d); got != want {
			t.Errorf("CeilDuration(%v) is %d: want %d", d, got, want)
		}
	}
}

func TestMillisKeepZeroTime(t *testing.T) {
	if got := FromMillis(Millis(time.Time{})); !got.IsZero() {
		t.Errorf("the zero Time became %v", got)
	}
}

func TestDueAt(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 1, time.UTC) // 1 ns after noon
	noon := now.Truncate(time.Second)
	ms := time.Millisecond
	for name, test := range map[string]struct {
		due   time.Time
		delay time.Duration
		want  time.Time
	}{
		"now":         {want: noon.Add(ms)},
		"delay":       {delay: time.Minute, want: noon.Add(time.Minute + ms)},
		"fine delay":  {delay: time.Minute + 1, want: noon.Add(time.Minute + 2*ms)},
		"due":         {due: noon.Add(time.Hour), want: noon.Add(time.Hour)},
		"fine due":    {due: noon.Add(time.Hour + 1), want: noon.Add(time.Hour + ms)},
		"past":        {due: time.Unix(0, 0), want: time.Unix(0, 0)},
		"before 1970": {due: time.Date(1066, 1, 1, 0, 0, 0, 0, time.UTC), want: time.Date(1066, 1, 1, 0, 0, 0, 0, time.UTC)},
		"last":        {due: limits.MaxDue, want: limits.MaxDue},
	} {
		got, err := DueAt(now, test.due, test.delay)
		if err != nil || !got.Equal(test.want) || got.Location() != time.UTC {
			t.Errorf("%s: %v, %v: want %v in UTC", name, got, err, test.want)
		}
	}
}

func TestDueAtOutOfRange(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for name, due := range map[string]time.Time{
		"1 ns after the last": limits.MaxDue.Add(1),
		"year 10000":          time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC),
		"year 0":              time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC),
		"1e15 ms":             time.UnixMilli(1e15),
	} {
		if got, err := DueAt(now, due, 0); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("P9: %s: %v, %v: want ErrInvalid", name, got, err)
		}
	}
	if got, err := DueAt(limits.MaxDue, time.Time{}, 1); !errors.Is(err, punctual.ErrInvalid) {
		t.Errorf("P9: a delay past the last due time: %v, %v: want ErrInvalid", got, err)
	}
	if got, err := DueAt(now, time.UnixMilli(1e13), 0); err != nil || got.UnixMilli() != 1e13 {
		t.Errorf("P9: 1e13 ms is in the year 2286: %v, %v", got, err)
	}
}

func TestExpiresAt(t *testing.T) {
	due := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for after, want := range map[time.Duration]time.Time{
		0:               {},
		1:               due.Add(time.Millisecond),
		time.Hour:       due.Add(time.Hour),
		time.Hour + 1e3: due.Add(time.Hour + time.Millisecond),
	} {
		if got := ExpiresAt(due, after); !got.Equal(want) {
			t.Errorf("expiry %v after: %v: want %v", after, got, want)
		}
	}
	if got := ExpiresAt(limits.MaxDue, math.MaxInt64); !got.After(limits.MaxDue) || got.Sub(limits.MaxDue) > time.Millisecond {
		t.Errorf("the last message expires at %v: want just behind MaxDue", got)
	}
}
