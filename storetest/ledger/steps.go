package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest/promise"
)

// The transitions of an ID, one function for each item of the contract. Each takes a state in which
// the ID may be. It returns those in which it may be when the op has taken effect with the answer
// that was seen. Without an answer it returns those of any answer.

func (o *op) step(in *intern, s *state) ([]*state, string) {
	switch o.kind {
	case opPush:
		return o.push(in, s)
	case opDeliver:
		return o.deliver(in, s)
	case opUnseen:
		return o.unseen(in, s)
	case opSettle:
		return o.settle(in, s)
	case opFollow:
		return o.follow(in, s)
	case opRefuse:
		return o.refuse(s)
	case opAmend:
		return o.amend(in, s)
	case opGet:
		return o.get(in, s)
	case opFinished:
		return o.record(s)
	case opPurge, opDelete:
		return o.remove(in, s)
	case opCut:
		return in.cut(s), ""
	}
	o.meets(s)
	return []*state{s}, ""
}

// status returns the Status of the answer, or "" when there is no answer.
func (o *op) status() string {
	if o.got == nil || !o.must {
		return ""
	}
	return o.got.Status
}

// answers returns next if status is the answer that was seen, or if no answer was seen.
func (o *op) answers(status string, next []*state) ([]*state, string) {
	if got := o.status(); got != "" && got != status {
		return nil, o.contradiction(got, status)
	}
	return next, ""
}

// contradiction names the promise that an answer breaks.
func (o *op) contradiction(got, want string) string {
	broken := promise.P13
	switch {
	case o.kind == opPush:
		broken = promise.P7
	case o.kind == opSettle && (got == "lease_lost" || want == "lease_lost"):
		broken = promise.P4
	case o.kind == opSettle && (got == "cancelled" || want == "cancelled"):
		broken = promise.P5
	case o.kind == opAmend && got == "not_found":
		broken = promise.P1
	case o.kind == opAmend && o.ask.Change == punctual.ChangeCancel:
		broken = promise.P5
	}
	return fmt.Sprintf("%s: the answer is %q where %q is due", broken, got, want)
}

// refused tells whether an item was not carried out for a reason that lies in the call or the
// store, and not in the message.
func (o *op) refused() bool {
	switch o.status() {
	case "no_space", "overloaded", "unreachable", "store_failed", "closed", "durability", "deadline", "canceled":
		return true
	}
	return false
}

func (o *op) push(in *intern, s *state) ([]*state, string) {
	if o.refused() {
		return []*state{s}, ""
	}
	if o.status() == "paused" {
		if !slices.ContainsFunc(o.sets(), func(x *punctual.Settings) bool { return x.PushPaused }) {
			return fails("%s: a push was refused as paused, and the topic was not", promise.P13)
		}
		return []*state{s}, ""
	}
	if o.must && !slices.ContainsFunc(o.sets(), func(x *punctual.Settings) bool { return !x.PushPaused }) {
		return fails("%s: a push was taken by a topic that is paused", promise.P13)
	}
	if o.ask.IfDue != 0 {
		return o.onCondition(s, s.phase == phaseLive || s.phase == phaseDead, func() ([]*state, string) { return o.store(in, s, "replaced") })
	}
	taken := s.phase != phaseAbsent
	switch {
	case taken && o.ask.IfExists == punctual.IfExistsFail:
		return o.answers("duplicate", []*state{s})
	case s.phase == phaseDead && o.ask.IfExists == punctual.IfExistsKeep:
		return o.answers("duplicate", []*state{s})
	case taken && s.phase != phaseDead && o.ask.IfExists != punctual.IfExistsReplace:
		return o.keepFirst(in, s)
	case s.phase == phaseLive || s.phase == phaseDead:
		return o.store(in, s, "replaced")
	}
	return o.store(in, s, "stored")
}

// onCondition returns what a change with a condition on the due time (IfDue) does: do, if there is
// a message and it meets the condition, and nothing otherwise. Where the due time is known only as
// a span, both are possible.
func (o *op) onCondition(s *state, there bool, do func() ([]*state, string)) (next []*state, reason string) {
	if there && s.due.has(o.ask.IfDue) {
		next, reason = do()
	}
	if !there || s.due != exactly(o.ask.IfDue) {
		n, r := o.answers("changed", []*state{s})
		next, reason = append(next, n...), cmp.Or(reason, r)
	}
	return next, reason
}

