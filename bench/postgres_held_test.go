package main

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Lives and claims count in the part of the round in which they were finished, also at the borders
// between parts.
func TestCourse(t *testing.T) {
	begin := time.Unix(1000, 0)
	c := newCourse(10*time.Second, begin)
	at := func(d time.Duration) time.Time { return begin.Add(d) }
	for _, x := range []struct {
		after time.Duration
		done  int64
		ended bool
	}{{0, 100, false}, {time.Second - 1, 200, false}, {time.Second, 250, true}, {9 * time.Second, 260, true}, {9999 * time.Millisecond, 300, false}, {10 * time.Second, 999, false}} {
		c.claimed(at(x.after), time.Duration(x.done)*time.Millisecond)
		if _, ended := c.doneBy(at(x.after), x.done); ended != x.ended {
			t.Errorf("after %v a part has ended: %v, want %v", x.after, ended, x.ended)
		}
	}
	out := &Result{Values: map[string]float64{}}
	c.note(out)
	want := map[int]float64{0: 200, 1: 50, 9: 50}
	rates := out.Series["rate"]
	if len(rates) != heldParts {
		t.Fatalf("%d parts are noted", len(rates))
	}
	for i, p := range rates {
		if p.Y != want[i] || p.X != float64(i+1) {
			t.Errorf("part %d has rate %v until %v s, want %v until %v s", i, p.Y, p.X, want[i], i+1)
		}
	}
	if v := out.Values; v["first_rate"] != 200 || v["last_rate"] != 50 || !near(v["first_claim_p99_ms"], 200) || !near(v["last_claim_p50_ms"], 260) {
		t.Errorf("first and last part are noted as %v", v)
	}
}

// The table has a row for each part, and says where a system was not measured.
func TestHeldTable(t *testing.T) {
	c := newCourse(600*time.Second, time.Unix(0, 0))
	c.doneBy(time.Unix(1, 0), 300_000)
	res := Result{Scenario: heldName(sysPunctual), Values: map[string]float64{"messages": 300_000}}
	c.note(&res)
	text := heldTable(run{results: []Result{res}})
	for _, want := range []string{
		"| with the snapshot held for | Punctual, lives/s | claim p50 ms | p99 ms | River, lives/s |",
		"| 1m0s | 5,000 | 0 | 0 | not measured | not measured | not measured |\n",
		"| 10m0s | 0 | 0 | 0 | not measured | not measured | not measured |\n",
		"| Punctual | 300,000 | - |", "| River | not measured |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, text)
		}
	}
}

// countedLives is a system that only counts the messages it has, and whose claims take as long as
// takes says.
type countedLives struct {
	postgresSystem
	takes time.Duration

	mu      sync.Mutex
	waiting int       // guarded by mu: messages pushed and not finished
	largest int       // guarded by mu: the most that waiting has been
	last    time.Time // guarded by mu: when the latest push was
}

func (c *countedLives) push(_ context.Context, _ int, ls []letter) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting += len(ls)
	c.largest = max(c.largest, c.waiting)
	c.last = time.Now()
	return nil
}

func (c *countedLives) finish(_ context.Context, n int) (int, time.Duration, error) {
	time.Sleep(c.takes)
	c.mu.Lock()
	defer c.mu.Unlock()
	got := min(n, c.waiting)
	c.waiting -= got
	return got, c.takes, nil
}

// Messages are pushed at the rate where claims are fast. Where claims are slow, pushes wait for
// them. The time is virtual.
func TestLivesKeepTheRate(t *testing.T) {
	for takes, want := range map[time.Duration]time.Duration{time.Millisecond: 10 * time.Second, time.Second: 50 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			sys := &countedLives{takes: takes}
			begin := time.Now()
			l := &lives{sys: sys, batch: 10, rate: 100, claimed: func(time.Duration) {}, enough: func(done int64) bool { return done >= 1000 }}
			n, err := l.run(t.Context())
			if err != nil || n < 1000 || sys.waiting != 0 {
				t.Fatalf("%d lives, %d left over, %v", n, sys.waiting, err)
			}
			if took := sys.last.Sub(begin); took < want*9/10 || took > want*11/10 {
				t.Errorf("with claims of %v the last of %d messages was pushed after %v, want about %v", takes, n, took, want)
			}
			if sys.largest > lifeAhead*10 {
				t.Errorf("%d messages waited for a claim; at most %d batches of 10 may", sys.largest, lifeAhead)
			}
		})
	}
}
