package storekit

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestSteadyClock(t *testing.T) {
	type step struct{ move, want time.Duration } // want counts from clockStart
	const h = time.Hour
	tests := map[string][]step{
		"follows":                        {{0, 0}, {h, h}, {24 * h, 25 * h}},
		"stands at a step back":          {{h, h}, {-h, h}, {0, h}},
		"half speed until caught up":     {{h, h}, {-h, h}, {h / 2, h + h/4}, {h / 4, h + 3*h/8}, {h, 7 * h / 4}},
		"forward step ends the catch-up": {{h, h}, {-h, h}, {24 * h, 24 * h}},
		"two steps back":                 {{h, h}, {-h, h}, {h / 2, 5 * h / 4}, {-h, 5 * h / 4}, {h, 7 * h / 4}},
		"meets the source half way":      {{h, h}, {-h, h}, {2*h - 1, 2*h - 1}, {1, 2 * h}},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			source := NewManualClock(clockStart)
			c := NewSteadyClock(source, time.Time{})
			for i, s := range steps {
				source.Advance(s.move)
				if got := c.Now().Sub(clockStart); got != s.want {
					t.Fatalf("P8 one clock: step %d: %v after its start, want %v", i, got, s.want)
				}
			}
		})
	}
}

func TestSteadyClockNeverRunsBackwardsNorFast(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	source := NewManualClock(clockStart)
	c := NewSteadyClock(source, time.Time{})
	last := c.Now()
	for range 10_000 {
		move := time.Duration(r.Int64N(int64(time.Minute))) - 25*time.Second
		source.Advance(move)
		got := c.Now()
		if got.Before(last) {
			t.Fatalf("P8 one clock: %v after %v", got, last)
		}
		if got.After(last.Add(max(0, move))) {
			t.Fatalf("P8 one clock: the source moved by %v, the store's clock by %v", move, got.Sub(last))
		}
		if got.Before(source.Now()) {
			t.Fatalf("P2 never early turned into late: %v is behind its source %v", got, source.Now())
		}
		last = got
	}
}

func TestSteadyClockStartsAtWhatHasPassed(t *testing.T) {
	source := NewManualClock(clockStart)
	passed := clockStart.Add(time.Hour)
	c := NewSteadyClock(source, passed)
	if got := c.Now(); !got.Equal(passed) {
		t.Errorf("P8: the clock starts at %v, behind %v, which was told before", got, passed)
	}
	if got := NewSteadyClock(source, clockStart.Add(-time.Hour)).Now(); !got.Equal(clockStart) {
		t.Errorf("the clock starts at %v, want its source's %v", got, clockStart)
	}
}

// TestSteadyClockAfter: how long a wait takes by the source.
func TestSteadyClockAfter(t *testing.T) {
	const h = time.Hour
	for name, test := range map[string]struct{ ahead, to, limit, want time.Duration }{
		"as its source":               {to: h, limit: 2 * h, want: h},
		"limited":                     {to: h, limit: time.Second, want: time.Second},
		"reached":                     {limit: h},
		"half speed":                  {ahead: 4 * h, to: h, limit: 9 * h, want: 2 * h},
		"half speed, limited":         {ahead: 4 * h, to: h, limit: h, want: h},
		"the source catches up":       {ahead: h, to: 2 * h, limit: 9 * h, want: 3 * h},
		"reached ahead of its source": {ahead: h, limit: h},
	} {
		source := NewManualClock(clockStart)
		c := NewSteadyClock(source, clockStart.Add(test.ahead))
		reached, stop := c.After(c.Now().Add(test.to), test.limit)
		if test.want > 0 {
			source.Advance(test.want - 1)
			if received(reached) {
				t.Errorf("%s: woken before %v", name, test.want)
				continue
			}
			source.Advance(1)
		}
		if !received(reached) {
			t.Errorf("%s: not woken after %v", name, test.want)
		}
		stop()
	}
}

// TestStepRule: the clock is to step after StepAfter on end beyond StepBeyond, and not before.
func TestStepRule(t *testing.T) {
	type reading struct {
		by, ahead time.Duration // how much later the reading is, and what it says
		due       bool
	}
	const s, ms, far, near = time.Second, time.Millisecond, time.Hour, StepBeyond
	for name, readings := range map[string][]reading{
		"after 5 s":                    {{0, far, false}, {2 * s, far, false}, {2*s + 999*ms, far, false}, {ms, far, true}},
		"after a long time unread":     {{0, far, false}, {time.Minute, far, true}},
		"when first read far ahead":    {{time.Minute, far, false}, {5*s - 1, far, false}, {1, far, true}},
		"not when right in between":    {{0, far, false}, {4 * s, far, false}, {0, 0, false}, {0, far, false}, {4 * s, far, false}, {s, far, true}},
		"not for 2 s":                  {{0, near, false}, {s, near, false}, {s, near + 1, false}, {4 * s, near, false}, {s, near, false}},
		"just beyond 2 s":              {{0, near + 1, false}, {5 * s, near + 1, true}},
		"further ahead goes on":        {{0, far, false}, {3 * s, far, false}, {0, 2 * far, false}, {2 * s, 2 * far, true}},
		"not once it has come near":    {{0, far, false}, {6 * s, near, false}, {s, near, false}},
		"not when it is behind":        {{0, -far, false}, {far, -far, false}},
		"due until the source is near": {{0, far, false}, {6 * s, far, true}, {s, far, true}, {0, near, false}, {6 * s, far, false}},
		"a local clock runs backwards": {{0, far, false}, {4 * s, far, false}, {-far, 2 * far, false}, {s - 1, 2 * far, false}, {1, 2 * far, true}},
	} {
		var r StepRule
		at := clockStart
		for i, x := range readings {
			at = at.Add(x.by)
			if got := r.Due(at, x.ahead); got != x.due {
				t.Errorf("P8: %s: reading %d, by %v later, ahead by %v: due %t, want %t", name, i, x.by, x.ahead, got, x.due)
			}
		}
	}
}

// TestSteadyClockSteps: the clock goes by StepRule, and steps to its source. A step begins the rule
// anew.
func TestSteadyClockSteps(t *testing.T) {
	source := NewManualClock(clockStart)
	c := NewSteadyClock(source, source.Now())
	for round := range 2 {
		for i, by := range []time.Duration{-time.Hour, StepAfter - 1, 1} {
			source.Advance(by)
			before := c.Now()
			if due := i == 2; c.StepDue() != due || c.State().Ahead != before.Sub(source.Now()) {
				t.Fatalf("P8: round %d, move %d, to %v: the clock says %v, step due: %t, %+v", round, i, source.Now(), before, c.StepDue(), c.State())
			}
		}
		before := c.Now()
		if step, stepped := c.Step(); !stepped || !step.From.Equal(before) || !step.To.Equal(source.Now()) || c.State().Last != step {
			t.Errorf("Step = %+v, %t; want one from %v to %v", step, stepped, before, source.Now())
		}
		if step, again := c.Step(); again || !c.Now().Equal(source.Now()) || c.StepDue() {
			t.Errorf("after the step the clock says %v, step due: %t, and a second step is %+v; want %v and none", c.Now(), c.StepDue(), step, source.Now())
		}
	}
}
