package demo

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/notation"
	"github.com/punctualmq/punctual/storekit"
)

// ledger writes down what happened to each order, by the store's clock, and checks afterwards
// whether the promises were kept. It knows nothing of stores. It is safe for concurrent use.
type ledger struct {
	mu      sync.Mutex
	orders  []*entry          // in order of placing; guarded by mu
	byID    map[string]*entry // guarded by mu
	reopens int               // guarded by mu
	// occurrences are the deliveries of the schedule, in the order in which they came. Guarded by
	// mu.
	occurrences []occurrence
	// others is how late each delivery was that is not in orders: those to the groups and those of
	// the schedule. Guarded by mu.
	others []time.Duration
}

// occurrence is one time of the schedule.
type occurrence struct {
	id  string
	due time.Time
}

// entry is what is known of one order. The mu of its ledger guards it.
type entry struct {
	id     string
	placed time.Time
	// due is the due time last agreed with the store, retries aside.
	due       time.Time
	cancelled bool
	moved     bool // rescheduled
	visits    []visit
	// told counts how often each group was told that the order is closed.
	told map[string]int
	// left is the message as the store held it at the end; nil when it held none.
	left *punctual.Info
}

// visit is one delivery.
type visit struct {
	attempt int
	due, at time.Time // at is when it was claimed
	// failedAt is when the attempt before failed, as the message's history says; zero for
	// the first.
	failedAt time.Time
	over     bool  // the handler has returned
	err      error // what it returned
}

// late is how long after its due time the order was delivered.
func (v visit) late() time.Duration { return v.at.Sub(v.due) }

// succeeded tells whether the order was closed.
func (v visit) succeeded() bool { return v.over && v.err == nil }

func newLedger() *ledger { return &ledger{byID: make(map[string]*entry)} }

// of returns the entry of an order and makes it where there is none, because an order may be
// delivered before its push has returned. The caller holds mu.
func (l *ledger) of(id string) *entry {
	e := l.byID[id]
	if e == nil {
		e = &entry{id: id}
		l.byID[id] = e
		l.orders = append(l.orders, e)
	}
	return e
}

// change changes the entry of an order.
func (l *ledger) change(id string, f func(*entry)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(l.of(id))
}

func (l *ledger) placed(id string, placed, due time.Time) {
	l.change(id, func(e *entry) { e.placed, e.due = placed, due })
}

func (l *ledger) cancelled(id string) { l.change(id, func(e *entry) { e.cancelled = true }) }

func (l *ledger) rescheduled(id string, due time.Time) {
	l.change(id, func(e *entry) { e.moved, e.due = true, due })
}

func (l *ledger) left(m punctual.Info) { l.change(m.ID, func(e *entry) { e.left = &m }) }

func (l *ledger) delivered(d *punctual.Delivery) {
	v := visit{attempt: d.Attempt, due: d.Due, at: d.Delivered}
	if n := len(d.Failures); n > 0 {
		v.failedAt = d.Failures[n-1].At
	}
	l.change(d.ID, func(e *entry) { e.visits = append(e.visits, v) })
}

func (l *ledger) handled(d *punctual.Delivery, err error) {
	l.change(d.ID, func(e *entry) {
		for n := range e.visits {
			if v := &e.visits[n]; v.attempt == d.Attempt && !v.over {
				v.over, v.err = true, err
			}
		}
	})
}

// told notes that a group was told of an order.
func (l *ledger) told(id, group string, d *punctual.Delivery) {
	l.change(id, func(e *entry) {
		if e.told == nil {
			e.told = make(map[string]int)
		}
		e.told[group]++
		l.others = append(l.others, d.Delivered.Sub(d.Due))
	})
}

// reported notes that a time of the schedule came.
func (l *ledger) reported(d *punctual.Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.occurrences = append(l.occurrences, occurrence{d.ID, d.Due})
	l.others = append(l.others, d.Delivered.Sub(d.Due))
}

// reports is how many times of the schedule came.
func (l *ledger) reports() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.occurrences)
}

func (l *ledger) reopened() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reopens++
}

