package clock

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual/storekit"
)

// P8: the latest time that was told is never lower, whatever is told later. What the clock probably says goes on from
// the answer by which it is furthest ahead.
func TestItNeverRunsBackwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(nil)
		c.Hear(5000, 0)
		c.Hear(4000, 0) // a server whose clock was set back, or an answer that took long
		if c.Floor() != 5000 || c.Guess() != 5_000_000 {
			t.Errorf("P8: told 5000 and 4000 ms: %d, about %d", c.Floor(), c.Guess())
		}
		time.Sleep(time.Second)
		if c.Floor() != 5000 || c.Guess() != 6_000_000 {
			t.Errorf("a second later: %d, about %d", c.Floor(), c.Guess())
		}
		c.Hear(6500, 7)
		if c.Floor() != 6500 || c.Guess() != 6_500_007 {
			t.Errorf("told a later time: %d, about %d", c.Floor(), c.Guess())
		}
	})
}

// An answer that was quick counts for a while; then a later one does, though it may have taken longer.
func TestWhichAnswerCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(nil)
		c.Hear(5000, 0)
		time.Sleep(freshFor)
		c.Hear(14_900, 0)
		if got := c.Guess(); got != 15_000_000 {
			t.Errorf("about %d; want what the quick answer says", got)
		}
		time.Sleep(time.Millisecond)
		c.Hear(14_901, 0)
		if got := c.Guess(); got != 14_901_000 {
			t.Errorf("about %d; want what the later answer says", got)
		}
	})
}

// The deadline of a call is so far ahead, or the end of its context, or what its request says.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(nil)
		c.Hear(100_000, 0)
		ctx, end := context.WithTimeout(t.Context(), 3*time.Second)
		defer end()
		named := storekit.WithRequest(t.Context(), storekit.Request{Key: "k", NotAfter: time.UnixMilli(101_000)})
		for what, x := range map[string]struct {
			ctx  context.Context
			want int64
		}{"no end": {t.Context(), 115_000}, "an end": {ctx, 103_000}, "a request": {named, 100_999}} {
			if got := c.Deadline(x.ctx, 15_000); got != x.want {
				t.Errorf("the deadline with %s is %d; want %d", what, got, x.want)
			}
		}
		if c.Passed(named) {
			t.Error("the time of the request has passed, a second before")
		}
		c.Hear(101_000, 0)
		if !c.Passed(named) {
			t.Error("the time of the request has not passed")
		}
	})
}

// A refusal corrects the clock, unless it is known to be later already.
func TestCorrect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(nil)
		c.Hear(5000, 0)
		time.Sleep(time.Hour)
		c.Correct(6000)
		if got := c.Guess(); got != 6_000_000 {
			t.Errorf("about %d after a refusal at 6000 ms", got)
		}
		c.Correct(5500)
		if c.Floor() != 6000 {
			t.Errorf("P8: an earlier refusal took it back to %d", c.Floor())
		}
	})
}

// Times that are never reached stay so in the local clock; others are as far ahead.
func TestAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(nil)
		c.Hear(5000, 0)
		if c.At(Never) != math.MaxInt64 || c.At(-Never) != -math.MaxInt64 {
			t.Errorf("never is at %d and %d", c.At(Never), c.At(-Never))
		}
		if got := c.At(7000) - c.Now(); got != 2_000_000 {
			t.Errorf("2 s ahead are %d µs", got)
		}
		reached, stop := c.After(c.At(7000))
		defer stop()
		begun := time.Now()
		<-reached
		if got := time.Since(begun); got != 2*time.Second {
			t.Errorf("it woke after %v", got)
		}
	})
}

// The clock of a test tells scripts its time, rounded up to a microsecond but not into the next millisecond.
func TestFake(t *testing.T) {
	fake := storekit.NewManualClock(time.Unix(5, 999_999_500))
	c := New(fake)
	if _, seconds, micros := c.Args(); seconds != 5 || micros != 999_999 {
		t.Errorf("scripts are told %d s and %d µs", seconds, micros)
	}
	if _, seconds, _ := New(nil).Args(); seconds >= 0 {
		t.Errorf("scripts are told %d s; want that of the server", seconds)
	}
}
