package races

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storetest/promise"
)

// opKind is the kind of an event.
type opKind uint8

// The kinds of events.
const (
	// opPush is a push of a message with a body that no other push has.
	opPush opKind = iota + 1
	// opDeliver is one delivery of a claim.
	opDeliver
	// opSettle is one settlement.
	opSettle
	// opCancel and opReschedule are amendments.
	opCancel
	opReschedule
	// opDead is a dead message that the list of the store has after the last call.
	opDead
	// opStart and opEnd are the start and the end of a handler.
	opStart
	opEnd
)

// event is one call for one message, as seen by the client that made it. Which fields are set
// depends on the kind.
type event struct {
	Op opKind
	// Call and Return order the calls of all clients: if a.Return < b.Call, then a had returned
	// before b began.
	Call, Return int64
	Topic, ID    string
	// Life is the body of the message. Because every push has a body of its own, Life distinguishes
	// messages that had the same ID one after the other. It is empty for a cancel and a reschedule,
	// which name a message by its ID alone.
	Life string

	// Push has the outcome of a push.
	Push punctual.PushStatus
	// MaxAttempts is the bound of the pushed message; 0 means that there is none.
	MaxAttempts int

	// Token is set for deliveries, settlements and handlers, Verb and Delay for settlements.
	Token int64
	Verb  punctual.Verb
	Delay time.Duration
	// Now is the store's clock, read before the settlement was called, or before the handler can
	// have started. After is the same clock, read after the settlement of a worker, or inside the
	// handler.
	Now, After time.Time

	// Due is the due time that the store returned with a push, a reschedule or a delivery, or that
	// a follow-up asked for.
	Due                   time.Time
	Delivered, LeaseUntil time.Time
	Attempt               int

	// Err is the error of a push, settlement, cancel or reschedule.
	Err error
}

// String describes the event in one line, for the text of a failure.
func (e event) String() string {
	at := fmt.Sprintf("[%d,%d] ", e.Call, e.Return)
	switch e.Op {
	case opPush:
		return at + fmt.Sprintf("push of %s (%s): %q, error %v, due %v", e.ID, e.Life, e.Push, e.Err, e.Due)
	case opDeliver:
		return at + fmt.Sprintf("delivery of %s (%s) token %d attempt %d due %v at %v until %v",
			e.ID, e.Life, e.Token, e.Attempt, e.Due, e.Delivered, e.LeaseUntil)
	case opSettle:
		return at + fmt.Sprintf("%s of %s (%s) token %d delay %v at %v: %v", e.Verb, e.ID, e.Life, e.Token, e.Delay, e.Now, e.Err)
	case opCancel:
		return at + fmt.Sprintf("cancel of %s: error %v", e.ID, e.Err)
	case opReschedule:
		return at + fmt.Sprintf("reschedule of %s: error %v, due %v", e.ID, e.Err, e.Due)
	case opStart:
		return at + fmt.Sprintf("start of the handler of %s (%s) token %d between %v and %v", e.ID, e.Life, e.Token, e.Now, e.After)
	case opEnd:
		return at + fmt.Sprintf("end of the handler of %s (%s) token %d", e.ID, e.Life, e.Token)
	}
	return at + fmt.Sprintf("%s (%s) found dead", e.ID, e.Life)
}

// violation is a promise that a history breaks.
type violation struct {
	// Promise is the number of the promise, such as P4, and its title.
	Promise string
	// Text says what happened, with the events that show it.
	Text string
}

func (v violation) String() string { return v.Promise + ": " + v.Text }

// checkHistory returns what its rules find broken in a complete history of a store. A history is
// complete when it has all calls since the store was empty, and when nothing in the store was
// scheduled, ready or leased after the last call. checkHistory is a pure function of what the
// clients saw. It knows nothing of any store, so that it judges all stores alike.
//
// Each rule holds whatever the order in which overlapping calls took effect, because the order
// cannot be known from outside. jumps allows attempts to skip numbers, as WithLossyClaims says.
func checkHistory(events []event, jumps bool) []violation {
	var out []violation
	for _, h := range byID(events) {
		h.jumps = jumps
		for _, rule := range []func(*idHistory) []violation{
			invented, early, dueUnasked, tokensGrow, overlapping, stale, resurrected, cancelledDelivered, attemptsMiscounted, doubleLife, unaccounted,
			startedLate, handledTwice,
		} {
			out = append(out, rule(h)...)
		}
	}
	return out
}

