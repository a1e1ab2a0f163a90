package diskstore

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/punctualmq/punctual"
)

// The ledger is the judge of the torture tests. It knows nothing of the store: it reads
// what its callers wrote down, one event before each call and one after it, and says which
// promise was broken. An event after a call counts as an acknowledgement; a call without one
// may or may not have happened, and nothing in between.

// event is one line of the history of a run.
type event struct {
	// Kind is push, cancel, reschedule, claim or settle.
	Kind string `json:"k"`
	// N is the number of the call, the same before and after it.
	N int64 `json:"n"`
	// Done is false before the call and true after it.
	Done bool `json:"d,omitempty"`
	// Err is the error of a call that failed as a whole, Definite what Definite said of it.
	Err      string `json:"e,omitempty"`
	Definite bool   `json:"f,omitempty"`
	Items    []fact `json:"i,omitempty"`
}

// fact is what an event says of one message.
type fact struct {
	ID string `json:"i"`
	// Due is the time asked for before a push or reschedule, the earliest possible one before
	// a retry or snooze, and that of the message in a delivery.
	Due     int64         `json:"d,omitempty"`
	At      int64         `json:"a,omitempty"` // when it was delivered
	Until   int64         `json:"u,omitempty"` // when its lease ends
	Token   int64         `json:"t,omitempty"`
	Attempt int           `json:"n,omitempty"`
	Max     int           `json:"m,omitempty"` // MaxAttempts of a push
	Verb    punctual.Verb `json:"v,omitempty"`
	// Status is the outcome in a word: stored, cancelled, rescheduled, leased, not_found, ok,
	// lease_lost, or an error's text.
	Status string `json:"s,omitempty"`
	// Broken tells that a delivered body is not the one that was pushed.
	Broken bool `json:"b,omitempty"`
}

// ledger is the history of one store through all its crashes.
type ledger struct {
	line  int64 // events so far
	msgs  map[string]*history
	calls map[int64]*call // under way
	// unseen counts claims whose result nobody saw; each may have counted an attempt.
	unseen int
	// power tells that the last crash was a power cut, which may have taken claims,
	// extensions and acks, but nothing else.
	power    bool
	problems []string

	acked, crashes, deliveries int
}

// call is a call under way.
type call struct {
	event
	line int64
}

// history is what the ledger knows of one message.
type history struct {
	pushed int64 // line at which the push was acknowledged; 0 if it never was
	max    int
	dues   []window
	// ending are the calls under way that would end the message; uncertain tells that one
	// of them never answered, or that it was cancelled under its lease.
	ending    map[int64]bool
	uncertain bool
	// acked tells that an ack was its end: a power cut may undo it.
	acked bool
	// ended is the line at which its end was acknowledged, discarded whether it is dead then.
	ended     int64
	discarded bool
	// final is the line from which no claim may return it: cancelled under its lease.
	final int64

	last      hold
	reported  int // deliveries seen
	durable   int // attempts that were settled durably
	mayBeDead bool
}

// hold is the newest lease seen.
type hold struct {
	token, until int64
	attempt      int
	given        bool // its holder may have given it back
	takenBack    bool // its attempt may not count
}

// window is a span of possible due times, and the lines between which it was possible.
type window struct {
	call     int64
	item     int // which of the call's items
	lo, hi   int64
	from, to int64 // to is 0 while it lasts
	settled  int64 // line at which its call was answered, or cut off by a crash
}

const endOfTime = 1<<63 - 1

func newLedger() *ledger {
	return &ledger{msgs: make(map[string]*history), calls: make(map[int64]*call)}
}

func (l *ledger) broken(format string, args ...any) {
	if len(l.problems) < 20 {
		l.problems = append(l.problems, fmt.Sprintf("line %d: ", l.line)+fmt.Sprintf(format, args...))
	}
}

func (l *ledger) of(id string) *history {
	h := l.msgs[id]
	if h == nil {
		h = &history{ending: make(map[int64]bool)}
		l.msgs[id] = h
	}
	return h
}

// add takes the next event.
func (l *ledger) add(e event) {
	l.line++
	if !e.Done {
		l.calls[e.N] = &call{e, l.line}
		l.asked(&e)
		return
	}
	c := l.calls[e.N]
	if c == nil {
		l.broken("call %d was answered without having been made", e.N)
		return
	}
	delete(l.calls, e.N)
	switch {
	case e.Err == "":
		l.acked++
		l.answered(c, e.Items)
	case e.Definite:
		l.refused(c)
	default:
		l.openEnded(c)
	}
}

// asked records what a call may change from now on.
func (l *ledger) asked(e *event) {
	for i, f := range e.Items {
		h := l.of(f.ID)
		due := window{call: e.N, item: i, lo: f.Due, hi: f.Due, from: l.line}
		switch {
		case e.Kind == "push":
			h.max = f.Max
			h.dues = append(h.dues, due)
		case e.Kind == "reschedule":
			h.dues = append(h.dues, due)
		case e.Kind == "cancel":
			h.ending[e.N] = true
		case e.Kind == "settle":
			due.hi = endOfTime
			l.askedSettle(h, due, f)
		}
	}
}

