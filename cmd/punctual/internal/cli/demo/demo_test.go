package demo

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/cmd/punctual/internal/cli/term"
)

var start = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

// told is the ledger of a story that went well. The tests check it as it is, or spoil it first.
func told() *ledger {
	l := newLedger()
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	visited := func(id string, err error, attempt int, due, delivered float64, failures ...float64) {
		d := &punctual.Delivery{Message: punctual.Message{ID: id, Due: at(due), Attempt: attempt}, Delivered: at(delivered)}
		for n, f := range failures {
			d.Failures = append(d.Failures, punctual.Failure{Attempt: n + 1, At: at(f)})
		}
		l.delivered(d)
		l.handled(d, err)
	}
	no := errors.New("no")
	for n := range storyOrders {
		l.placed(order{Number: n}.id(), at(0), at(6))
	}
	for _, n := range []int{0, 1, 3, 9, 10, 11} {
		visited(order{Number: n}.id(), nil, 1, 6, 6.001)
	}
	for _, n := range []int{2, 5, 8} {
		l.cancelled(order{Number: n}.id())
	}
	l.rescheduled("order-1005", at(12))
	visited("order-1005", nil, 1, 12, 12)
	visited("order-1007", no, 1, 6, 6)
	visited("order-1007", nil, 2, 7.1, 7.2, 6.1)
	visited("order-1008", no, 1, 6, 6)
	visited("order-1008", no, 2, 7, 7, 6)
	visited("order-1008", no, 3, 9, 9.5, 6, 7)
	l.left(punctual.Info{
		Message: punctual.Message{ID: "order-1008", Attempt: 3}, State: punctual.StateDead,
		Reason: punctual.ReasonAttemptsUsedUp, Failures: make([]punctual.Failure, 3),
	})
	for _, n := range []int{0, 1, 3, 4, 6, 9, 10, 11} {
		for _, group := range storyGroups() {
			l.told(order{Number: n}.id(), group, &punctual.Delivery{Message: punctual.Message{Due: at(7)}, Delivered: at(7)})
		}
	}
	for n := range storyReports {
		due := at(float64(n+1) * storyReportEvery.Seconds())
		l.reported(&punctual.Delivery{Message: punctual.Message{ID: fmt.Sprintf("sales~%d", n), Due: due}, Delivered: due})
	}
	l.reopened()
	return l
}

func TestAGoodStoryKeepsEveryPromise(t *testing.T) {
	for _, v := range told().results() {
		if !v.Kept {
			t.Errorf("%s: %s", v.Promise, v.Detail)
		}
	}
}

// Each promise is reported as broken when the ledger has something that breaks it.
func TestEachBrokenPromiseIsSeen(t *testing.T) {
	for _, c := range []struct {
		promise string
		spoil   func(l *ledger)
	}{
		{"P1", func(l *ledger) { l.byID["order-1001"].visits = nil }},
		{"P1", func(l *ledger) { l.byID["order-1001"].visits[0].over = false }},
		{"P1", func(l *ledger) {
			l.byID["order-1001"].visits = nil
			l.left(punctual.Info{Message: punctual.Message{ID: "order-1001"}, State: punctual.StateReady})
		}},
		{"P2", func(l *ledger) { l.byID["order-1001"].visits[0].at = start.Add(5999 * time.Millisecond) }},
		{"P2", func(l *ledger) { l.byID["order-1001"].due = start.Add(time.Minute) }},
		{"P3", func(l *ledger) { v := l.byID["order-1001"]; v.visits = append(v.visits, v.visits[0]) }},
		{"P3", func(l *ledger) {
			l.left(punctual.Info{Message: punctual.Message{ID: "order-1001"}, State: punctual.StateReady})
		}},
		{"P5 cancel", func(l *ledger) { l.byID["order-1003"].visits = l.byID["order-1001"].visits }},
		{"P5 cancel", func(l *ledger) {
			l.left(punctual.Info{Message: punctual.Message{ID: "order-1003"}, State: punctual.StateScheduled})
		}},
		{"P5 reschedule", func(l *ledger) { l.byID["order-1005"].visits[0].due = start.Add(6 * time.Second) }},
		{"P6 a failed", func(l *ledger) { l.byID["order-1007"].visits[1].due = start.Add(7099 * time.Millisecond) }},
		{"P6 a failed", func(l *ledger) { l.byID["order-1007"].visits[1].due = start.Add(7102 * time.Millisecond) }},
		{"P6 a failed", func(l *ledger) { l.byID["order-1007"].visits[1].failedAt = time.Time{} }},
		{"P6 the poisoned", func(l *ledger) { l.byID["order-1008"].left = nil }},
		{"P6 the poisoned", func(l *ledger) { l.byID["order-1008"].left.Failures = nil }},
		{"P6 the poisoned", func(l *ledger) { l.byID["order-1008"].left.Reason = punctual.ReasonExpired }},
		{"P6 the poisoned", func(l *ledger) { v := l.byID["order-1008"]; v.visits = v.visits[:2] }},
		{"P6 the poisoned", func(l *ledger) { v := l.byID["order-1008"]; v.visits = append(v.visits, v.visits[2]) }},
		{"P13 follow-ups", func(l *ledger) { l.byID["order-1001"].told = nil }},
		{"P13 follow-ups", func(l *ledger) { l.byID["order-1003"].told = map[string]int{"mail": 1, "billing": 1} }},
		{"groups", func(l *ledger) { l.byID["order-1001"].told["mail"] = 2 }},
		{"groups", func(l *ledger) { delete(l.byID["order-1001"].told, "mail") }},
		{"schedule", func(l *ledger) { l.occurrences = l.occurrences[1:] }},
		{"schedule", func(l *ledger) { l.occurrences[2].due = l.occurrences[1].due }},
		{"the whole story", func(l *ledger) { l.reopens = 0 }},
		{"the whole story", func(l *ledger) { l.orders = l.orders[:5] }},
	} {
		l := told()
		c.spoil(l)
		results := l.results()
		n := slices.IndexFunc(results, func(v Promise) bool { return strings.HasPrefix(v.Promise, c.promise) })
		if v := results[n]; v.Kept || v.Detail == "" {
			t.Errorf("%s was broken, and the outcome is %+v", c.promise, v)
		}
		var out strings.Builder
		r := l.report()
		if r.Show(term.NewOutput(&out, false)); r.Broken() == 0 || !strings.Contains(out.String(), "BROKEN "+c.promise) {
			t.Errorf("%s was broken, and the report of %d is\n%s", c.promise, r.Broken(), out.String())
		}
	}
}

func TestPercentiles(t *testing.T) {
	var values []time.Duration
	for n := range 200 {
		values = append(values, time.Duration(n+1))
	}
	for p, want := range map[int]time.Duration{50: 100, 99: 198, 100: 200, 0: 1} {
		if got := percentile(values, p); got != want {
			t.Errorf("p%d of 1 to 200 is %d, want %d", p, got, want)
		}
	}
	if got := percentile(values[:1], 99); got != 1 {
		t.Errorf("p99 of one value is %d", got)
	}
}
