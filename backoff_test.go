package punctual

import (
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestBackoffList(t *testing.T) {
	b := Backoff{Delays: []time.Duration{2 * time.Minute, 10 * time.Minute, time.Hour}}
	for attempt, want := range map[int]time.Duration{
		-1: 2 * time.Minute, 0: 2 * time.Minute, 1: 2 * time.Minute, 2: 10 * time.Minute, 3: time.Hour, 4: time.Hour, 1000: time.Hour,
	} {
		if got := b.Delay(attempt); got != want {
			t.Errorf("after attempt %d: %v: want %v", attempt, got, want)
		}
	}
}

func TestBackoffDoublesUpToMax(t *testing.T) {
	b := Backoff{Base: time.Second, Max: 10 * time.Second}
	for i, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
		if got := b.Delay(i + 1); got != want*time.Second {
			t.Errorf("after attempt %d: %v: want %v", i+1, got, want*time.Second)
		}
	}
}

func TestBackoffOfNothing(t *testing.T) {
	if got := (Backoff{}).Delay(1000); got != 0 {
		t.Errorf("the zero Backoff waits %v", got)
	}
}

// Whatever passes check gives delays that are not negative and not above the bound.
func TestBackoffStaysInBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.Int64Range(0, int64(maxDelay)).Draw(t, "base")
		b := Backoff{
			Base:   time.Duration(base),
			Max:    time.Duration(rapid.Int64Range(base, int64(maxDelay)).Draw(t, "max")),
			Jitter: rapid.Float64Range(0, 1).Draw(t, "jitter"),
		}
		if err := b.check(); err != nil {
			t.Fatalf("check: %v", err)
		}
		attempt := rapid.IntRange(-1, 1000).Draw(t, "attempt")
		got, least := b.Delay(attempt), b.Base
		most := b.Max + time.Duration(b.Jitter*float64(b.Max))
		if got < least || got > most {
			t.Fatalf("after attempt %d: %v: want %v to %v", attempt, got, least, most)
		}
	})
}

func TestBackoffCheck(t *testing.T) {
	good := []Backoff{
		DefaultBackoff(),
		{},
		{Delays: []time.Duration{0, time.Hour}},
		{Delays: []time.Duration{1}, Base: -1}, // the other fields are unused
	}
	for _, b := range good {
		if err := b.check(); err != nil {
			t.Errorf("%+v: %v", b, err)
		}
	}
	bad := []Backoff{
		{Delays: []time.Duration{time.Second, -1}},
		{Delays: []time.Duration{maxDelay + 1}},
		{Base: -1, Max: 1},
		{Base: 2, Max: 1},
		{Max: maxDelay + 1},
		{Base: 1, Max: 1, Jitter: -0.1},
		{Base: 1, Max: 1, Jitter: 1.1},
		{Base: 1, Max: 1, Jitter: math.NaN()},
	}
	for _, b := range bad {
		if err := b.check(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v: want ErrInvalid", b, err)
		}
	}
}
