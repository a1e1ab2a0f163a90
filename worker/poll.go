package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
)

// The poller asks the store for messages. One claim names all topics that may have a slot when the claim is sent. When a
// topic that had no slot then gets one while that claim is under way, a second claim asks for this topic. So each topic is in
// at most one claim under way that is not late.
//
// A claim of several topics that takes longer than ask.mayTake is ended. After that, or after a failure, each of its topics
// is asked for separately until an answer was in time. So a topic that hangs or fails costs the other topics one such claim:
// less than a second as long as a claim names fewer than 6,000 topics (P14). When topics outnumber the slots they are asked for
// in groups instead, because thousands of claims would wait for slots one after the other. A group that is late is
// divided again.
//
// A late claim of one topic is not ended, because it may still lease messages. Another claim is sent beside it, because
// a claim over another connection succeeds if only the first connection hangs (P11). A message that a late claim brings is
// handled if there is a slot for it, and is given back otherwise.
//
// Claims with short waits show soon that a claim hangs, but cost the server two claims a second. So a worker of one topic that
// has found nothing for quietFor sends a long claim and beside it a second long claim of one message, which most stores send
// over another connection. If one of the two connections hangs, the claim over the other one finds what becomes due. As soon
// as one of them finds a message, claims are short again, and the other one, unless it returns soon, is treated as late.

const (
	// claimWait is how long a claim waits in the store when nothing is due. It is short because a claim that hangs cannot be
	// told from one that waits until this time is over.
	claimWait = 500 * time.Millisecond
	// quietFor is how long a worker of one topic must have found nothing before its claims are long.
	quietFor = 3 * time.Second
	// longWait is how long a long claim waits in the store. The second claim is timed to end halfway between the ends of
	// two long claims.
	longWait = 20 * time.Second
	// longestClaim is how long a claim of one topic may take in all. Then its context ends, so that its connection is freed.
	longestClaim = 30 * time.Second
	// mostLate is how many late claims of one topic may be under way, the second of two long claims included. Beyond that the
	// next claim waits until one of them has returned.
	mostLate = 3
	// mostGroups is into how many groups the topics of a claim that was late or failed are divided at most.
	mostGroups = 64
	// shortFor is how long a claim of many topics (more than drawnEach) waits for a slot beside the kept ones (slots.kept).
	shortFor = 20 * time.Millisecond
	// rejoinWait is how long topics without a claim wait for the claims of other topics to end, to share one claim with them.
	rejoinWait = 50 * time.Millisecond
	// lateEach is by how much each topic of a claim of several topics prolongs the time that the claim may take.
	lateEach = 50 * time.Microsecond
)

// poller is the state of a session's claims. Only the goroutine that polls uses it.
type poller struct {
	w     *Worker
	s     *session
	polls []*polled // in order of Handle
	order order
	// whole is the claim under way for all topics, or nil.
	whole *ask
	// second is the claim beside a long one, or nil. It has no reserved slots and is counted in polled.late, as a late claim.
	second *ask
	// found is when a claim last brought a message or returned at once without waiting in the store, or when polling began.
	found time.Time
	// divided reports that topics may be asked for without the others, because one has a claim of its own, is in a group or
	// rests. While it is false the poller need not walk over the topics.
	divided bool
	// rejoin is when claims of some of the topics are to end, so that one claim can name all topics again. waits reports that
	// topics without a claim wait for that, up to rejoinWait longer.
	rejoin time.Time
	waits  bool
	// short is since when there has been no free slot beside the kept ones; zero while there is one.
	short time.Time
	// answers receives the claims that have returned. Its buffer has room for two claims of each topic.
	answers  chan *ask
	underWay int
	// failing counts the topics whose latest claim failed.
	failing int
	// groups is the number of the newest group; numbers are not used again.
	groups int
	// backlog reports that the latest claim brought as many messages as it asked for, with leases of at least aheadLease.
	backlog bool
	// clockRead is when the poller last had the store's clock read.
	clockRead time.Time
}

// polled is a topic as the poller sees it.
type polled struct {
	*route
	// asked is the claim under way for some of the topics, this one among them, or nil. A claim for all topics is poller.whole.
	asked *ask
	// group is the number of the group with which the topic is asked for, because a claim for more topics failed or was
	// late. It is 0 while the topic is in no group.
	group int
	// late counts the claims for this topic alone that were late and have not returned.
	late int
	// rest is when the topic may be asked for again.
	rest time.Time
	// tries is the backoff after failed claims.
	tries backoff
}