// idHistory is what happened to the messages of one ID.
type idHistory struct {
	pushes, deliveries, settles, cancels, reschedules, dead []event
	starts, ends                                            []event // of handlers
	lives                                                   []*life // those that were or may have been stored, by the return of their push
	byName                                                  map[string]*life
	jumps                                                   bool // attempts may have been made that nobody saw
}

// life is one message.
type life struct {
	push       event
	deliveries []event // by token
}

// byID divides the events by topic and ID, and sorts those of each ID.
func byID(events []event) []*idHistory {
	all := make(map[[2]string]*idHistory)
	var order []*idHistory
	for _, e := range events {
		name := [2]string{e.Topic, e.ID}
		h := all[name]
		if h == nil {
			h = &idHistory{byName: make(map[string]*life)}
			all[name] = h
			order = append(order, h)
		}
		h.add(e)
	}
	for _, h := range order {
		h.arrange()
	}
	return order
}

func (h *idHistory) add(e event) {
	list := map[opKind]*[]event{
		opPush: &h.pushes, opDeliver: &h.deliveries, opSettle: &h.settles,
		opCancel: &h.cancels, opReschedule: &h.reschedules, opDead: &h.dead,
		opStart: &h.starts, opEnd: &h.ends,
	}[e.Op]
	*list = append(*list, e)
}

func (h *idHistory) arrange() {
	byToken := func(a, b event) int { return cmp.Compare(a.Token, b.Token) }
	slices.SortStableFunc(h.deliveries, byToken)
	slices.SortStableFunc(h.settles, byToken)
	slices.SortStableFunc(h.pushes, func(a, b event) int { return cmp.Compare(a.Return, b.Return) })
	for _, p := range h.pushes {
		if stored(p) {
			l := &life{push: p}
			h.lives = append(h.lives, l)
			h.byName[p.Life] = l
		}
	}
	for _, d := range h.deliveries {
		if l := h.byName[d.Life]; l != nil {
			l.deliveries = append(l.deliveries, d)
		}
	}
}

func stored(p event) bool {
	return p.Push == punctual.PushStored || p.Push == punctual.PushReplaced || p.Err != nil && !punctual.Definite(p.Err)
}

// ended reports whether the settlement ended the lease, or may have.
func ended(s event) bool {
	return s.Verb != punctual.SettleExtend && (accepted(s) || s.Err != nil && !punctual.Definite(s.Err))
}

// accepted reports whether the store accepted the token of the settlement as the current one.
func accepted(s event) bool { return s.Err == nil || errors.Is(s.Err, punctual.ErrCancelled) }

// settlesOf returns the settlements with a token.
func (h *idHistory) settlesOf(token int64) []event {
	byToken := func(e event, t int64) int { return cmp.Compare(e.Token, t) }
	from, _ := slices.BinarySearchFunc(h.settles, token, byToken)
	to := from
	for to < len(h.settles) && h.settles[to].Token == token {
		to++
	}
	return h.settles[from:to]
}

// violated returns one violation of promise. Its text is what, followed by a line for each event
// that shows it.
func violated(promise, what string, events ...event) []violation {
	for _, e := range events {
		what += "\n\t" + e.String()
	}
	return []violation{{promise, what}}
}

// invented: nothing is delivered that was not pushed, or whose push was refused.
func invented(h *idHistory) (out []violation) {
	for _, d := range h.deliveries {
		if h.byName[d.Life] != nil {
			continue
		}
		for _, p := range h.pushes {
			if p.Life == d.Life {
				out = append(out, violated(promise.P7, "a message was delivered whose push was refused", p, d)...)
			}
		}
		if !slices.ContainsFunc(h.pushes, func(p event) bool { return p.Life == d.Life }) {
			out = append(out, violated(promise.P1, "a message was delivered that nobody pushed", d)...)
		}
	}
	return out
}