func (o *op) keepFirst(in *intern, s *state) ([]*state, string) {
	next, reason := o.answers("kept", []*state{s})
	if reason != "" || o.got == nil || !o.must {
		return next, reason
	}
	t := o.time()
	if s.phase == phaseFinished {
		if o.got.State != punctual.StateNone || o.got.Due != 0 {
			return fails("%s: a push met a remembered ID and tells of a message %v due %d", promise.P7, o.got.State, o.got.Due)
		}
		return next, ""
	}
	if o.got.State == punctual.StateNone || !s.is(o.got.State, t) {
		return fails("%s: a push met a message that is said to be %q", promise.P7, o.got.State)
	}
	return o.narrowed(in, s, o.got.Due)
}

// narrowed returns the state with the due time that an answer told, if that is possible.
func (o *op) narrowed(in *intern, s *state, due int64) ([]*state, string) {
	if !s.due.has(due) {
		return fails("%s: the due time is said to be %d, and was %v", promise.P2, due, s.due)
	}
	n := *s
	n.due = exactly(due)
	return []*state{in.of(n)}, ""
}

func (o *op) store(in *intern, s *state, status string) ([]*state, string) {
	if _, reason := o.answers(status, nil); reason != "" {
		if o.status() == "duplicate" || o.status() == "kept" {
			return fails("%s: a push is said to have met the ID, which was %v", promise.P7, s)
		}
		return nil, reason
	}
	n := state{phase: phaseLive, incarnation: o.life(), top: s.top, told: s.told, links: s.links}
	var reason string
	if n.due, reason = o.dueAsked(); reason != "" {
		return nil, reason
	}
	n.expires = n.expiry()
	return in.next(n), ""
}

// life returns the message of a push, each time the same pointer.
func (o *op) life() *incarnation {
	if o.call.lives == nil {
		o.call.lives = make(map[*Fact]*incarnation)
	}
	l := o.call.lives[o.ask]
	if l == nil {
		f := o.ask
		l = &incarnation{f.Life, f.Size, f.Headers, f.MaxAttempts, f.ExpireAfter, f.Drop, o.time(), o.from, o.to}
		o.call.lives[o.ask] = l
	}
	return l
}

func (s *state) expiry() span {
	if s.expireAfter == 0 {
		return span{}
	}
	return s.due.plus(exactly(s.expireAfter))
}

// dueAsked returns the due time that was asked for: a time, or a delay from the store's clock.
func (o *op) dueAsked() (span, string) {
	due := exactly(o.ask.Due)
	if o.ask.Due == 0 {
		due = o.after(exactly(o.ask.Delay))
	}
	if o.got != nil && o.must && o.got != o.ask {
		if !due.has(o.got.Due) {
			return due, fmt.Sprintf("%s: due %v was asked for, and is said to be %d", promise.P2, due, o.got.Due)
		}
		due = exactly(o.got.Due)
	}
	return due, ""
}

// after returns the time that lies a delay after the store's clock. It may be up to a millisecond
// later, because it is rounded up.
func (o *op) after(delay span) span {
	return span{o.At + delay.lo, o.end + 1 + delay.hi}
}

// deliver is a claim that returned the message.
func (o *op) deliver(in *intern, s *state) ([]*state, string) {
	f := o.ask
	switch s.phase {
	case phaseDead:
		return fails("%s: a dead message was delivered", promise.P6)
	case phaseAbsent, phaseFinished:
		return fails("%s: a message was delivered that was gone: %s", promiseOfEnd(s.why), s.why)
	}
	if reason := o.mayDeliver(s); reason != "" {
		return nil, reason
	}
	n := *s
	n.due = exactly(f.Due)
	n.expires = narrowExpiry(s, f.Expires)
	before := in.of(n)
	n.failures = s.ranOut()
	n.attempt, n.token, n.top, n.until, n.fallback = f.Attempt, f.Token, f.Token, exactly(f.Until), nil
	return in.undoable(n, before), ""
}

func promiseOfEnd(why string) string {
	switch why {
	case wasCancelled, wasCancelledLate:
		return promise.P5
	case "it was never pushed":
		return promise.P13
	}
	return promise.P1
}

func narrowExpiry(s *state, told int64) span {
	if s.expires.lo == 0 {
		return span{}
	}
	return exactly(told)
}

