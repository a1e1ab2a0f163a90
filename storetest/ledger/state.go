package ledger

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// phase is where an ID is in its lives. Scheduled, ready and leased are one phase: which of them a
// live message is in depends on the clock and on whether it has a lease.
type phase uint8

const (
	phaseAbsent phase = iota
	phaseLive
	phaseDead
	phaseFinished // the ID is remembered
)

// span is an instant or a length of time that is known to lie between two, both included, in ms.
type span struct{ lo, hi int64 }

func exactly(t int64) span { return span{t, t} }

func (a span) has(t int64) bool { return a.lo <= t && t <= a.hi }

func (a span) plus(b span) span { return span{a.lo + b.lo, a.hi + b.hi} }

func (a span) String() string {
	if a.lo == a.hi {
		return strconv.FormatInt(a.lo, 10)
	}
	return fmt.Sprintf("%d..%d", a.lo, a.hi)
}

// incarnation is a message as it was pushed.
type incarnation struct {
	name        string
	size        int
	headers     uint32
	maxAttempts int
	expireAfter int64
	drop        bool
	created     span
	// line and to are the lines of its push.
	line, to int64
}

// state is one possible state of an ID. States are never changed; equal ones are the same pointer
// within a search (see intern).
type state struct {
	phase phase
	*incarnation
	due     span
	expires span // lo 0: never
	attempt int
	// token is that of the current lease, also when the lease has run out; 0 is none, unseenToken
	// that of a claim whose answer nobody saw.
	token int64
	until span // of the lease
	// cancel: a cancel came during the lease.
	cancel   bool
	failures string
	died     span
	reason   punctual.DeathReason
	forget   span // when a finished ID is forgotten
	// top is the greatest token seen of this ID, in all its lives.
	top int64
	// told is how the last message that left a finished record has ended, "" while no record is
	// kept of the ID. A workload has records kept for longer than it runs, so none is removed but
	// with its topic.
	told punctual.Outcome
	// fallback is what a message was before a claim that nobody saw answered: the claim may have
	// failed and given the message back.
	fallback *state
	// undo is the state to which a power cut or a failover may go back; nil when the store promises
	// to keep this one.
	undo *state
	// why says how a message ended, for reports alone.
	why string
	// links say of settlements without an answer whether they took effect in this state.
	links *linkList
}

const unseenToken = -1

const extend = punctual.SettleExtend

// gone returns the state of an ID whose message has ended and left no finished record of its own.
func (s *state) gone(why string) state {
	return state{top: s.top, told: s.told, why: why, links: s.links}
}

// attention returns when a live message next needs attention.
func (s *state) attention() span {
	if s.token != 0 {
		return s.until
	}
	return s.due
}

// is tells whether the message may be in a state, as reads tell it, at some moment of an op.
func (s *state) is(state punctual.State, t span) bool {
	switch s.phase {
	case phaseDead:
		return state == punctual.StateDead
	case phaseLive:
		switch at := s.attention(); state {
		case punctual.StateReady:
			return at.lo <= t.hi
		case punctual.StateLeased:
			return s.token != 0 && at.hi > t.lo
		case punctual.StateScheduled:
			return s.token == 0 && at.hi > t.lo
		}
	}
	return state == punctual.StateNone
}

// settled drops what makes no difference any more: the end of a lease of an unseen claim that has
// run out, and its fallback.
func (s *state) settled(now int64) state {
	out := *s
	if s.phase == phaseLive && s.token == unseenToken && s.until.hi <= now {
		out.until, out.fallback = span{0, 0}, nil
	}
	return out
}

func (s *state) String() string {
	var b strings.Builder
	switch s.phase {
	case phaseAbsent:
		b.WriteString("absent (" + s.why + ")")
	case phaseFinished:
		fmt.Fprintf(&b, "finished (%s), remembered until %v", s.why, s.forget)
	case phaseDead:
		fmt.Fprintf(&b, "dead (%s) at %v, life %s of line %d, attempt %d", s.reason, s.died, s.name, s.line, s.attempt)
	case phaseLive:
		fmt.Fprintf(&b, "live, life %s of line %d, due %v, attempt %d", s.name, s.line, s.due, s.attempt)
		if s.expires.lo != 0 {
			fmt.Fprintf(&b, ", expires %v", s.expires)
		}
		if s.token != 0 {
			fmt.Fprintf(&b, ", token %d until %v", s.token, s.until)
		}
		if s.cancel {
			b.WriteString(", cancelled under its lease")
		}
	}
	if s.failures != "" {
		fmt.Fprintf(&b, ", failures %s", s.failures)
	}
	if s.told != "" {
		fmt.Fprintf(&b, ", with a finished record that says %s", s.told)
	}
	if s.undo != nil {
		b.WriteString(", may be undone by a power cut or a failover")
	}
	return b.String()
}