// early: no delivery before the due time it carries. Nor is there one before the delay of the retry
// or snooze that it follows, unless a reschedule came between.
func early(h *idHistory) (out []violation) {
	for _, l := range h.lives {
		for i, d := range l.deliveries {
			if d.Delivered.Before(d.Due) {
				out = append(out, violated(promise.P2, "a delivery was early", d)...)
			}
			if i == 0 {
				continue
			}
			for _, s := range h.settlesOf(l.deliveries[i-1].Token) {
				delays := s.Err == nil && (s.Verb == punctual.SettleRetry || s.Verb == punctual.SettleSnooze) && s.Delay > 0
				if delays && d.Delivered.Before(s.Now.Add(s.Delay)) && !h.rescheduled(s.Call, d.Return) {
					out = append(out, violated(promise.P2, "a delivery came before the delay asked for had passed", s, d)...)
				}
			}
		}
	}
	return out
}

// rescheduled reports whether a reschedule may have taken effect in between.
func (h *idHistory) rescheduled(from, to int64) bool {
	return slices.ContainsFunc(h.reschedules, func(r event) bool {
		return r.Err == nil && r.Return > from && r.Call < to
	})
}

// dueUnasked: the first delivery of a message carries the due time of its push, or that
// of a reschedule.
func dueUnasked(h *idHistory) (out []violation) {
	for _, l := range h.lives {
		if len(l.deliveries) == 0 || l.push.Err != nil {
			continue
		}
		d := l.deliveries[0]
		asked := d.Due.Equal(l.push.Due) || slices.ContainsFunc(h.reschedules, func(r event) bool {
			return r.Err == nil && r.Due.Equal(d.Due) && r.Return > l.push.Call && r.Call < d.Return
		})
		if !asked {
			out = append(out, violated(promise.P2, "a delivery carries a due time that nobody asked for", l.push, d)...)
		}
	}
	return out
}

// tokensGrow: tokens are unique, and a delivery that began after another was over has
// the greater one.
func tokensGrow(h *idHistory) (out []violation) {
	for i := 1; i < len(h.deliveries); i++ {
		if h.deliveries[i].Token == h.deliveries[i-1].Token {
			out = append(out, violated(promise.P4, "two deliveries have the same token", h.deliveries[i-1], h.deliveries[i])...)
		}
	}
	byCall, byReturn := slices.Clone(h.deliveries), slices.Clone(h.deliveries)
	slices.SortFunc(byCall, func(a, b event) int { return cmp.Compare(a.Call, b.Call) })
	slices.SortFunc(byReturn, func(a, b event) int { return cmp.Compare(a.Return, b.Return) })
	var top *event // the delivery with the greatest token among those that had returned
	for _, d := range byCall {
		for len(byReturn) > 0 && byReturn[0].Return < d.Call {
			if top == nil || byReturn[0].Token > top.Token {
				top = &byReturn[0]
			}
			byReturn = byReturn[1:]
		}
		if top != nil && d.Token < top.Token {
			out = append(out, violated(promise.P4, "a later delivery has a smaller token", *top, d)...)
		}
	}
	return out
}

// overlapping: a message is not delivered again while a lease on it lasts that was not
// given back.
func overlapping(h *idHistory) (out []violation) {
	for _, l := range h.lives {
		for i := 1; i < len(l.deliveries); i++ {
			d, next := l.deliveries[i-1], l.deliveries[i]
			end, givenBack := h.leaseEnd(d, next)
			if !givenBack && next.Delivered.Before(end) {
				out = append(out, violated(promise.P3, fmt.Sprintf("a message was delivered again while a lease on it lasted until %v", end), d, next)...)
			}
		}
	}
	return out
}

// startedLate: a handler starts under a lease that was delivered and that has not ended, and only
// one handler does. Whether the lease had ended is judged by a reading of the store's clock from
// before the handler can have started.
func startedLate(h *idHistory) (out []violation) {
	seen := make(map[int64]bool)
	for _, s := range h.starts {
		i := slices.IndexFunc(h.deliveries, func(d event) bool { return d.Token == s.Token && d.Life == s.Life })
		switch {
		case i < 0:
			out = append(out, violated(promise.P3, "a handler started with a message that was not delivered", s)...)
			continue
		case seen[s.Token]:
			out = append(out, violated(promise.P3, "two handlers started under one lease", s)...)
		}
		seen[s.Token] = true
		if end := h.latestEnd(h.deliveries[i], s.Return); !s.Now.Before(end) {
			out = append(out, violated(promise.P3, fmt.Sprintf("a handler started after its lease had ended, at the latest at %v", end), h.deliveries[i], s)...)
		}
	}
	return out
}

