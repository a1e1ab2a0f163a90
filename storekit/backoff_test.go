package storekit

import (
	"cmp"
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/punctualmq/punctual"
)

func TestBackoffList(t *testing.T) {
	b := punctual.Backoff{Delays: []time.Duration{2 * time.Minute, 10 * time.Minute, time.Hour}}
	for attempt, want := range map[int]time.Duration{
		-1: 2 * time.Minute, 0: 2 * time.Minute, 1: 2 * time.Minute, 2: 10 * time.Minute, 3: time.Hour, 4: time.Hour, 1000: time.Hour,
	} {
		if got := RetryDelay(b, attempt); got != want {
			t.Errorf("after attempt %d: %v: want %v", attempt, got, want)
		}
	}
}

func TestBackoffDoublesUpToMax(t *testing.T) {
	b := punctual.Backoff{Base: time.Second, Max: 10 * time.Second}
	for i, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
		if got := RetryDelay(b, i+1); got != want*time.Second {
			t.Errorf("after attempt %d: %v: want %v", i+1, got, want*time.Second)
		}
	}
}

// TestBackoffSpreads: with a Jitter messages that failed together become due at different times,
// also when the delay has grown to Max.
func TestBackoffSpreads(t *testing.T) {
	b := punctual.Backoff{Base: time.Second, Max: time.Hour, Jitter: 0.5}
	for _, attempt := range []int{1, 2, 12, 13, 64, 65, 1000} { // from the 13th on it is Max
		least := min(time.Second<<min(attempt-1, 20), time.Hour)
		seen := make(map[time.Duration]bool)
		var lowest, highest time.Duration
		for range 1000 {
			d := RetryDelay(b, attempt)
			seen[d] = true
			lowest, highest = min(cmp.Or(lowest, d), d), max(highest, d)
		}
		// Of 1000 uniform draws none in an eighth of the range is as likely as 1 in 10^58.
		if eighth := least / 16; len(seen) < 900 || lowest > least+eighth || highest < least+7*eighth {
			t.Errorf("1000 delays after attempt %d are %d different ones from %v to %v; want them spread over %v to %v",
				attempt, len(seen), lowest, highest, least, least+least/2)
		}
	}
}

func TestBackoffOfNothing(t *testing.T) {
	if got := RetryDelay(punctual.Backoff{}, 1000); got != 0 {
		t.Errorf("the zero Backoff waits %v", got)
	}
}

// A backoff that passes the check has no negative delay and none above the bound.
func TestBackoffStaysInBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.Int64Range(0, int64(maxDelay)).Draw(t, "base")
		b := punctual.Backoff{
			Base:   time.Duration(base),
			Max:    time.Duration(rapid.Int64Range(base, int64(maxDelay)).Draw(t, "max")),
			Jitter: rapid.Float64Range(0, 1).Draw(t, "jitter"),
		}
		if err := checkBackoff(b); err != nil {
			t.Fatalf("check: %v", err)
		}
		attempt := rapid.IntRange(-1, 1000).Draw(t, "attempt")
		got, least := RetryDelay(b, attempt), b.Base
		most := b.Max + time.Duration(b.Jitter*float64(b.Max))
		if got < least || got > most {
			t.Fatalf("after attempt %d: %v: want %v to %v", attempt, got, least, most)
		}
	})
}

func TestBackoffCheck(t *testing.T) {
	good := []punctual.Backoff{
		punctual.DefaultSettings().Backoff,
		{},
		{Delays: []time.Duration{0, time.Hour}},
		{Delays: []time.Duration{1}, Base: -1}, // the other fields are unused
	}
	for _, b := range good {
		if err := checkBackoff(b); err != nil {
			t.Errorf("%+v: %v", b, err)
		}
	}
	bad := []punctual.Backoff{
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
		if err := checkBackoff(b); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("%+v: %v: want ErrInvalid", b, err)
		}
	}
}

// maxDelay is the longest delay that internal/settings lets a backoff have.
const maxDelay = 10 * 365 * 24 * time.Hour

func checkBackoff(b punctual.Backoff) error {
	_, err := ApplySettings(punctual.DefaultSettings(), punctual.SettingsPatch{Backoff: &b}, AllAbilities())
	return err
}