func (l *ledger) askedSettle(h *history, due window, f fact) {
	if h.last.token == f.Token && f.Verb != punctual.SettleExtend {
		h.last.given = true
	}
	switch f.Verb {
	case punctual.SettleAck:
		h.ending[due.call] = true
	case punctual.SettleDiscard:
		h.ending[due.call], h.mayBeDead = true, true
	case punctual.SettleRetry, punctual.SettleSnooze:
		h.dues = append(h.dues, due)
	}
	if h.last.token == f.Token && (f.Verb == punctual.SettleSnooze || f.Verb == punctual.SettleRelease) {
		h.last.takenBack = true
	}
}

// refused takes back what a call might have done, because it certainly did nothing.
func (l *ledger) refused(c *call) {
	for i, f := range c.Items {
		l.noEffect(l.of(f.ID), c, i)
	}
}

func (l *ledger) noEffect(h *history, c *call, item int) {
	delete(h.ending, c.N)
	h.dues = slices.DeleteFunc(h.dues, func(w window) bool { return w.call == c.N && w.item == item })
}

// openEnded keeps both possibilities of a call for good.
func (l *ledger) openEnded(c *call) {
	if c.Kind == "claim" {
		l.unseen++
	}
	for _, f := range c.Items {
		h := l.of(f.ID)
		if h.ending[c.N] {
			delete(h.ending, c.N)
			h.uncertain = true
		}
		for i := range h.dues {
			if h.dues[i].call == c.N {
				h.dues[i].settled = l.line
			}
		}
	}
}

// answered records what a call has done for certain.
func (l *ledger) answered(c *call, facts []fact) {
	if c.Kind == "claim" {
		for _, f := range facts {
			l.delivered(c, f)
		}
		return
	}
	if len(facts) != len(c.Items) {
		l.broken("%s of %d messages has %d results", c.Kind, len(c.Items), len(facts))
		return
	}
	for i, f := range c.Items {
		l.result(c, i, f, facts[i].Status)
	}
}

func (l *ledger) result(c *call, item int, f fact, status string) {
	h := l.of(f.ID)
	switch c.Kind + " " + status {
	case "push stored":
		h.pushed = l.line
		l.moved(h, c, item)
	case "reschedule rescheduled":
		l.moved(h, c, item)
	case "cancel cancelled":
		l.end(h, c)
	case "cancel leased":
		l.noEffect(h, c, item)
		h.uncertain = true
		h.final = cmp.Or(h.final, l.line)
	case "cancel not_found", "reschedule not_found":
		l.noEffect(h, c, item)
		if h.pushed > 0 && h.pushed < c.line && !h.mayBeGone() {
			l.broken("P1 no loss: %s of %s, which was pushed at line %d, finds nothing", c.Kind, f.ID, h.pushed)
		}
	case "reschedule leased", "settle lease_lost":
		l.noEffect(h, c, item)
	case "settle cancelled":
		l.noEffect(h, c, item)
		h.uncertain = true
	case "settle ok":
		l.settled(h, c, item, f)
	default:
		l.broken("%s of %s ended with %q", c.Kind, f.ID, status)
	}
}

func (l *ledger) settled(h *history, c *call, item int, f fact) {
	switch f.Verb {
	case punctual.SettleAck:
		h.acked = h.ended == 0
		l.end(h, c)
	case punctual.SettleDiscard:
		h.discarded = true
		l.end(h, c)
	case punctual.SettleRetry:
		h.durable = max(h.durable, f.Attempt)
		l.moved(h, c, item)
	case punctual.SettleSnooze:
		h.durable = max(h.durable, f.Attempt-1)
		l.moved(h, c, item)
	case punctual.SettleRelease:
		h.durable = max(h.durable, f.Attempt-1)
	case punctual.SettleExtend:
		if h.last.token == f.Token {
			h.last.until = max(h.last.until, f.Until)
		}
	}
}

func (l *ledger) end(h *history, c *call) {
	delete(h.ending, c.N)
	h.ended = cmp.Or(h.ended, l.line)
}

// moved makes the due time of a call's item the only possible one, but for calls that overlapped it.
func (l *ledger) moved(h *history, c *call, item int) {
	kept := h.dues[:0]
	for _, w := range h.dues {
		switch {
		case w.call == c.N && w.item == item:
			w.settled = l.line
		case w.settled > 0 && w.settled < c.line && w.to == 0:
			w.to = l.line
		}
		// A claim under way may still tell of a due time that has just been replaced.
		if w.to == 0 || w.to > l.line-10_000 {
			kept = append(kept, w)
		}
	}
	h.dues = kept
}