// latestEnd returns when the lease of d ends at the latest, with all extensions that were called
// before the given moment.
func (h *idHistory) latestEnd(d event, before int64) time.Time {
	end := d.LeaseUntil
	for _, s := range h.settlesOf(d.Token) {
		if s.Verb == punctual.SettleExtend && s.Call < before && (s.Err == nil || !punctual.Definite(s.Err)) {
			if e := s.After.Add(s.Delay + time.Millisecond); e.After(end) { // the clock was rounded down
				end = e
			}
		}
	}
	return end
}

// handledTwice: no handler starts while another one of the same message runs under a lease that
// lasts.
func handledTwice(h *idHistory) (out []violation) {
	for _, b := range h.starts {
		for _, a := range h.starts {
			if a.Life != b.Life || a.Token >= b.Token || !h.runsAt(a, b.Return) {
				continue
			}
			i := slices.IndexFunc(h.deliveries, func(d event) bool { return d.Token == a.Token && d.Life == a.Life })
			if i < 0 {
				continue // startedLate reports it
			}
			if end, givenBack := h.leaseEnd(h.deliveries[i], b); !givenBack && b.After.Before(end) {
				out = append(out, violated(promise.P3, fmt.Sprintf("two handlers of one message ran at the same time while the first one's lease lasted until %v", end), a, b)...)
			}
		}
	}
	return out
}

// runsAt reports whether the handler that a started was still at work at the given moment.
func (h *idHistory) runsAt(a event, moment int64) bool {
	return a.Return < moment && !slices.ContainsFunc(h.ends, func(e event) bool { return e.Token == a.Token && e.Call < moment })
}

// leaseEnd returns when the lease of d ended at the earliest, and true if the lease may have been
// ended by a settlement before next. The settlements of one token come from one client, one after
// the other.
func (h *idHistory) leaseEnd(d, next event) (time.Time, bool) {
	end := d.LeaseUntil
	last := int64(-1)
	for _, s := range h.settlesOf(d.Token) {
		if ended(s) && s.Call < next.Return {
			return end, true
		}
		if s.Verb == punctual.SettleExtend && s.Err == nil && s.Call > last && s.Call < next.Return {
			end, last = s.Now.Add(s.Delay), s.Call
		}
	}
	return end, false
}

// stale: a token is accepted only until the message is claimed again, and ends its lease
// once.
func stale(h *idHistory) (out []violation) {
	tokens := make(map[int64]event, len(h.deliveries))
	for _, d := range h.deliveries {
		tokens[d.Token] = d
	}
	for i, s := range h.settles {
		if !accepted(s) {
			continue
		}
		if _, ok := tokens[s.Token]; !ok {
			out = append(out, violated(promise.P4, "a token was accepted that no delivery had", s)...)
		}
		if d, ok := h.deliveredBefore(s); ok {
			out = append(out, violated(promise.P4, "an old token was accepted after the message was claimed again", d, s)...)
		}
		for _, other := range h.settlesOf(s.Token) {
			if s.Verb == punctual.SettleExtend || !accepted(other) {
				continue
			}
			again := other.Call > s.Return
			twice := other.Verb != punctual.SettleExtend && other.Call > s.Call && other.Call != s.Call
			if again || twice {
				out = append(out, violated(promise.P4, "a token was accepted after it had ended its lease", h.settles[i], other)...)
			}
		}
	}
	return out
}

// deliveredBefore finds a delivery with a greater token that was over before s was called.
func (h *idHistory) deliveredBefore(s event) (event, bool) {
	byToken := func(e event, t int64) int { return cmp.Compare(e.Token, t) }
	i, _ := slices.BinarySearchFunc(h.deliveries, s.Token+1, byToken)
	for ; i < len(h.deliveries); i++ {
		if h.deliveries[i].Return < s.Call {
			return h.deliveries[i], true
		}
	}
	return event{}, false
}