// ask is one claim under way.
type ask struct {
	polls []*polled
	claim punctual.Claim
	// reserved is the slots that slots.reserve has reserved for the claim; none for a claim ahead of free slots.
	reserved reservation
	cancel   context.CancelFunc
	// late is when the claim will have taken too long; zero once it has been given up.
	late    time.Time
	givenUp bool
	// suspected reports that the claim is given up early, because the claim beside it has found a message.
	suspected bool

	got *claimed
	err error
}

// poll claims messages and dispatches them. It returns nil when the session's claims are over, or the error after which
// the store cannot recover. No claim is under way any more then.
func (w *Worker) poll(s *session) error {
	p := &poller{w: w, s: s, answers: make(chan *ask, 2*len(w.topics)), found: time.Now()}
	for _, t := range w.topics {
		p.polls = append(p.polls, &polled{route: w.routes[t]})
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for s.claims.Err() == nil {
		p.refreshClock()
		// Settlements return in batches, so many slots become free at almost the same time. Let their goroutines free them
		// first, because otherwise each claim would ask for one message (BenchmarkWorker, msgs/claim). A claim that has
		// returned is handled before another one is sent.
		if len(p.answers) == 0 {
			runtime.Gosched()
			p.askAll()
			p.askSecond()
		}
		if next := p.nextTime(); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
		back := w.slots.back
		if len(p.answers) > 0 { // a claim that has returned is handled first
			back = nil
		}
		select {
		case a := <-p.answers:
			if err := p.receive(a); err != nil {
				s.endClaims()
				p.awaitClaims()
				return err
			}
		case <-back:
		case <-timer.C:
			if len(p.answers) == 0 { // after a pause of the process the timer has fired although the answer is there
				p.giveUpLate()
			}
		case <-s.claims.Done():
		}
	}
	p.awaitClaims()
	return nil
}

// awaitClaims waits for the claims under way once no more are sent, and dispatches what they bring.
func (p *poller) awaitClaims() {
	for p.underWay > 0 {
		_ = p.receive(<-p.answers) // claims are over
	}
}

// refreshClock has the store's clock read in another goroutine when no claim has shown it for clockEvery. No claim waits
// for the answer.
func (p *poller) refreshClock() {
	if now := time.Now(); now.Sub(p.clockRead) >= clockEvery && p.w.inflight.boundAge(now) >= clockEvery {
		p.clockRead = now
		p.s.running.Go(func() { p.w.readClock(p.s.claims) })
	}
}

// askAll sends a claim for each group, and one for all topics that are in no group, as far as there are slots.
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

// awaitsSlot reports whether a claim of many topics is to wait until there is a slot beside the kept ones. Without such a
// slot it could only name the topics that have no message in a slot, which is another list for each claim, and a store may
// recognise a list that it has seen. The wait is short because most handlers return soon.
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

// awaitsOthers reports whether topics that are in no group are to wait for the claims of other topics, to share the next claim
// with them. If each claim of some of many topics ended at another time, one claim would never name all of them again. So
// all claims are given the same end, rejoin.
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

// untilRejoin is how long a claim of some of the topics is to wait in the store, so that it ends at rejoin. It is 0 when less
// than shortestBackoff is left.
func (p *poller) untilRejoin(now time.Time) time.Duration {
	if left := p.rejoin.Sub(now); left >= shortestBackoff {
		return left
	}
	return 0
}

// ask sends a claim for those topics of all that may have a slot, in the order of all, and reserves at most so many slots for
// it. Where messages are to be claimed ahead of free slots it names all topics and reserves none. It sends nothing when there is
// no slot and nothing to claim ahead.
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
		a.claim.Max, a.claim.PerTopic, a.claim.Wait = r.slots+n, 0, 0
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

// quiet reports whether claims are to be long: the worker has one topic, no message was found for quietFor, and no claim hangs
// or fails.
func (p *poller) quiet(now time.Time) bool {
	if len(p.polls) > 1 || p.failing > 0 || now.Sub(p.found) < quietFor {
		return false
	}
	late := p.polls[0].late
	return late == 0 || late == 1 && p.second != nil
}

// askSecond sends the second claim beside a long one. It asks for one message, for which the long claim has left a slot. A
// worker with a single slot gives it to the message that comes first, of either claim.
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

// mayTake is how long a claim may take before it is late. A claim of one topic may always take claimWait and lateCall, also
// when its own wait is shorter, because no other topic waits for it.
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

// nextTime returns when the poller has to act although no claim returns and no slot becomes free: a claim becomes late, a
// topic has rested, or a wait for slots or other topics is over. It is zero when nothing of that is ahead.
func (p *poller) nextTime() (next time.Time) {
	if p.second != nil {
		next = p.second.late
	}
	switch {
	case p.whole != nil:
		if at := p.polls[0].rest; p.awaitsSecond() && !at.IsZero() {
			return earlier(at, p.whole.late)
		}
		return earlier(next, p.whole.late)
	case !p.divided:
		if end := p.short.Add(shortFor); end.After(time.Now()) {
			return earlier(next, end)
		}
		return next
	}
	if p.waits {
		next = earlier(next, p.rejoin.Add(rejoinWait))
	}
	for _, t := range p.polls {
		at := t.rest
		if t.asked != nil {
			at = t.asked.late
		}
		next = earlier(next, at)
	}
	return next
}

// earlier returns the earlier of two times, of which either may be zero for none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// giveUpLate gives up the claims that take too long, and ends the rests that are over.
func (p *poller) giveUpLate() {
	now := time.Now()
	if a := p.second; a != nil && a.isLate(now) {
		p.second, a.late = nil, time.Time{}
		p.warnLate(a)
	}
	if a := p.whole; a != nil {
		if a.isLate(now) {
			p.giveUp(a)
		}
		if t := p.polls[0]; len(p.polls) == 1 && !t.rest.After(now) {
			t.rest = time.Time{}
		}
		return
	}
	for _, t := range p.polls {
		if !t.rest.After(now) {
			t.rest = time.Time{}
		}
		if a := t.asked; a != nil && a.isLate(now) {
			p.giveUp(a)
		}
	}
}

// isLate reports whether the claim takes too long and has not been given up yet.
func (a *ask) isLate(now time.Time) bool { return !a.late.IsZero() && !a.late.After(now) }

// giveUp frees the slots and topics of a claim that takes too long, so that other claims can have them. It ends the claim if
// that is for several topics.
func (p *poller) giveUp(a *ask) {
	a.late, a.givenUp = time.Time{}, true
	if len(a.polls) == 1 {
		a.polls[0].late++
	} else {
		a.cancel()
	}
	p.w.slots.settle(a.reserved, nil)
	p.w.dispatch(p.s, p.w.slots.enqueue(nil)) // messages that were claimed ahead may have the slots now
	p.divide(a)
	if !a.suspected { // a suspected claim may simply have found nothing
		p.warnLate(a)
	}
}

func (p *poller) warnLate(a *ask) {
	p.w.cfg.Logger.Warn("a claim does not return; its topics are asked for again, each separately", "topics", someOf(a.claim.Topics), "after", a.mayTake())
}

// divide frees the topics of a from that claim and puts them into groups, of one topic each if there are slots for so many.
func (p *poller) divide(a *ask) {
	each := 1
	if p.outnumbered() {
		groups := make(map[int]bool)
		for _, t := range p.polls {
			groups[t.group] = true
		}
		n := max(2, min(mostGroups, p.w.slots.total-len(groups)))
		each = (len(a.polls) + n - 1) / n
	}
	p.free(a)
	p.divided = true
	for some := range slices.Chunk(a.polls, each) {
		p.groups++
		for _, t := range some {
			t.group = p.groups
		}
	}
}

// free notes that a claim is no longer under way for its topics.
func (p *poller) free(a *ask) {
	if p.whole == a {
		p.whole = nil
		return
	}
	for _, t := range a.polls {
		t.asked = nil
	}
}

// outnumbered reports whether there are more topics than slots.
func (p *poller) outnumbered() bool { return len(p.polls) > p.w.slots.total }

// someOf returns the first topics and the number of the others, for a log.
func someOf(topics []string) []string {
	const most = 10
	if len(topics) <= most {
		return topics
	}
	return append(slices.Clone(topics[:most]), fmt.Sprintf("and %d more", len(topics)-most))
}

// receive dispatches the messages of a claim that has returned, and decides when its topics are asked for again. It returns
// an error when the store cannot recover.
func (p *poller) receive(a *ask) error {
	p.underWay--
	a.cancel()
	ms := p.w.begin(p.s, a.got)
	if len(ms) > 0 {
		p.found = time.Now()
	}
	if a == p.second {
		p.second = nil
		p.suspectFirst(ms)
	}
	if a.givenUp {
		p.dispatchLate(ms)
		if len(a.polls) > 1 { // giveUp has ended it
			return nil
		}
		a.polls[0].late--
		if p.s.claims.Err() != nil {
			return nil
		}
		return p.conclude(a)
	}
	n := min(len(ms), a.reserved.slots)
	p.w.slots.settle(a.reserved, ms[:n])
	p.w.dispatch(p.s, ms[:n])
	if len(ms) > n {
		p.w.inflight.renewBy(a.got.received.Add(aheadWait))
	}
	p.w.dispatch(p.s, p.w.slots.enqueue(ms[n:]))
	before := p.backlog
	if p.backlog = len(ms) == a.claim.Max && ms[0].length >= aheadLease; p.backlog && before { // this claim did not wait in the store, so its time is the store's
		p.w.slots.claimed(a.got.received.Sub(a.got.sent))
	}
	p.free(a)
	if p.s.claims.Err() != nil {
		return nil
	}
	return p.conclude(a)
}

// suspectFirst is called with the messages that the second of two long claims has brought. It gives the first claim lateCall to
// return, because that claim may hang and its slots are needed. If the message has no slot beside those of the first claim,
// that claim is given up at once.
func (p *poller) suspectFirst(ms []*message) {
	a := p.whole
	if len(ms) == 0 || a == nil || a.claim.Wait != longWait {
		return
	}
	a.suspected = true
	if p.w.slots.roomBeside(ms[0].route, a.reserved) {
		a.late = earlier(a.late, time.Now().Add(lateCall))
		return
	}
	p.giveUp(a)
}

// dispatchLate dispatches the messages of a claim that was given up. Its slots were freed then, so a message for which there
// is no free slot is given back.
func (p *poller) dispatchLate(ms []*message) {
	kept := ms[:0]
	for _, m := range ms {
		if p.w.slots.tryOccupy(m.route) {
			kept = append(kept, m)
			continue
		}
		p.s.running.Go(func() { _ = p.w.finish(m, unstarted("its claim was late")) }) // finish reports what goes wrong
	}
	p.w.dispatch(p.s, kept)
}

// conclude decides when the topics of a, which was not ended by giveUp, are asked for again.
func (p *poller) conclude(a *ask) error {
	took := a.got.received.Sub(a.got.sent)
	switch {
	case unrecoverable(a.err):
		p.w.observer.OnError(p.s.claims, "claim", a.err)
		p.w.cfg.Logger.Error("worker claims nothing more: the store cannot recover", "err", a.err)
		return a.err
	case a.err != nil:
		p.failed(a)
		return nil
	}
	inTime := took <= a.mayTake()
	atOnce := len(a.got.deliveries) == 0 && took < shortestBackoff && a.claim.Wait > 0 // a store or proxy that does not wait
	if !p.divided && p.failing == 0 && !atOnce {
		return nil
	}
	for _, t := range a.polls {
		if inTime {
			t.group = 0
		}
		if t.tries.reset() {
			if p.failing--; p.failing == 0 {
				p.w.cfg.Logger.Info("claims succeed again")
			}
		}
		if atOnce { // found is set, because long claims would return at once, too
			p.divided, t.rest, p.found = true, a.got.received.Add(shortestBackoff), a.got.received
		}
	}
	return nil
}

// failed delays the next claim for a topic that failed alone. Topics that failed together are asked for separately at once.
func (p *poller) failed(a *ask) {
	p.w.observer.OnError(p.s.claims, "claim", a.err)
	if p.failing == 0 {
		p.w.cfg.Logger.Warn("claim failed; trying again until it succeeds", "err", a.err)
	}
	for _, t := range a.polls {
		if t.tries.tries == 0 {
			p.failing++
		}
		wait := t.tries.next()
		if len(a.polls) == 1 {
			t.rest = time.Now().Add(wait)
		}
	}
	if !a.givenUp { // giveUp has divided the others
		p.divide(a)
	}
}

// claimed is the answer to one claim. It is immutable once the claim has returned.
type claimed struct {
	deliveries []punctual.Delivery
	// sent and received are the local instants before and after the call of the store.
	sent, received time.Time
	// clock is the latest time that the store's clock can have shown at received.
	clock time.Time
}

// claim makes one claim, takes note of the store's clock, and reports the claim to the observer.
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
		err = errorf(punctual.ErrIndeterminate, "claim: the store gave %d messages for %d slots: the others are delivered again when their leases end", n, c.Max)
		return got, err
	}
	w.observer.OnClaim(ctx, len(got.deliveries), got.received.Sub(got.sent))
	return got, nil
}

// unrecoverable reports whether err is an error for which trying again is of no use.
func unrecoverable(err error) bool {
	return errors.Is(err, punctual.ErrClosed) || errors.Is(err, punctual.ErrStoreFailed) || errors.Is(err, punctual.ErrCorrupt) || errors.Is(err, punctual.ErrInvalid)
}

// dispatch sends messages that have a slot to the slots' goroutines, and first starts as many goroutines as there are slots
// in use. Only the poller calls it.
func (w *Worker) dispatch(s *session, ms []*message) {
	for used := w.slots.used(); s.goroutines < used; s.goroutines++ {
		s.running.Go(func() { w.slot(s) })
	}
	for _, m := range ms {
		s.ready <- m
	}
}
