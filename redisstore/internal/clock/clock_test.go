package clock

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual/storekit"
)

// P8: the lower bound never falls, whatever time a later answer has. The guess goes on from the
// answer by which it is furthest ahead.
func TestItNeverRunsBackwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(nil)
		c.Hear("", time.Now(), 0, 5000, 0)
		time.Sleep(time.Second)
		c.Hear("", time.Now().Add(-2*time.Second), 0, 4000, 0) // an answer that took long
		if c.LowerBound() != 5000 || c.Guess() != 6_000_000 {
			t.Errorf("P8: told 5000 ms, and a second later that it was 4000: %d, about %d", c.LowerBound(), c.Guess())
		}
		c.Hear("", time.Now(), 0, 6500, 7)
		if c.LowerBound() != 6500 || c.Guess() != 6_500_007 {
			t.Errorf("told a later time: %d, about %d", c.LowerBound(), c.Guess())
		}
	})
}

// P3: while a server's clock stands still, because it was set back, the guess stands still with
// each answer. Otherwise a short lease would count as ended at the moment at which it is given.
// After an answer that was under way for 200 ms the guess may be ahead of the answer by these 200
// ms.
func TestItStandsStill(t *testing.T) {
	const rounding = 1000
	synctest.Test(t, func(t *testing.T) {
		c := New(nil)
		for range 100 {
			c.Hear("", time.Now(), 0, 5000, 0)
			if got := c.Guess(); got > 5_000_000+rounding {
				t.Fatalf("about %d µs at a clock that stands at 5 s", got)
			}
			time.Sleep(300 * time.Millisecond)
		}
		if got := c.Guess(); got < 5_300_000 {
			t.Errorf("P3: about %d µs, 300 ms after the answer: the clock may run again", got)
		}
		c.Hear("", time.Now().Add(-200*time.Millisecond), 0, 5000, 0)
		if got := c.Guess(); got < 5_200_000 || got > 5_200_000+rounding {
			t.Errorf("P3: about %d µs after an answer that was under way for 200 ms", got)
		}
	})
}

// P3: of several servers the one whose clock is ahead counts, until it has not answered for 10 s,
// because it may have given the lease that is asked about.
func TestServersWithDifferentClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(nil)
		c.Hear("ahead", time.Now(), 0, 5000, 0)
		for range 9 {
			time.Sleep(time.Second)
			c.Hear("behind", time.Now(), 0, 5000, 0) // that server was given 5000 as the lower bound
		}
		if got := c.Guess(); got != 14_000_000 {
			t.Errorf("P3: about %d µs; want 14 s", got)
		}
		time.Sleep(2 * time.Second)
		c.Hear("behind", time.Now(), 0, 5000, 0)
		if got := c.Guess(); got > 5_001_000 {
			t.Errorf("about %d µs by a server that was not heard for 11 s", got)
		}
		time.Sleep(time.Hour)
		if got := c.Guess(); got < 3605_000_000 {
			t.Errorf("about %d µs an hour later", got)
		}
	})
}

// The deadline of a call is so many ms ahead as the caller says, or the end of its context, or the
// last ms before the NotAfter of its request.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(nil)
		c.Hear("", time.Now(), 0, 100_000, 0)
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
		c.Hear("", time.Now(), 0, 101_000, 0)
		if !c.Passed(named) {
			t.Error("the time of the request has not passed")
		}
	})
}

// P8: the clock steps by storekit.StepRule. While the latest of the nodes of a cluster agrees with
// it, it never steps, however far the others are behind.
func TestStepDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(nil)
		c.Learn(0, 100_000)
		for i, servers := range []int64{97_000, 98_000, 97_000, 97_000, 97_000, 97_000, 97_000} {
			if c.StepDue(servers) {
				t.Fatalf("it is to step at reading %d", i)
			}
			time.Sleep(time.Second)
		}
		if !c.StepDue(97_000) {
			t.Error("it is not to step, 5 s after it was first found to be ahead")
		}
		c.Learn(1, 97_000)
		if c.LowerBound() != 97_000 || c.Guess() != 97_000_000 || c.Era() != 1 {
			t.Errorf("after a step: %d, about %d", c.LowerBound(), c.Guess())
		}
		c.Hear("", time.Now(), 0, 100_001, 0) // an answer from before the step
		if c.LowerBound() != 97_000 || c.Guess() != 97_000_000 {
			t.Errorf("P8: an answer from before the step counts after it: %d, about %d", c.LowerBound(), c.Guess())
		}
		for range 10 {
			c.Learn(1, c.Guess()/1000+4000)
			if c.StepDue(c.LowerBound()) {
				t.Fatal("it is to step although the latest node agrees with it")
			}
			time.Sleep(time.Second)
		}
	})
}

// The time of a refusal corrects the guess, unless an answer had a later time.
func TestCorrect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(nil)
		c.Hear("", time.Now(), 0, 5000, 0)
		time.Sleep(time.Hour)
		c.Correct(6000, 0)
		if got := c.Guess(); got != 6_000_000 {
			t.Errorf("about %d after a refusal at 6000 ms", got)
		}
		c.Correct(5500, 0)
		if c.LowerBound() != 6000 {
			t.Errorf("P8: an earlier refusal took it back to %d", c.LowerBound())
		}
	})
}

// A time that is never reached is never reached by the local clock either. Any other time is as far
// ahead of the local clock as of the store's.
func TestAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(nil)
		c.Hear("", time.Now(), 0, 5000, 0)
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

// Scripts are given the time of a test's clock, rounded up to a microsecond but not into the next
// millisecond.
func TestFake(t *testing.T) {
	fake := storekit.NewManualClock(time.Unix(5, 999_999_500))
	c := New(fake)
	if _, _, seconds, micros := c.Args(); seconds != 5 || micros != 999_999 {
		t.Errorf("scripts are told %d s and %d µs", seconds, micros)
	}
	if _, _, seconds, _ := New(nil).Args(); seconds >= 0 {
		t.Errorf("scripts are told %d s; want that of the server", seconds)
	}
}