// resurrected: after its ack, its discard, or another verb than an extension answered with
// ErrCancelled, a message is not delivered again.
func resurrected(h *idHistory) (out []violation) {
	for _, s := range h.settles {
		cancelled := errors.Is(s.Err, punctual.ErrCancelled) && s.Verb != punctual.SettleExtend
		final := s.Err == nil && (s.Verb == punctual.SettleAck || s.Verb == punctual.SettleDiscard)
		l := h.byName[s.Life]
		if l == nil || !cancelled && !final {
			continue
		}
		if d := l.deliveries[len(l.deliveries)-1]; d.Token > s.Token {
			broken := promise.P1
			if cancelled {
				broken = promise.P5
			}
			out = append(out, violated(broken, "a message was delivered again after it had ended", s, d)...)
		}
	}
	return out
}

// cancelledDelivered: no claim that began after a cancel was answered done, leased or not found
// returns a message that was pushed before the cancel. After done or not found, no token of the
// message is accepted either.
func cancelledDelivered(h *idHistory) (out []violation) {
	for _, c := range h.cancels {
		if c.Err != nil && !errors.Is(c.Err, punctual.ErrLeased) && !errors.Is(c.Err, punctual.ErrNotFound) {
			continue
		}
		for _, l := range h.lives {
			if l.push.Return >= c.Call {
				break // lives are sorted by the return of their push
			}
			for _, d := range l.deliveries {
				if d.Call > c.Return {
					out = append(out, violated(promise.P5, "a message was delivered by a claim that began after the answer to its cancel", l.push, c, d)...)
				}
				out = append(out, h.acceptedAfter(c, d)...)
			}
		}
	}
	return out
}

func (h *idHistory) acceptedAfter(c, d event) (out []violation) {
	if errors.Is(c.Err, punctual.ErrLeased) {
		return nil
	}
	for _, s := range h.settlesOf(d.Token) {
		if accepted(s) && s.Call > c.Return {
			out = append(out, violated(promise.P5, "a lease was accepted after its message was answered to be gone", c, d, s)...)
		}
	}
	return out
}

// attemptsMiscounted: attempts go up by one with each delivery, but a snooze and a release take
// their attempt back. Where the answer to one of them says that nobody knows whether the store
// carried it out, both counts are right.
func attemptsMiscounted(h *idHistory) (out []violation) {
	for _, l := range h.lives {
		least, most := 1, 1
		for i, d := range l.deliveries {
			if i > 0 {
				before := l.deliveries[i-1]
				least, most = before.Attempt+1, before.Attempt+1
				taken, perhaps := h.takenBack(before.Token)
				if taken {
					most--
				}
				if taken || perhaps {
					least--
				}
			}
			if d.Attempt < least || d.Attempt > most && !h.jumps {
				out = append(out, violated(promise.P6, fmt.Sprintf("a delivery is not attempt %d", most), append(l.deliveries[max(0, i-1):i:i], d)...)...)
			}
			if l.push.MaxAttempts > 0 && d.Attempt > l.push.MaxAttempts {
				out = append(out, violated(promise.P6, "there are more attempts than allowed", l.push, d)...)
			}
		}
	}
	return out
}

// takenBack reports whether a snooze or a release has taken the attempt of a token back, and
// whether one may have.
func (h *idHistory) takenBack(token int64) (taken, perhaps bool) {
	for _, s := range h.settlesOf(token) {
		if s.Verb == punctual.SettleSnooze || s.Verb == punctual.SettleRelease {
			taken, perhaps = taken || s.Err == nil, perhaps || s.Err != nil && !punctual.Definite(s.Err)
		}
	}
	return taken, perhaps
}