// mayBeGone tells whether a message may rightly not be found among the live ones.
func (h *history) mayBeGone() bool {
	return h.ended > 0 || h.uncertain || len(h.ending) > 0 || h.mayBeDead || h.max < plenty
}

// plenty is a MaxAttempts that no message reaches in a test.
const plenty = 100_000

// delivered checks one delivery of a claim against everything known.
func (l *ledger) delivered(c *call, f fact) {
	l.deliveries++
	h := l.msgs[f.ID]
	switch {
	case h == nil || len(h.dues) == 0:
		l.broken("P13: %s was delivered but never pushed", f.ID)
		return
	case f.Broken:
		l.broken("%s was delivered with a body that is not its own", f.ID)
	case h.ended > 0 && c.line > h.ended:
		l.broken("P5, P1: %s was delivered by a claim of line %d, its end was acknowledged at line %d", f.ID, c.line, h.ended)
	case h.final > 0 && c.line > h.final:
		l.broken("P5 cancel is definite: %s got another attempt by a claim of line %d, its cancel was acknowledged at line %d", f.ID, c.line, h.final)
	case f.At < f.Due:
		l.broken("P2 never early: %s due at %d was delivered at %d", f.ID, f.Due, f.At)
	case !h.dueAt(f.Due, c.line):
		l.broken("P2: %s was delivered with due %d, possible were %s", f.ID, f.Due, h.windows())
	case f.Attempt > h.max:
		l.broken("P6: attempt %d of %s, allowed are %d", f.Attempt, f.ID, h.max)
	}
	h.reported++
	l.checkLease(h, f)
}

// checkLease holds attempt, token and lease against the earlier ones.
func (l *ledger) checkLease(h *history, f fact) {
	if f.Attempt <= h.durable {
		l.broken("P6: attempt %d of %s after attempt %d was settled", f.Attempt, f.ID, h.durable)
	}
	if most := h.reported + l.unseen + l.claims(); f.Attempt > most {
		l.broken("P6: attempt %d of %s, but there were at most %d deliveries", f.Attempt, f.ID, most)
	}
	last := h.last
	if f.Token < last.token {
		return // its claim came first but was written down later
	}
	least := last.attempt + 1
	if last.takenBack {
		least--
	}
	switch {
	case f.Token == last.token:
		l.broken("P4: token %d of %s was given out twice", f.Token, f.ID)
	case f.Attempt < least:
		l.broken("P6 attempts are durable: attempt %d of %s after attempt %d", f.Attempt, f.ID, last.attempt)
	case last.token > 0 && !last.given && f.At < last.until:
		l.broken("P3 one holder: %s was delivered at %d under a lease until %d", f.ID, f.At, last.until)
	}
	h.last = hold{token: f.Token, until: f.Until, attempt: f.Attempt}
}

// claims counts the claims under way.
func (l *ledger) claims() (n int) {
	for _, c := range l.calls {
		if c.Kind == "claim" {
			n++
		}
	}
	return n
}

func (h *history) dueAt(due, since int64) bool {
	return slices.ContainsFunc(h.dues, func(w window) bool {
		return w.lo <= due && due <= w.hi && (w.to == 0 || w.to >= since)
	})
}

func (h *history) windows() string {
	var b strings.Builder
	for _, w := range h.dues {
		fmt.Fprintf(&b, "[%d,%d] lines %d-%d ", w.lo, w.hi, w.from, w.to)
	}
	return b.String()
}

// crash ends all calls under way with both outcomes open.
func (l *ledger) crash(power bool) {
	l.line++
	l.crashes++
	for _, n := range slices.Sorted(maps.Keys(l.calls)) {
		l.openEnded(l.calls[n])
	}
	clear(l.calls)
	if l.power = power; power {
		for _, h := range l.msgs {
			h.last = hold{}
			if h.acked {
				h.ended, h.acked, h.uncertain = 0, false, true
			}
		}
	}
}

// close compares what was left in the store in the end with what must be there: drained are
// the messages that a drain delivered, dead those found dead.
func (l *ledger) close(drained, dead map[string]bool) {
	for _, id := range slices.Sorted(maps.Keys(l.msgs)) {
		h := l.msgs[id]
		switch there := drained[id] || dead[id]; {
		case h.discarded && !dead[id]:
			l.broken("P1 no loss: %s was discarded and is not among the dead", id)
		case h.pushed > 0 && !there && h.ended == 0 && !h.uncertain:
			l.broken("P1 no loss: %s was pushed at line %d and is gone", id, h.pushed)
		case h.ended > 0 && drained[id]:
			l.broken("P5, P1: %s is back; its end was acknowledged at line %d", id, h.ended)
		case dead[id] && !h.mayBeDead && h.max == plenty:
			l.broken("%s is dead and nobody gave up on it", id)
		}
	}
}