// entries returns a copy of all entries.
func (l *ledger) entries() []entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]entry, len(l.orders))
	for n, e := range l.orders {
		out[n] = *e
		out[n].visits = slices.Clone(e.visits)
		out[n].told = maps.Clone(e.told)
	}
	return out
}

// results checks every promise of the story.
func (l *ledger) results() []Promise {
	all := l.entries()
	return []Promise{
		checkEach("P1 nothing lost: every order that was not paid was closed, or is dead", all, notLost),
		checkEach("P2 never early: no order was delivered before it was due", all, notEarly),
		checkEach("P3 one holder: no order was delivered again after it was closed", all, closedOnce),
		checkEach("P5 cancel is definite: no paid order was delivered", all, paidNotDelivered),
		checkEach("P5 reschedule is definite: the extended order came at its new time only", all, movedOnly),
		checkEach("P6 a failed order was retried when its backoff said", all, retriedOnTime),
		checkEach("P6 the poisoned order is dead after its attempts, with its history", all, deadWithHistory),
		checkEach("P13 follow-ups: the others were told of each order that was closed, and of no other", all, toldWhenClosed),
		checkEach("groups: billing and mail were each told once", all, toldOnce),
		l.checkSchedule(),
		l.checkStory(all),
	}
}

// checkEach applies rule, which returns what is wrong with an order, to all.
func checkEach(promise string, all []entry, rule func(entry) string) Promise {
	var wrong []string
	for _, e := range all {
		if w := rule(e); w != "" {
			wrong = append(wrong, e.id+" "+w)
		}
	}
	return Promise{promise, len(wrong) == 0, strings.Join(wrong, "; ")}
}

func notLost(e entry) string {
	switch {
	case e.cancelled, e.closed(), e.dead():
		return ""
	case e.left != nil:
		return "is still " + e.left.State.String()
	}
	return "is gone, but was never closed"
}

func notEarly(e entry) string {
	for _, v := range e.visits {
		if v.at.Before(v.due) || v.at.Before(e.due) {
			return fmt.Sprintf("was due at %s and delivered at %s", notation.FormatTime(slices.MaxFunc([]time.Time{v.due, e.due}, time.Time.Compare)), notation.FormatTime(v.at))
		}
	}
	return ""
}

func closedOnce(e entry) string {
	n := slices.IndexFunc(e.visits, visit.succeeded)
	if n >= 0 && n < len(e.visits)-1 {
		return fmt.Sprintf("was delivered %d times after it was closed", len(e.visits)-1-n)
	}
	if n >= 0 && e.left != nil {
		return "was closed, but is still stored"
	}
	return ""
}

func paidNotDelivered(e entry) string {
	switch {
	case e.cancelled && len(e.visits) > 0:
		return fmt.Sprintf("was cancelled, but delivered at %s", notation.FormatTime(e.visits[0].at))
	case e.cancelled && e.left != nil:
		return "was cancelled, but is still stored"
	}
	return ""
}

func movedOnly(e entry) string {
	if e.moved && len(e.visits) > 0 && !e.visits[0].due.Equal(e.due) {
		return fmt.Sprintf("was rescheduled to %s and delivered as due at %s", notation.FormatTime(e.due), notation.FormatTime(e.visits[0].due))
	}
	return ""
}

// retriedOnTime allows a retry to be due a millisecond later than failure and backoff say, because
// the store rounds its clock down for the history and due times up.
func retriedOnTime(e entry) string {
	for n := 1; n < len(e.visits); n++ {
		v := e.visits[n]
		want := v.failedAt.Add(storekit.RetryDelay(storyBackoff(), v.attempt-1))
		if v.failedAt.IsZero() || v.due.Before(want) || v.due.After(want.Add(time.Millisecond)) || v.at.Before(want) {
			return fmt.Sprintf("failed at %s and was tried again at %s, due %s; the backoff says %s", notation.FormatTime(v.failedAt), notation.FormatTime(v.at), notation.FormatTime(v.due), notation.FormatTime(want))
		}
	}
	return ""
}