func (o *op) mayDeliver(s *state) string {
	f, at := o.ask, o.ask.At
	if r := s.differs(f); r != "" {
		return r
	}
	switch {
	case f.Broken != "":
		return fmt.Sprintf("%s: a message was delivered with %s", promise.P1, f.Broken)
	case !(span{o.At - o.earlier, o.end}).has(at):
		return fmt.Sprintf("%s: a message was delivered at %d by a claim from %d to %d", promise.P8, at, o.At, o.end)
	case at < f.Due:
		return fmt.Sprintf("%s: a message due at %d was delivered at %d", promise.P2, f.Due, at)
	case s.cancel:
		return promise.P5 + ": a message was delivered again that was cancelled under its lease"
	case s.token != 0 && s.until.lo > at:
		return fmt.Sprintf("%s: a message was delivered at %d under a lease until %v", promise.P3, at, s.until)
	case s.expires.lo != 0 && s.expires.hi <= at:
		return fmt.Sprintf("%s: a message that expired at %v was delivered at %d", promise.P2, s.expires, at)
	case f.Token <= s.top:
		return fmt.Sprintf("%s: token %d was given out after token %d", promise.P4, f.Token, s.top)
	case f.Attempt != s.attempt+1:
		return fmt.Sprintf("%s: a delivery is attempt %d after attempt %d", promise.P6, f.Attempt, s.attempt)
	case f.Failures != s.ranOut():
		return fmt.Sprintf("%s: a delivery has the history %q where %q is due", promise.P6, f.Failures, s.ranOut())
	}
	return o.allowed(s)
}

// allowed says why the settings of the topic do not allow a delivery, or "". Because a claim may
// find some settings before and some after a change, each setting is judged by itself.
func (o *op) allowed(s *state) string {
	f := o.ask
	sets := o.sets()
	some := func(holds func(x *punctual.Settings) bool) bool { return slices.ContainsFunc(sets, holds) }
	switch {
	case !some(func(x *punctual.Settings) bool { return !x.DeliveryPaused }):
		return promise.P13 + ": a message was delivered from a topic that is paused"
	case !some(func(x *punctual.Settings) bool { return s.attempt < s.attemptsAllowed(x) }):
		return fmt.Sprintf("%s: a message was delivered after %d attempts, which are all that are allowed", promise.P6, s.attempt)
	case !some(func(x *punctual.Settings) bool { return f.Until == f.At+cmp.Or(o.request().Delay, ms(x.Lease)) }):
		return fmt.Sprintf("%s: a lease from %d ends at %d, which is not the length asked for or set", promise.P3, f.At, f.Until)
	}
	return ""
}

// differs says how the message that an answer told differs from the one that was stored, or "".
func (s *state) differs(f *Fact) string {
	switch {
	case f.Life != s.name || f.Size != s.size || f.Headers != s.headers:
		return fmt.Sprintf("%s: the message is %q of %d bytes, stored is %q of %d bytes (line %d)", promise.P1, f.Life, f.Size, s.name, s.size, s.line)
	case f.MaxAttempts != s.maxAttempts || f.Drop != s.drop:
		return fmt.Sprintf("%s: the message allows %d attempts, pushed with %d", promise.P6, f.MaxAttempts, s.maxAttempts)
	case !s.created.has(f.Created):
		return fmt.Sprintf("%s: the message is said to be created at %d, it was at %v", promise.P8, f.Created, s.created)
	case !s.due.has(f.Due):
		return fmt.Sprintf("%s: the message is due at %d, possible is %v", promise.P2, f.Due, s.due)
	case !s.expires.has(f.Expires):
		return fmt.Sprintf("%s: the message expires at %d, possible is %v", promise.P2, f.Expires, s.expires)
	}
	return ""
}

// unseen is a claim whose answer nobody saw and that may have leased the message.
func (o *op) unseen(in *intern, s *state) ([]*state, string) {
	if s.phase != phaseLive || s.cancel || s.attention().lo > o.end || s.expires.lo != 0 && s.expires.hi <= o.At {
		return nil, ""
	}
	given := func(x *punctual.Settings) bool { return !x.DeliveryPaused && s.attempt < s.attemptsAllowed(x) }
	if !slices.ContainsFunc(o.sets(), given) {
		return nil, ""
	}
	n := *s
	n.failures = s.ranOut()
	n.attempt, n.token, n.fallback = s.attempt+1, unseenToken, s
	n.until = span{max(o.At, s.attention().lo), o.end}.plus(o.lengths)
	return in.undoable(n, s), ""
}

