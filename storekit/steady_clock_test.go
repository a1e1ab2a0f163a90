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

// TestSteadyClockSteps: the clock steps after StepAfter on end beyond StepBeyond, and not before.
func TestSteadyClockSteps(t *testing.T) {
	type move struct {
		by  time.Duration
		due bool // afterwards
	}
	const s, far = time.Second, -time.Hour
	for name, moves := range map[string][]move{
		"after 5 s":                    {{far, false}, {2 * s, false}, {2*s + 999*time.Millisecond, false}, {time.Millisecond, true}},
		"after a long time unread":     {{far, false}, {time.Minute, true}},
		"not when right in between":    {{far, false}, {4 * s, false}, {-far, false}, {far, false}, {4 * s, false}},
		"not for 2 s":                  {{-StepBeyond, false}, {s, false}, {-s / 2, false}, {s, false}, {-s, false}, {s, false}, {-s, false}, {s, false}},
		"further back goes on":         {{far, false}, {3 * s, false}, {far, false}, {2 * s, true}},
		"not once it has come near":    {{far, false}, {3 * s, false}, {-far - 3*s, false}, {s, false}, {s, false}},
		"not when it runs ahead":       {{time.Hour, false}, {time.Hour, false}},
		"due until the source is near": {{far, false}, {6 * s, true}, {-far, false}},
	} {
		t.Run(name, func(t *testing.T) {
			source := NewManualClock(clockStart)
			c := NewSteadyClock(source, source.Now())
			for i, m := range moves {
				source.Advance(m.by)
				before := c.Now()
				if got := c.StepDue(); got != m.due {
					t.Fatalf("P8: move %d, by %v, to %v: the clock says %v, step due: %t, want %t", i, m.by, source.Now(), before, got, m.due)
				}
			}
			before := c.Now()
			ahead := before.Sub(source.Now())
			if got := c.State().Ahead; got != ahead {
				t.Errorf("the state has the clock ahead by %v, want %v", got, ahead)
			}
			step, stepped := c.Step()
			if stepped != (ahead > 0) || stepped && (!step.From.Equal(before) || !step.To.Equal(source.Now())) {
				t.Errorf("Step = %+v, %t; want one from %v to %v if that is earlier", step, stepped, before, source.Now())
			}
			if got := c.Now(); !got.Equal(source.Now()) || c.StepDue() {
				t.Errorf("after the step the clock says %v, step due: %t; want %v and none", got, c.StepDue(), source.Now())
			}
		})
	}
}
