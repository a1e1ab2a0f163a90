package slo

import (
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/punctualmq/punctual"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Objective{
		"1s@99": {time.Second, 99}, "500ms@99.9": {500 * time.Millisecond, 99.9}, "2m@50": {2 * time.Minute, 50},
	} {
		if got, err := Parse(text); err != nil || got != want || got.String() != text {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "1s", "@99", "1s@", "1s@100", "1s@0", "1s@-1", "0@99", "-1s@99", "1s@NaN", "1s@99%", "1@99", "1s@99@9", "1s@+Inf"} {
		if got, err := Parse(text); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("%q: %v, %v; want ErrInvalid", text, got, err)
		}
	}
}

// lateBy returns a delivery that was so late.
func lateBy(by time.Duration) *punctual.Delivery {
	due := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	return &punctual.Delivery{Message: punctual.Message{Due: due, Created: due.Add(-time.Hour)}, Delivered: due.Add(by)}
}

// The lateness of a message that was pushed after its due time counts from the push, because nobody
// can deliver it earlier.
func TestPushedLate(t *testing.T) {
	l := New(Objective{time.Second, 99})
	d := lateBy(time.Hour)
	d.Created = d.Delivered.Add(-time.Second)
	l.Delivered(d)
	if got := l.BurnRate(time.Hour); got != 0 {
		t.Errorf("a message pushed an hour behind its due time and delivered in a second: burn rate %v, want 0", got)
	}
}

func TestBurnRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, err := Parse("1s@99")
		if err != nil {
			t.Fatal(err)
		}
		l := New(o)
		want := func(what string, short, long, longest float64, degraded bool) {
			t.Helper()
			for i, rate := range []float64{short, long, longest} {
				if got := l.BurnRate(Windows()[i]); math.Abs(got-rate) > 1e-9 {
					t.Errorf("%s: burn rate over %v is %v, want %v", what, Windows()[i], got, rate)
				}
			}
			if got := l.Degraded(); (len(got) > 0) != degraded {
				t.Errorf("%s: degraded %q, want %v", what, got, degraded)
			}
		}
		deliver := func(inTime, late int) {
			for range inTime {
				l.Delivered(lateBy(time.Second)) // the limit itself is in time
			}
			for range late {
				l.Delivered(lateBy(time.Second + time.Millisecond))
			}
		}
		want("nothing", 0, 0, 0, false)
		deliver(99, 1)
		want("as promised", 1, 1, 1, false)
		deliver(0, 100)
		want("late", 50.5, 50.5, 50.5, true)
		if got := l.Degraded(); !strings.Contains(got[0], "1s@99") {
			t.Errorf("degraded %q", got)
		}
		time.Sleep(6 * time.Minute)
		want("five minutes later", 0, 50.5, 50.5, false)
		deliver(100, 0)
		want("in time again", 0, 101.0/300*100, 101.0/300*100, false)
		time.Sleep(61 * time.Minute)
		want("an hour later", 0, 0, 101.0/300*100, false)
		time.Sleep(5 * time.Hour)
		want("six hours later", 0, 0, 0, false)
		for range 100 { // the ring is used again
			deliver(1, 1)
			time.Sleep(7 * time.Minute)
		}
		want("each seven minutes", 0, 50, 50, false)
	})
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Objective{time.Second, 90})
		l.Delivered(lateBy(0))
		l.Delivered(lateBy(time.Minute))
		const want = `
# HELP punctual_lateness_slo_burn_rate How many times more deliveries were late in the window than the objective allows.
# TYPE punctual_lateness_slo_burn_rate gauge
punctual_lateness_slo_burn_rate{window="1h"} 5
punctual_lateness_slo_burn_rate{window="5m"} 5
punctual_lateness_slo_burn_rate{window="6h"} 5
# HELP punctual_lateness_slo_limit_seconds How late a delivery may be by the objective.
# TYPE punctual_lateness_slo_limit_seconds gauge
punctual_lateness_slo_limit_seconds 1
# HELP punctual_lateness_slo_objective_ratio Which part of the deliveries is to be in time by the objective.
# TYPE punctual_lateness_slo_objective_ratio gauge
punctual_lateness_slo_objective_ratio 0.9
`
		if err := testutil.CollectAndCompare(l, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
		if problems, err := testutil.CollectAndLint(l); err != nil || len(problems) > 0 {
			t.Errorf("%v, %v", problems, err)
		}
	})
}