var noFact = &Fact{}

// request returns the first fact of a call, such as that of a claim with the lease asked for.
func (o *op) request() *Fact {
	if len(o.Facts) == 0 {
		return noFact
	}
	return &o.Facts[0]
}

// settle is a settlement of the message.
func (o *op) settle(in *intern, s *state) ([]*state, string) {
	if o.refused() {
		return []*state{s}, ""
	}
	if s.phase != phaseLive || s.token == 0 || s.token != o.ask.Token {
		return o.answers("lease_lost", o.linked(in, []*state{s}, false))
	}
	if o.status() == "lease_lost" && s.until.lo <= o.time().hi {
		// The lease has run out, and a claim under way may have reserved the message. Its old token
		// is stale by then, although the new lease is not made yet. That a late holder succeeds
		// where nobody claims is checked by group settle of package storetest.
		return []*state{s}, ""
	}
	verb := o.ask.Verb
	if s.cancel && verb != punctual.SettleAck && verb != punctual.SettleDiscard {
		if verb == punctual.SettleExtend {
			return o.answers("cancelled", []*state{s})
		}
		return o.answers("cancelled", o.linked(in, in.kept(o.finish(in, s, wasCancelledLate, o.time(), o.sets())), false))
	}
	if len(o.ask.Then) > 0 && followUpRefused(o.status()) {
		return []*state{s}, ""
	}
	next, reason := o.answers("ok", o.linked(in, o.settled(in, s), true))
	if len(o.ask.Then) > 0 && o.passes() {
		next = append(next, o.linked(in, []*state{s}, false)...)
	}
	return next, reason
}

func (o *op) settled(in *intern, s *state) []*state {
	n := *s
	n.token, n.until, n.cancel = 0, span{}, false
	switch o.ask.Verb {
	case punctual.SettleAck:
		return o.acked(in, s)
	case punctual.SettleRetry:
		return o.retried(in, s)
	case punctual.SettleSnooze:
		n.due = o.dueAgain(exactly(o.ask.Delay))
		n.attempt--
	case punctual.SettleRelease:
		n.attempt--
	case punctual.SettleDiscard:
		d := s.dies(punctual.ReasonDiscarded, o.time())
		d.failures = addFailure(s.failures, s.attempt, o.ask.Failure)
		return in.next(d)
	case punctual.SettleExtend:
		return o.extended(in, s)
	}
	return in.next(n)
}

