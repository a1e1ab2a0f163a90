package worker

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// ask is one claim under way.
type ask struct {
	polls []*polled
	claim punctual.Claim
	// reserved is the slots that slots.reserve has reserved for the claim; none for a claim ahead
	// of free slots and for poller.second.
	reserved reservation
	cancel   context.CancelFunc
	// late is when the claim will have taken too long; zero once giveUp or giveUpLate has acted on
	// that.
	late    time.Time
	givenUp bool
	// suspected reports that the claim is given up early unless it returns soon, because the claim
	// beside it has found a message.
	suspected bool

	got *claimed
	err error
}

// askAll sends a claim for each group, and one for all topics that are in no group, as far as there
// are slots.
func (p *poller) askAll() {
	now := time.Now()
	if p.whole != nil {
		return
	}
	if !p.divided {
		if !p.awaitsSlot(now) {
			p.ask(p.inOrder(now), p.w.slots.total)
		}
		return
	}
	var shared []*polled
	groups := make(map[int][]*polled)
	alone := false // whether a topic that is in no group is in a claim already
	for _, t := range p.inOrder(now) {
		switch {
		case t.asked != nil:
			alone = alone || t.group == 0
		case t.rest.After(now), t.late >= mostLate:
		case t.group > 0:
			groups[t.group] = append(groups[t.group], t)
		default:
			shared = append(shared, t)
		}
	}
	most := p.w.slots.total
	if p.outnumbered() { // otherwise the first group could reserve all slots
		most = max(1, most/(len(groups)+1))
	}
	for _, g := range slices.Sorted(maps.Keys(groups)) {
		p.ask(groups[g], most)
	}
	if p.waits = len(shared) > 0 && p.awaitsOthers(now, alone); p.waits || len(shared) == 0 {
		return
	}
	p.divided = len(shared) < len(p.polls)
	p.ask(shared, p.w.slots.total)
}

// awaitsSlot reports whether a claim of many topics is to wait until there is a slot beside the
// kept ones. Without such a slot it could only name the topics that have no message in a slot,
// which is another list for each claim, and a store may recognise a list that it has seen. The wait
// is short because most handlers return soon.
func (p *poller) awaitsSlot(now time.Time) bool {
	switch {
	case len(p.polls) <= drawnEach || p.w.slots.spare():
		p.short = time.Time{}
		return false
	case p.short.IsZero():
		p.short = now
	}
	return now.Before(p.short.Add(shortFor))
}

// awaitsOthers reports whether topics that are in no group are to wait for the claims of other
// topics, to share the next claim with them. If each claim of some of many topics ended at another
// time, one claim would never name all of them again. So where topics outnumber the slots, claims
// of some of the topics end together, at rejoin, unless they do not wait or hardly any time is left
// until then. When rejoin is past, awaitsOthers sets the next one.
func (p *poller) awaitsOthers(now time.Time, alone bool) bool {
	switch {
	case !p.outnumbered() || p.untilRejoin(now) > 0:
		return false
	case alone && now.Before(p.rejoin.Add(rejoinWait)):
		return true
	}
	p.rejoin = now.Add(claimWait)
	return false
}

// untilRejoin is how long a claim of some of the topics is to wait in the store, so that it ends at
// rejoin. It is 0 when less than shortestBackoff is left.
func (p *poller) untilRejoin(now time.Time) time.Duration {
	if left := p.rejoin.Sub(now); left >= shortestBackoff {
		return left
	}
	return 0
}

// ask sends a claim for those topics of all that may have a slot, in the order of all, and reserves
// slots for the claim, up to the number most. A claim that is to bring messages ahead of free slots
// names all topics and reserves no slots. ask sends nothing when there is no slot and nothing to
// claim ahead.
func (p *poller) ask(all []*polled, most int) {
	long := p.quiet(time.Now())
	if long {
		most = max(1, p.w.slots.room(all[0].route)-1) // one slot is left for the message of the second claim
	}
	ts, r := p.w.slots.reserve(all, most)
	a := &ask{polls: ts, reserved: r, claim: punctual.Claim{Max: r.slots, PerTopic: r.perTopic, Wait: claimWait, Lease: p.w.cfg.Lease}}
	if left := p.untilRejoin(time.Now()); p.divided && left > 0 {
		a.claim.Wait = left
	}
	if long {
		a.claim.Wait = longWait
	}
	if n := p.ahead(all); n > 0 { // which message gets a slot is decided when the messages are there
		p.w.slots.settle(r, nil)
		a.polls, a.reserved = all, reservation{}
		a.claim.Max, a.claim.PerTopic, a.claim.Wait = min(r.slots+n, limits.MaxClaim), 0, 0
	}
	if len(a.polls) == 0 {
		return
	}
	if len(a.polls) == len(p.polls) {
		p.whole, a.claim.Topics = a, p.order.names
	} else {
		p.divided, a.claim.Topics = true, namesOf(a.polls)
		for _, t := range a.polls {
			t.asked = a
		}
	}
	p.send(a)
}

