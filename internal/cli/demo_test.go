package cli

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
)

// told is the ledger of a story that went well, as each test of a rule starts with.
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
	l.reopened()
	return l
}

func TestAGoodStoryKeepsEveryPromise(t *testing.T) {
	for _, v := range told().results() {
		if !v.kept {
			t.Errorf("%s: %s", v.promise, v.detail)
		}
	}
}

// Every promise can be seen broken.
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
		{"the whole story", func(l *ledger) { l.reopens = 0 }},
		{"the whole story", func(l *ledger) { l.orders = l.orders[:5] }},
	} {
		l := told()
		c.spoil(l)
		results := l.results()
		n := slices.IndexFunc(results, func(v outcome) bool { return strings.HasPrefix(v.promise, c.promise) })
		if v := results[n]; v.kept || v.detail == "" {
			t.Errorf("%s was broken, and the outcome is %+v", c.promise, v)
		}
		var out, errs buffer
		a := newApp(Streams{Out: &out, Err: &errs})
		if err := a.reportDemo(l); exitFor(err) != exitError || !strings.Contains(out.String(), "BROKEN "+c.promise) {
			t.Errorf("%s was broken, and the report is %v:\n%s", c.promise, err, out.String())
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

// playVirtually plays the demo on a store in memory, in virtual time.
func playVirtually(t *testing.T, args ...string) (res result) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		defer s.Close()
		var out, errs buffer
		a := newApp(Streams{Out: &out, Err: &errs})
		a.json = slices.Contains(args, "--json")
		a.operation = "demo"
		err := a.playDemo(t.Context(), func() (punctual.Store, error) { return keptOpen{s}, nil })
		res = result{t, args, a.report(err), out.String(), errs.String()}
	})
	return res
}

func TestDemoTellsItsStory(t *testing.T) {
	res := playVirtually(t)
	if res.code != exitOK || strings.Contains(res.out, "BROKEN") {
		t.Fatalf("exit %d: %s\n%s", res.code, res.err, res.out)
	}
	for text, want := range map[string]int{
		"paid: cancelled": 3, "closed at its new time": 1, "closed after a retry": 1, "dead: attempts used up": 1, "  closed\n": 6,
		"Lateness of 12 deliveries": 1, "kept ": 8,
	} {
		if got := strings.Count(res.out, text); got != want {
			t.Errorf("%q stands %d times in the output, want %d:\n%s", text, got, want, res.out)
		}
	}
}

func TestDemoAsJSON(t *testing.T) {
	res := playVirtually(t, "--json")
	v := decode(t, res.out).(map[string]any)
	if n := len(v["promises"].([]any)); n != 8 || v["lateness"].(map[string]any)["n"] != 12.0 || res.code != exitOK {
		t.Errorf("exit %d: %s", res.code, res.out)
	}
}

func TestDemoCanBeInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		defer s.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		err := newApp(Streams{Out: &buffer{}, Err: &buffer{}}).playDemo(ctx, func() (punctual.Store, error) { return keptOpen{s}, nil })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("interrupted after 3 s: %v", err)
		}
	})
}