// acked is an ack. With KeepsTransactions it is kept by a power cut where the topic remembers the
// ID, keeps finished records or tells of acks, and where the ack has follow-ups; otherwise a power
// cut may take it back.
func (o *op) acked(in *intern, s *state) (out []*state) {
	for _, x := range o.sets() {
		for _, f := range o.finish(in, s, wasAcked, o.time(), []*punctual.Settings{x}) {
			next := in.undoable
			if x.DedupeWindow > 0 || x.FinishedRetention > 0 || x.Emit&punctual.EventAcked != 0 || len(o.ask.Then) > 0 {
				next = func(f state, _ *state) []*state { return in.next(f) }
			}
			if p := next(*f, s)[0]; !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	return out
}

func (o *op) retried(in *intern, s *state) (out []*state) {
	failures := addFailure(s.failures, s.attempt, o.ask.Failure)
	for _, x := range o.sets() {
		n := *s
		n.token, n.until, n.failures = 0, span{}, failures
		if s.attempt >= s.attemptsAllowed(x) {
			n = s.dies(punctual.ReasonAttemptsUsedUp, o.time())
			n.failures = failures
		} else {
			n.due = o.dueAgain(o.retryDelay(x, s.attempt))
		}
		for _, p := range in.next(n) {
			if !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	return out
}

// dueAgain returns when a message that was given back is due: at the instant asked for, or after a
// delay.
func (o *op) dueAgain(delay span) span {
	if o.ask.Due != 0 {
		return exactly(o.ask.Due)
	}
	return o.after(delay)
}

// retryDelay returns the delay asked for, or the delays that the topic's backoff may draw.
func (o *op) retryDelay(x *punctual.Settings, attempt int) span {
	if o.ask.Delay >= 0 {
		return exactly(o.ask.Delay)
	}
	least := x.Backoff
	least.Jitter = 0
	d := storekit.RetryDelay(least, attempt)
	spread := 0.0
	if len(x.Backoff.Delays) == 0 {
		spread = x.Backoff.Jitter
	}
	return span{ms(d), storekit.CeilDuration(d + time.Duration(spread*float64(d)))}
}

func (o *op) extended(in *intern, s *state) (out []*state) {
	for _, x := range o.sets() {
		length := cmp.Or(o.ask.Delay, ms(x.Lease))
		n := *s
		n.until = span{o.At + length, o.end + length}
		for _, p := range in.undoable(n, s) {
			if !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	return out
}

// amend is a change by ID.
func (o *op) amend(in *intern, s *state) ([]*state, string) {
	if o.refused() {
		return []*state{s}, ""
	}
	switch {
	case o.ask.Change == punctual.ChangeRequeue:
		return o.requeue(in, s)
	case s.phase != phaseLive:
		return o.answers("not_found", []*state{s})
	}
	var next []*state
	reason := ""
	add := func(n []*state, r string) {
		next = append(next, n...)
		reason = cmp.Or(reason, r)
	}
	t := o.time()
	cancel := o.ask.Change == punctual.ChangeCancel
	if s.is(punctual.StateLeased, t) {
		if cancel && !s.cancel {
			add(o.ifDue(s, func() ([]*state, string) { return o.answers("leased", o.cancelledLate(in, s)) }))
		} else {
			add(o.answers("leased", []*state{s}))
		}
	}
	if s.token == 0 || s.is(punctual.StateReady, t) {
		add(o.ifDue(s, func() ([]*state, string) {
			if cancel {
				return o.answers("cancelled", in.kept(o.finish(in, s, wasCancelled, t, o.sets())))
			}
			return o.reschedule(in, s)
		}))
	}
	return next, reason
}

// ifDue returns what a change of a message that is there does: do, if it has no condition or if the
// message meets the condition.
func (o *op) ifDue(s *state, do func() ([]*state, string)) ([]*state, string) {
	if o.ask.IfDue == 0 {
		return do()
	}
	return o.onCondition(s, true, do)
}

// cancelledLate is a cancel under a lease. That it was cancelled is kept also where a power cut
// takes the lease back.
func (o *op) cancelledLate(in *intern, s *state) []*state {
	n := *s
	n.cancel = true
	var before *state
	if s.undo != nil {
		b := o.cancelledLate(in, s.undo)
		before = b[0]
	}
	n.undo = before
	return []*state{in.of(n)}
}

func (o *op) reschedule(in *intern, s *state) ([]*state, string) {
	if s.cancel {
		return o.answers("not_found", in.kept(o.finish(in, s, wasCancelledLate, o.time(), o.sets())))
	}
	return o.moved(in, s, "rescheduled")
}

func (o *op) moved(in *intern, s *state, status string) ([]*state, string) {
	if _, reason := o.answers(status, nil); reason != "" {
		return nil, reason
	}
	n := *s
	n.phase, n.token, n.until, n.cancel, n.died, n.reason, n.fallback = phaseLive, 0, span{}, false, span{}, "", nil
	var reason string
	if n.due, reason = o.dueAsked(); reason != "" {
		return nil, reason
	}
	n.expires = n.expiry()
	return in.next(n), ""
}

func (o *op) requeue(in *intern, s *state) ([]*state, string) {
	switch s.phase {
	case phaseLive:
		return o.answers("not_dead", []*state{s})
	case phaseDead:
		return o.ifDue(s, func() ([]*state, string) {
			n := *s
			n.attempt = 0
			return o.moved(in, &n, "requeued")
		})
	}
	return o.answers("not_found", []*state{s})
}

// get is a read of one message, or of none.
func (o *op) get(in *intern, s *state) ([]*state, string) {
	f := o.got
	if f.Status == "not_found" {
		switch s.phase {
		case phaseLive, phaseDead:
			return fails("%s: a message is not found: %v", promise.P1, s)
		}
		return []*state{s}, ""
	}
	if s.phase == phaseAbsent || s.phase == phaseFinished {
		return fails("%s: a message is found that was gone: %s", promiseOfEnd(s.why), s.why)
	}
	if r := o.mayRead(s); r != "" {
		return nil, r
	}
	n := *s
	n.due, n.expires = exactly(f.Due), narrowExpiry(s, f.Expires)
	switch f.State {
	case punctual.StateLeased:
		n.until = exactly(f.Until)
	case punctual.StateReady:
		n.until.hi = min(n.until.hi, o.end)
	case punctual.StateDead:
		n.died = exactly(f.Died)
		n.undo = nil
	}
	return []*state{in.of(n)}, ""
}

// record is a read of the finished record of the ID. The store writes it in the same step that ends
// a message, so a record says what has happened, and no message that was acked, cancelled or
// dropped as expired lacks one where the topic keeps records.
func (o *op) record(s *state) ([]*state, string) {
	if told := punctual.Outcome(o.got.Status); told != s.told {
		return fails("%s: the finished record of the ID says %q, it should say %q: %v", promise.P13, told, s.told, s)
	}
	return []*state{s}, ""
}

func (o *op) mayRead(s *state) string {
	f, t := o.got, o.time()
	if r := s.differs(f); r != "" {
		return r
	}
	switch {
	case f.Broken != "":
		return fmt.Sprintf("%s: a message is read with %s", promise.P1, f.Broken)
	case !s.is(f.State, t):
		return fmt.Sprintf("%s: a message is said to be %v at %v", promise.P13, f.State, t)
	case f.State == punctual.StateLeased && !s.until.has(f.Until):
		return fmt.Sprintf("%s: a lease is said to end at %d, it does at %v", promise.P3, f.Until, s.until)
	case f.State == punctual.StateDead && (f.Reason != s.reason || !s.died.has(f.Died)):
		return fmt.Sprintf("%s: a message is said to be dead since %d, %s; it is since %v, %s", promise.P6, f.Died, f.Reason, s.died, s.reason)
	case f.Attempt != s.attempt:
		return fmt.Sprintf("%s: a message is said to have had %d attempts, it had %d", promise.P6, f.Attempt, s.attempt)
	case f.Cancel != s.cancel && (s.token != 0 || f.Cancel): // when a power cut has taken the lease back, a read may not show the cancel
		return fmt.Sprintf("%s: a cancel under a lease is told as %v", promise.P5, f.Cancel)
	case f.Failures != s.failures:
		return fmt.Sprintf("%s: the history is said to be %q, it is %q", promise.P6, f.Failures, s.failures)
	}
	return ""
}

// remove is a purge or the deletion of the topic.
func (o *op) remove(in *intern, s *state) ([]*state, string) {
	if o.kind == opDelete {
		if o.answered("not_found") && s.phase != phaseAbsent {
			return fails("%s: a topic is not found that has a message: %v", promise.P1, s)
		}
		o.meets(s)
		gone := s.gone("deleted with its topic")
		gone.told = ""
		return in.next(gone), ""
	}
	o.meets(s)
	if s.phase == phaseAbsent || s.phase == phaseFinished {
		return []*state{s}, ""
	}
	var out []*state
	for _, st := range []punctual.State{punctual.StateScheduled, punctual.StateReady, punctual.StateLeased, punctual.StateDead} {
		if !s.is(st, o.time()) {
			continue
		}
		wanted := o.ask.State == st || o.ask.State == punctual.StateNone && st != punctual.StateDead
		within, without := wanted, !wanted
		if wanted {
			within, without = s.within(st, o.ask.From, o.ask.To)
			without = without || s.to > o.from // it may have been pushed after the purge began
		}
		if without {
			o.met |= 1
		}
		if without && !slices.Contains(out, s) {
			out = append(out, s)
		}
		if within {
			out = append(out, in.next(s.gone("purged"))...)
		}
	}
	return out, ""
}

func (o *op) answered(code string) bool { return o.answer != nil && o.answer.Code == code }

// within tells whether the time by which a message is listed may lie within bounds, and whether
// outside.
func (s *state) within(st punctual.State, from, to int64) (within, without bool) {
	at := s.due
	switch st {
	case punctual.StateLeased:
		at = s.until
	case punctual.StateDead:
		at = s.died
	}
	if to == 0 {
		to = 1<<63 - 1
	}
	return at.hi >= from && at.lo < to, at.lo < from || at.hi >= to
}