// send makes the claim in another goroutine, whose answer arrives in p.answers.
func (p *poller) send(a *ask) {
	a.late = time.Now().Add(a.mayTake())
	var ctx context.Context
	if len(a.polls) == 1 {
		ctx, a.cancel = context.WithTimeout(p.s.claims, longestClaim)
	} else {
		ctx, a.cancel = context.WithCancel(p.s.claims)
	}
	p.underWay++
	go func() {
		a.got, a.err = p.w.claim(ctx, a.claim)
		p.answers <- a
	}()
}

// quiet reports whether claims are to be long: the worker has one topic, no message was found for
// quietFor, and no claim hangs or fails.
func (p *poller) quiet(now time.Time) bool {
	if len(p.polls) > 1 || p.polls[0].tries.tries > 0 || now.Sub(p.found) < quietFor {
		return false
	}
	late := p.polls[0].late
	return late == 0 || late == 1 && p.second != nil
}

// askSecond sends the second claim beside a long one. It asks for one message, for which the long
// claim has left a slot. Where the topic may have only one slot, the message that comes first, of
// either claim, gets it.
func (p *poller) askSecond() {
	if !p.awaitsSecond() {
		return
	}
	t, now := p.polls[0], time.Now()
	if t.rest.After(now) {
		return
	}
	wait := p.whole.late.Sub(now)
	if wait -= longWait / 2; wait < longWait/4 {
		wait += longWait
	}
	p.second = &ask{
		polls: p.polls, givenUp: true,
		claim: punctual.Claim{Topics: p.whole.claim.Topics, Max: 1, Wait: wait, Lease: p.w.cfg.Lease},
	}
	t.late++
	p.send(p.second)
}

// awaitsSecond reports whether a long claim has no other one beside it, and may have one.
func (p *poller) awaitsSecond() bool {
	return p.whole != nil && p.whole.claim.Wait == longWait && !p.whole.suspected && p.second == nil && p.polls[0].late < mostLate
}

// mayTake is how long a claim may take before it is late. A claim of one topic may always take
// claimWait and lateCall, also when its own wait is shorter, because no other topic waits for it.
func (a *ask) mayTake() time.Duration {
	if len(a.polls) == 1 {
		return max(claimWait, a.claim.Wait) + lateCall
	}
	return a.claim.Wait + lateCall + time.Duration(len(a.polls))*lateEach
}

// ahead returns how many messages of ts to claim ahead of free slots.
func (p *poller) ahead(ts []*polled) int {
	n := p.w.slots.roomAhead(time.Now())
	if n == 0 || !p.backlog || p.w.cfg.Strict || p.w.cfg.Concurrency == 1 || slices.ContainsFunc(ts, func(t *polled) bool { return t.group > 0 || !t.mayWaitAhead() }) {
		return 0
	}
	return n
}

// outnumbered reports whether there are more topics than slots.
func (p *poller) outnumbered() bool { return len(p.polls) > p.w.slots.total }

// claimed is the answer to one claim. It is immutable once the claim has returned.
type claimed struct {
	deliveries []punctual.Delivery
	// sent and received are the local instants before and after the call of the store.
	sent, received time.Time
	// clock is the latest time that the store's clock can have shown at received.
	clock time.Time
}

// claim makes one claim, takes note of the store's clock, and reports a claim that did not fail to
// the observer.
func (w *Worker) claim(ctx context.Context, c punctual.Claim) (*claimed, error) {
	got := &claimed{sent: time.Now()}
	var err error
	got.deliveries, err = w.claimParts(ctx, c)
	got.received = time.Now()
	var shown time.Time // the store's clock, as the deliveries show it
	for i := range got.deliveries {
		if d := &got.deliveries[i]; d.Delivered.After(shown) {
			shown = d.Delivered
		}
	}
	got.clock = w.inflight.observe(got.sent, got.received, shown)
	if err != nil {
		return got, err // the store's error names the operation
	}
	if n := len(got.deliveries); n > c.Max {
		got.deliveries = got.deliveries[:c.Max]
		err = storekit.Errorf(punctual.ErrIndeterminate, "claim: the store gave %d messages for %d slots: the others are delivered again when their leases end", n, c.Max)
		return got, err
	}
	w.observer.OnClaim(ctx, len(got.deliveries), got.received.Sub(got.sent))
	return got, nil
}