func deadWithHistory(e entry) string {
	failed := 0
	for _, v := range e.visits {
		if v.over && v.err != nil {
			failed++
		}
	}
	switch {
	case failed > storyAttempts:
		return fmt.Sprintf("was tried %d times, %d are allowed", failed, storyAttempts)
	case failed < storyAttempts && !e.dead():
		return ""
	case failed == storyAttempts && !e.dead():
		return "has no attempts left, but is not dead"
	case failed < storyAttempts:
		return fmt.Sprintf("is dead after %d of %d attempts", failed, storyAttempts)
	case e.left.Reason != punctual.ReasonAttemptsUsedUp || len(e.left.Failures) != storyAttempts:
		return fmt.Sprintf("is dead with reason %q and %d failures in its history", e.left.Reason, len(e.left.Failures))
	}
	return ""
}

func (e entry) dead() bool { return e.left != nil && e.left.State == punctual.StateDead }

func (e entry) closed() bool { return slices.ContainsFunc(e.visits, visit.succeeded) }

func toldWhenClosed(e entry) string {
	switch {
	case e.closed() && len(e.told) == 0:
		return "was closed, and nobody was told"
	case !e.closed() && len(e.told) > 0:
		return "was not closed, and others were told that it was"
	}
	return ""
}

func toldOnce(e entry) string {
	for _, group := range storyGroups() {
		if n := e.told[group]; len(e.told) > 0 && n != 1 {
			return fmt.Sprintf("was told %d times to %s", n, group)
		}
	}
	return ""
}

// checkSchedule checks that every time of the schedule came once and none was left out.
func (l *ledger) checkSchedule() Promise {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := Promise{Promise: "schedule: every report came once, none was left out", Kept: len(l.occurrences) == storyReports}
	if !p.Kept {
		p.Detail = fmt.Sprintf("%d reports came, %d were to come", len(l.occurrences), storyReports)
	}
	for n := 1; n < len(l.occurrences); n++ {
		if between := l.occurrences[n].due.Sub(l.occurrences[n-1].due); between != storyReportEvery {
			p.Kept = false
			p.Detail = fmt.Sprintf("%s came %v after %s, every %v was asked for", l.occurrences[n].id, between, l.occurrences[n-1].id, storyReportEvery)
		}
	}
	return p
}

// checkStory makes sure that all orders were placed, that some were closed, retried and dead, and
// that the store was opened again.
func (l *ledger) checkStory(all []entry) Promise {
	l.mu.Lock()
	reopens := l.reopens
	l.mu.Unlock()
	closed, retried, dead := 0, 0, 0
	for _, e := range all {
		switch {
		case e.dead():
			dead++
		case e.closed():
			closed++
			if len(e.visits) > 1 {
				retried++
			}
		}
	}
	v := Promise{Promise: "the whole story was told: orders closed, retried and dead, the store opened again"}
	v.Kept = len(all) == storyOrders && closed > 0 && retried > 0 && dead > 0 && reopens > 0
	if !v.Kept {
		v.Detail = fmt.Sprintf("%d of %d orders placed, %d closed, %d of them retried, %d dead, store opened again %d times", len(all), storyOrders, closed, retried, dead, reopens)
	}
	return v
}

func (l *ledger) lateness() Lateness {
	l.mu.Lock()
	late := slices.Clone(l.others)
	l.mu.Unlock()
	for _, e := range l.entries() {
		for _, v := range e.visits {
			late = append(late, v.late())
		}
	}
	if len(late) == 0 {
		return Lateness{}
	}
	slices.Sort(late)
	ms := func(p int) int64 { return percentile(late, p).Milliseconds() }
	return Lateness{Count: len(late), P50: ms(50), P99: ms(99), Max: ms(100)}
}

// percentile is the smallest of the sorted values that p percent of them do not exceed (the
// nearest-rank method).
func percentile(sorted []time.Duration, p int) time.Duration {
	rank := (len(sorted)*p + 99) / 100
	return sorted[max(rank, 1)-1]
}