// doubleLife: an ID is stored anew only after the message that had it may have ended.
func doubleLife(h *idHistory) (out []violation) {
	for i, b := range h.lives {
		if b.push.Push != punctual.PushStored {
			continue
		}
		for _, a := range h.lives[max(0, i-20):i] {
			if a.push.Err != nil && len(a.deliveries) == 0 {
				continue // nobody knows that it was ever stored
			}
			if a.push.Return < b.push.Call && !h.mayHaveEnded(a, b.push.Return) {
				out = append(out, violated(promise.P7, "an ID was stored anew while its message was alive", a.push, b.push)...)
			}
		}
	}
	return out
}

// mayHaveEnded reports whether something called before the given moment may have
// ended the message for good.
func (h *idHistory) mayHaveEnded(l *life, before int64) bool {
	after := func(e event) bool { return e.Return > l.push.Call && e.Call < before }
	ended, perhaps := h.endedByHolder(l, before)
	return ended || perhaps ||
		slices.ContainsFunc(h.cancels, func(c event) bool {
			return after(c) && (c.Err == nil || errors.Is(c.Err, punctual.ErrLeased))
		}) ||
		slices.ContainsFunc(h.pushes, func(p event) bool {
			return p.Life != l.push.Life && after(p) && (p.Push == punctual.PushReplaced || p.Err != nil && !punctual.Definite(p.Err))
		})
}

// endedByHolder reports whether a settlement called before the given moment has ended the message
// for good, and whether one may have because its outcome is not known.
func (h *idHistory) endedByHolder(l *life, before int64) (ended, perhaps bool) {
	for _, d := range l.deliveries {
		for _, s := range h.settlesOf(d.Token) {
			acked := s.Verb == punctual.SettleAck && s.Err == nil
			cancelled := s.Verb != punctual.SettleExtend && errors.Is(s.Err, punctual.ErrCancelled)
			unknown := s.Verb != punctual.SettleExtend && s.Err != nil && !punctual.Definite(s.Err)
			if s.Call < before {
				ended, perhaps = ended || acked || cancelled, perhaps || unknown
			}
		}
	}
	return ended, perhaps
}

// unaccounted: at the end each message has ended in one way, and nothing ended that was
// not there. Every answer cancelled and every replacing push ended one message of its
// own; every answer too late ended at most one.
func unaccounted(h *idHistory) []violation {
	open, unsure, out := h.stillOpen()
	if len(out) > 0 {
		return out
	}
	cancelled := count(h.cancels, func(c event) bool { return c.Err == nil })
	tooLate := count(h.cancels, func(c event) bool { return errors.Is(c.Err, punctual.ErrLeased) })
	replaced := count(h.pushes, func(p event) bool { return p.Push == punctual.PushReplaced })
	unknown := count(h.pushes, func(p event) bool { return p.Err != nil && !punctual.Definite(p.Err) })
	if open > cancelled+tooLate+replaced+unknown {
		return violated(promise.P1, fmt.Sprintf("%d messages of one ID are gone, but only %d were cancelled, at most %d cancelled while leased, %d replaced",
			open, cancelled, tooLate, replaced), h.pushes[0])
	}
	if cancelled+replaced > open+unsure+unknown {
		return violated(promise.P5, fmt.Sprintf("%d messages of one ID were answered cancelled and %d replaced, but only %d can have been",
			cancelled, replaced, open), slices.Concat(h.pushes, h.cancels)[0])
	}
	return nil
}

// stillOpen counts the messages that their holder did not end and that are not dead at the end.
// Those that their holder may have ended it counts in unsure. It reports those that nobody can have
// ended.
func (h *idHistory) stillOpen() (open, unsure int, out []violation) {
	const end = int64(1<<63 - 1)
	for _, l := range h.lives {
		name := func(e event) bool { return e.Life == l.push.Life }
		ended, perhaps := h.endedByHolder(l, end)
		switch {
		case l.push.Err != nil || ended || slices.ContainsFunc(h.dead, name):
			continue
		case perhaps:
			unsure++
			continue
		}
		open++
		if !h.mayHaveEnded(l, end) {
			out = append(out, violated(promise.P1, "a message was neither acked nor cancelled nor replaced, is not dead, and is gone",
				append([]event{l.push}, l.deliveries...)...)...)
		}
	}
	return open, unsure, out
}

func count(events []event, is func(event) bool) int {
	n := 0
	for _, e := range events {
		if is(e) {
			n++
		}
	}
	return n
}