// powerCut adds the states to which a power cut may have gone back.
func (t *track) powerCut() {
	if t.givenUp {
		return
	}
	in := newIntern(KeepsTransactions)
	var out []*state
	for _, s := range t.states {
		for _, p := range in.cut(s) {
			if !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	t.states = out
}

// cut returns a state and the states to which the ID may go back from there when the last changes
// are lost.
func (in *intern) cut(s *state) (out []*state) {
	for u := s; u != nil; u = u.undo {
		for _, c := range append(u.fallbacks(), *u) {
			c.undo, c.fallback, c.top = nil, nil, s.top
			if p := in.of(c); !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	return out
}

// intern makes equal states the same pointer.
type intern struct {
	durable Durable
	states  map[state]*state
	links   *links // nil where no new links are made
}

func newIntern(d Durable) *intern { return &intern{durable: d, states: make(map[state]*state)} }

func (l *Ledger) newIntern() *intern {
	in := newIntern(l.durable)
	in.links = &l.links
	return in
}

func (in *intern) of(s state) *state {
	p := in.states[s]
	if p == nil {
		p = &s
		in.states[s] = p
	}
	return p
}

// next returns s as a state that the store promises to keep.
func (in *intern) next(s state) []*state {
	s.undo = nil
	return []*state{in.of(s)}
}

// undoable returns s as a state that a power cut may take back, so that the ID is in the state
// before again, unless the store keeps all.
func (in *intern) undoable(s state, before *state) []*state {
	s.undo = nil
	if in.durable != KeepsAll {
		s.undo = before
	}
	return []*state{in.of(s)}
}

// time returns when an op takes effect.
func (o *op) time() span { return span{o.At, o.end} }

// apply returns the states that may follow when the op takes effect, or why there is none.
func (o *op) apply(in *intern, s *state) (next []*state, reason string) {
	for _, c := range o.lapsed(in, s) {
		if in.durable == KeepsConfirmed {
			c = in.lapsedFrom(c, s)
		}
		n, r := o.step(in, c)
		if in.durable == KeepsConfirmed {
			n = o.confirmed(in, c, n)
		}
		next = append(next, n...)
		if r != "" && !strings.Contains(reason, r) {
			reason = strings.TrimPrefix(reason+"; or "+r, "; or ")
		}
	}
	return next, reason
}

// lapsed returns the states that one may have become without another op. A claim may have ended a
// message that it found used up, cancelled or expired. What is kept for a while may have gone.
func (o *op) lapsed(in *intern, s *state) []*state {
	t := o.time()
	switch s.phase {
	case phaseFinished:
		gone := in.of(s.gone(s.why))
		switch {
		case s.forget.hi <= t.lo:
			return []*state{gone}
		case s.forget.lo <= t.hi:
			return []*state{s, gone}
		}
	case phaseDead:
		return o.retained(in, s)
	case phaseLive:
		out := []*state{s}
		for _, f := range s.fallbacks() {
			out = append(out, o.lapsed(in, in.of(f))...)
		}
		if s.attention().lo <= t.hi {
			out = append(out, o.ends(in, s)...)
		}
		return out
	}
	return []*state{s}
}

// fallbacks returns what a message is when the unseen claim that may have leased it has failed: as
// before, or released.
func (s *state) fallbacks() []state {
	if s.fallback == nil || s.phase != phaseLive {
		return nil
	}
	untouched, released := *s.fallback, *s
	untouched.cancel = s.cancel
	released.token, released.until, released.fallback, released.undo = 0, span{}, nil, nil
	released.attempt--
	return []state{untouched, released}
}

func (o *op) retained(in *intern, s *state) []*state {
	t := o.time()
	may := slices.ContainsFunc(o.setsSince(), func(x *punctual.Settings) bool {
		return x.DeadRetention > 0 && s.died.lo+ms(x.DeadRetention) <= t.hi
	})
	if !may {
		return []*state{s}
	}
	gone := in.of(s.gone("dead until its retention ended"))
	for _, x := range o.sets() {
		if x.DeadRetention == 0 || s.died.hi+ms(x.DeadRetention) > t.lo {
			return []*state{s, gone}
		}
	}
	return []*state{gone}
}

// ends returns what a claim makes of a message whose time has come and that must not be delivered
// again.
func (o *op) ends(in *intern, s *state) (out []*state) {
	t := o.time()
	when := span{max(s.attention().lo, 0), t.hi}
	var ended []*state
	if s.cancel {
		ended = o.finish(in, s, wasCancelledLate, when, o.setsSince())
	} else {
		die := func(reason punctual.DeathReason) {
			d := s.dies(reason, when)
			d.failures = s.ranOut()
			ended = append(ended, in.of(d))
		}
		if slices.ContainsFunc(o.setsSince(), func(x *punctual.Settings) bool { return s.attempt >= s.attemptsAllowed(x) }) {
			die(punctual.ReasonAttemptsUsedUp)
		}
		if s.expires.lo != 0 && s.expires.lo <= t.hi {
			when.lo = max(when.lo, s.expires.lo)
			if s.drop {
				ended = append(ended, o.finish(in, s, hasExpired, when, o.setsSince())...)
			} else {
				die(punctual.ReasonExpired)
			}
		}
	}
	for _, e := range ended {
		e := *e
		if in.durable != KeepsAll {
			e.undo = s
		}
		p := in.of(e)
		out = append(out, p)
		// What is kept of a message that has ended may also have been removed by now.
		for _, q := range o.lapsed(in, p) {
			if q != p {
				out = append(out, q)
			}
		}
	}
	return out
}

func ms[T ~int64](d T) int64 { return int64(d) / 1_000_000 }

func (s *state) attemptsAllowed(x *punctual.Settings) int {
	if s.maxAttempts > 0 {
		return s.maxAttempts
	}
	return x.MaxAttempts
}

func (s *state) dies(reason punctual.DeathReason, when span) state {
	d := *s
	d.phase, d.token, d.until, d.cancel, d.undo = phaseDead, 0, span{}, false, nil
	d.fallback = nil
	d.died, d.reason = when, reason
	return d
}

// ranOut returns the history when the lease, if there is one, has run out without a settlement.
func (s *state) ranOut() string {
	if s.token == 0 {
		return s.failures
	}
	return addFailure(s.failures, s.attempt, storekit.LeaseRanOut)
}

// addFailure returns the text of a history with one failure more, without the oldest ones beyond
// storekit.MaxFailures.
func addFailure(history string, attempt int, text string) string {
	all := append(strings.Split(history, "|"), strconv.Itoa(attempt)+" "+text)
	if all[0] == "" {
		all = all[1:]
	}
	return strings.Join(all[max(0, len(all)-storekit.MaxFailures):], "|")
}

// The values of state.why for a message that leaves a finished record.
const (
	wasAcked         = "acked"
	wasCancelled     = "cancelled"
	wasCancelledLate = "cancelled under its lease"
	hasExpired       = "expired"
)

// outcomes has what a finished record says of these ends.
var outcomes = map[string]punctual.Outcome{
	wasAcked: punctual.OutcomeAcked, wasCancelled: punctual.OutcomeCancelled, wasCancelledLate: punctual.OutcomeCancelled, hasExpired: punctual.OutcomeExpired,
}

// finish returns the states of an ID whose message has ended, one for each of the settings: the ID
// may be remembered, and a finished record may be kept.
func (o *op) finish(in *intern, s *state, why string, when span, sets []*punctual.Settings) (out []*state) {
	for _, x := range sets {
		f := s.gone(why)
		if x.FinishedRetention > 0 {
			f.told = outcomes[why]
		}
		if x.DedupeWindow > 0 {
			f.phase = phaseFinished
			f.forget = span{when.lo + ms(x.DedupeWindow), when.hi + ms(x.DedupeWindow)}
		}
		if p := in.of(f); !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// kept returns states as those that the store promises to keep.
func (in *intern) kept(states []*state) []*state {
	out := make([]*state, len(states))
	for i, s := range states {
		out[i] = in.next(*s)[0]
	}
	return out
}

// fails returns no state, and the reason why a step is impossible.
func fails(format string, args ...any) ([]*state, string) { return nil, fmt.Sprintf(format, args...) }
