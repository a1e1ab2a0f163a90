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

// The poller asks the store for messages. It has one claim under way for all topics that it could ask for when it sent it.
// A topic whose slots were all taken then, and has one again, is asked for in a second claim meanwhile. So each topic
// is in at most one claim under way.
//
// A claim of several topics that takes longer than it may is ended. After that, or after a failure, each of its topics is
// asked for separately until an answer was in time. So a topic that hangs, or fails, costs the others one such claim, less
// than a second (P14). Topics that outnumber the slots are asked for in groups, which are divided again if they are late,
// too. Thousands of claims would wait for slots, one after the other.
//
// A late claim of one topic goes on, because it may still lease messages. Another claim is sent beside it: if one connection
// hangs, the next claim goes over another one (P11). What a late claim brings is handled if there is a slot, and is given
// back otherwise.
//
// Short waits show soon that a claim hangs, but cost the server two claims a second. So a worker of one topic that has found
// nothing for quietFor sends a long claim and, in most stores over another connection, a second long claim of one message beside
// it. If the connection of one of them hangs, the other claim finds what becomes due. Whichever finds something ends the quiet:
// the next claims are short, and the long claim that has not returned soon after is treated as a late one.

const (
	// claimWait is how long a claim waits in the store when nothing is due. It is short, because soon after it is over a
	// claim that hangs is known from one that waits.
	claimWait = 500 * time.Millisecond
	// quietFor is for how long a worker of one topic must have found nothing until its claims are long.
	quietFor = 3 * time.Second
	// longWait is claimWait for long claims. The second claim ends halfway between two of the others.
	longWait = 20 * time.Second
	// longestClaim ends a claim of one topic that has been late for long, so that its connection is freed.
	longestClaim = 30 * time.Second
	// mostLate is how many late claims of one topic, the second of two long ones among them, may be under way before the next claim
	// waits for one of them to return.
	mostLate = 3
	// mostGroups is in how many claims one that was late or failed is divided, at most.
	mostGroups = 64
	// shortFor is for how long many topics wait for a slot that is not kept.
	shortFor = 20 * time.Millisecond
	// meetFor is for how long topics wait for others to be asked for with them.
	meetFor = 50 * time.Millisecond
	// lateEach is how much longer than others a claim may take for each of its topics.
	lateEach = 50 * time.Microsecond
)

// poller is what a session knows of its claims. Only the goroutine that polls uses it.
type poller struct {
	w     *Worker
	s     *session
	polls []*polled // in order of Handle
	order order
	// whole is the claim under way for all topics, or nil.
	whole *ask
	// second is the claim beside a long one, or nil. No slots are reserved for it, as for a late claim, and it counts as one.
	second *ask
	// found is when a claim last brought something, or did not wait in the store, or when polling began.
	found time.Time
	// apart tells that a topic may be asked for without the others: it has a claim of its own, is in a group or rests. Else no
	// claim walks over the topics.
	apart bool
	// meet is when claims of parts of the topics end, held that topics wait then for others, up to meetFor.
	meet time.Time
	held bool
	// short is since when there is no slot but those that are kept, zero while there is one.
	short time.Time
	// answers receives the claims that have returned; it has room for most of those that may be under way.
	answers  chan *ask
	underWay int
	// failing counts the topics whose latest claim failed.
	failing int
	// groups counts the groups there were.
	groups int
	// backlog tells that the latest claim brought all that it asked for, of messages that may wait for a slot.
	backlog bool
	// looked is when the store's clock was last asked for.
	looked time.Time
}

// polled is a topic as the poller sees it.
type polled struct {
	*route
	// asked is the claim under way for it, or nil. That for all topics is poller.whole.
	asked *ask
	// group is the number of those that it is asked for with, because a claim for more of them failed or was late. It is 0
	// while the topic is asked for with all others.
	group int
	// late counts the claims for this topic alone that were late and have not returned.
	late int
	// rest is when it may be asked for again.
	rest time.Time
	// tries spaces claims that fail.
	tries backoff
}

// ask is one claim under way.
type ask struct {
	polls []*polled
	claim punctual.Claim
	// reserved is what slots.reserve took for it; the rest of the claim is ahead of free slots.
	reserved reservation
	cancel   context.CancelFunc
	// late is when it takes too long; zero once it has been given up.
	late    time.Time
	givenUp bool
	// suspected tells that it is given up early, because the claim beside it has found something.
	suspected bool

	got *claimed
	err error
}

// poll claims messages and passes them on until claims are over (nil) or the store cannot recover (the error). All
// claims have returned then.
func (w *Worker) poll(s *session) error {
	p := &poller{w: w, s: s, answers: make(chan *ask, 2*len(w.topics)), found: time.Now()}
	for _, t := range w.topics {
		p.polls = append(p.polls, &polled{route: w.routes[t]})
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for s.claims.Err() == nil {
		p.lookAtClock()
		// Settlements return in batches and free many slots at once. Let all of them run to there, or the claims would
		// go out for one message each (BenchmarkWorker, msgs/claim). What a claim brought comes first.
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
		if len(p.answers) > 0 { // which is taken first
			back = nil
		}
		select {
		case a := <-p.answers:
			if err := p.take(a); err != nil {
				s.endClaims()
				p.takeRest()
				return err
			}
		case <-back:
		case <-timer.C:
			if len(p.answers) == 0 { // a process that stood still has both
				p.giveUpLate()
			}
		case <-s.claims.Done():
		}
	}
	p.takeRest()
	return nil
}

// takeRest waits for the claims under way once no more are sent.
func (p *poller) takeRest() {
	for p.underWay > 0 {
		_ = p.take(<-p.answers) // claims are over
	}
}

// lookAtClock asks for the store's clock when claims have not shown it for long. No claim waits for the answer.
func (p *poller) lookAtClock() {
	if now := time.Now(); now.Sub(p.looked) >= lookEvery && p.w.inflight.boundAge(now) >= lookEvery {
		p.looked = now
		p.s.running.Go(func() { p.w.lookAtClock(p.s.claims) })
	}
}

// askAll sends a claim for each group, and one for all that are in none, as far as there are slots.
func (p *poller) askAll() {
	now := time.Now()
	if p.whole != nil {
		return
	}
	if !p.apart {
		if !p.awaitsSlot(now) {
			p.ask(p.inOrder(now), p.w.slots.total)
		}
		return
	}
	var shared []*polled
	groups := make(map[int][]*polled)
	parted := false // a topic that is in no group has a claim without the others
	for _, t := range p.inOrder(now) {
		switch {
		case t.asked != nil:
			parted = parted || t.group == 0
		case t.rest.After(now), t.late >= mostLate:
		case t.group > 0:
			groups[t.group] = append(groups[t.group], t)
		default:
			shared = append(shared, t)
		}
	}
	most := p.w.slots.total
	if p.outnumbered() { // or the first group would take all slots
		most = max(1, most/(len(groups)+1))
	}
	for _, g := range slices.Sorted(maps.Keys(groups)) {
		p.ask(groups[g], most)
	}
	if p.held = len(shared) > 0 && p.awaitsOthers(now, parted); p.held || len(shared) == 0 {
		return
	}
	p.apart = len(shared) < len(p.polls)
	p.ask(shared, p.w.slots.total)
}

// awaitsSlot reports whether a claim of many topics is to wait for a slot. Without one that is not kept it would be for the
// topics that have none, which is another list each time. Most handlers return soon.
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

// awaitsOthers reports whether topics that are in no group are to wait for others, to be asked for with them. Claims of parts
// of many topics would go on as they are, each at another time. So all of them end at the same time.
func (p *poller) awaitsOthers(now time.Time, parted bool) bool {
	switch {
	case !p.outnumbered() || p.untilMeet(now) > 0:
		return false
	case parted && now.Before(p.meet.Add(meetFor)):
		return true
	}
	p.meet = now.Add(claimWait)
	return false
}

// untilMeet is how long a claim of a part of the topics is to wait; 0 when that is not worth a claim.
func (p *poller) untilMeet(now time.Time) time.Duration {
	if left := p.meet.Sub(now); left >= shortestBackoff {
		return left
	}
	return 0
}

// ask sends a claim for some of all, in that order, if there are slots for any or messages to claim ahead. It takes at most so many
// slots.
func (p *poller) ask(all []*polled, most int) {
	long := p.quiet(time.Now())
	if long {
		most = max(1, p.w.slots.room(all[0].route)-1) // the second claim may bring a message, too
	}
	ts, r := p.w.slots.reserve(all, most)
	a := &ask{polls: ts, reserved: r, claim: punctual.Claim{Max: r.slots, PerTopic: r.perTopic, Wait: claimWait, Lease: p.w.cfg.Lease}}
	if left := p.untilMeet(time.Now()); p.apart && left > 0 {
		a.claim.Wait = left
	}
	if long {
		a.claim.Wait = longWait
	}
	if n := p.ahead(all); n > 0 { // who has which slot is decided when they are there
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
		p.apart, a.claim.Topics = true, namesOf(a.polls)
		for _, t := range a.polls {
			t.asked = a
		}
	}
	p.send(a)
}

// send sends a claim, which is late once it has taken longer than it may.
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

// quiet reports whether claims are to be long: there is one topic, nothing was found for some time, and no claim hangs or fails.
func (p *poller) quiet(now time.Time) bool {
	if len(p.polls) > 1 || p.failing > 0 || now.Sub(p.found) < quietFor {
		return false
	}
	late := p.polls[0].late
	return late == 0 || late == 1 && p.second != nil
}

// askSecond sends the second claim beside a long one. It asks for one message, for which the long claim has left a slot. Where
// there is one slot in all, the first message that comes has it.
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

// mayTake is how long a claim takes that is not late. One topic alone loses nothing by some patience, and a claim beside a
// late one has other slots.
func (a *ask) mayTake() time.Duration {
	if len(a.polls) == 1 {
		return max(claimWait, a.claim.Wait) + lateCall
	}
	return a.claim.Wait + lateCall + time.Duration(len(a.polls))*lateEach
}

// ahead is how many messages of ts to claim ahead of free slots.
func (p *poller) ahead(ts []*polled) int {
	n := p.w.slots.roomAhead(time.Now())
	if n == 0 || !p.backlog || p.w.cfg.Strict || p.w.cfg.Concurrency == 1 || slices.ContainsFunc(ts, func(t *polled) bool { return t.group > 0 || !t.mayWaitAhead() }) {
		return 0
	}
	return n
}

// nextTime is when a claim becomes late or a topic has rested, whichever is first; zero when there is neither.
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
	case !p.apart:
		if end := p.short.Add(shortFor); end.After(time.Now()) {
			return earlier(next, end)
		}
		return next
	}
	if p.held {
		next = earlier(next, p.meet.Add(meetFor))
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

// giveUpLate gives up the claims that take too long and lets their slots and topics go.
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

// isLate tells that a claim is over which has not been given up.
func (a *ask) isLate(now time.Time) bool { return !a.late.IsZero() && !a.late.After(now) }

// giveUp lets the slots and topics of a claim go that takes too long. It ends the claim if that is for several topics.
func (p *poller) giveUp(a *ask) {
	a.late, a.givenUp = time.Time{}, true
	if len(a.polls) == 1 {
		a.polls[0].late++
	} else {
		a.cancel()
	}
	p.w.slots.settle(a.reserved, nil)
	p.w.dispatch(p.s, p.w.slots.enqueue(nil)) // what is ahead may have the slots now
	p.divide(a)
	if !a.suspected { // or it may simply have nothing to bring
		p.warnLate(a)
	}
}

func (p *poller) warnLate(a *ask) {
	p.w.cfg.Logger.Warn("a claim does not return; its topics are asked for again, each separately", "topics", someOf(a.claim.Topics), "after", a.mayTake())
}

// divide ends the wait of the topics of a and puts them into groups, of one topic each if there are slots for so many.
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
	p.apart = true
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

// outnumbered tells that there are more topics than slots.
func (p *poller) outnumbered() bool { return len(p.polls) > p.w.slots.total }

// someOf are the topics as a log names them.
func someOf(topics []string) []string {
	const most = 10
	if len(topics) <= most {
		return topics
	}
	return append(slices.Clone(topics[:most]), fmt.Sprintf("and %d more", len(topics)-most))
}

// take passes on what a claim brought and decides when its topics are asked for again. The error, if any, is final.
func (p *poller) take(a *ask) error {
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
		p.takeLate(ms)
		if len(a.polls) > 1 { // it was ended
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
	if p.backlog = len(ms) == a.claim.Max && ms[0].length >= aheadLease; p.backlog && before { // it did not wait in the store
		p.w.slots.claimed(a.got.received.Sub(a.got.sent))
	}
	p.free(a)
	if p.s.claims.Err() != nil {
		return nil
	}
	return p.conclude(a)
}

// suspectFirst is called when the second of two long claims has brought something: if the connection of the first one hangs, its
// slots are needed soon. Where the message of the second claim has no slot beside those of the first, they are needed at once.
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

// takeLate passes on what a claim brought that was given up: its slots were let go, so what finds none is given back.
func (p *poller) takeLate(ms []*message) {
	kept := ms[:0]
	for _, m := range ms {
		if p.w.slots.take(m.route) {
			kept = append(kept, m)
			continue
		}
		p.s.running.Go(func() { _ = p.w.finish(m, unstarted("its claim was late")) }) // finish reports what goes wrong
	}
	p.w.dispatch(p.s, kept)
}

// conclude decides when the topics of a, which has returned by itself, are asked for again.
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
	atOnce := len(a.got.deliveries) == 0 && took < shortestBackoff && a.claim.Wait > 0 // as from a store or proxy that does not wait
	if !p.apart && p.failing == 0 && !atOnce {
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
		if atOnce {
			p.apart, t.rest, p.found = true, a.got.received.Add(shortestBackoff), a.got.received // long claims would be as many
		}
	}
	return nil
}

// failed spaces the next claims for the topics of a. Those that failed together are tried separately at once.
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
	if !a.givenUp { // or it was divided then
		p.divide(a)
	}
}

// claimed is the answer to one claim. It does not change once the claim has returned.
type claimed struct {
	deliveries []punctual.Delivery
	// sent and received are local instants between which the store answered.
	sent, received time.Time
	// clock is the latest time that the store's clock can have shown when it was received.
	clock time.Time
}

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
		return got, err // in which the store names the operation
	}
	if n := len(got.deliveries); n > c.Max {
		got.deliveries = got.deliveries[:c.Max]
		err = errorf(punctual.ErrIndeterminate, "claim: the store gave %d messages for %d slots: the others are delivered again when their leases end", n, c.Max)
		return got, err
	}
	w.observer.OnClaim(ctx, len(got.deliveries), got.received.Sub(got.sent))
	return got, nil
}

// unrecoverable tells errors that no repetition mends.
func unrecoverable(err error) bool {
	return errors.Is(err, punctual.ErrClosed) || errors.Is(err, punctual.ErrStoreFailed) || errors.Is(err, punctual.ErrCorrupt) || errors.Is(err, punctual.ErrInvalid)
}

// dispatch gives claimed messages to slots, and sees that there are as many goroutines as slots in use.
// Only the poller calls it.
func (w *Worker) dispatch(s *session, ms []*message) {
	for used := w.slots.used(); s.goroutines < used; s.goroutines++ {
		s.running.Go(func() { w.slot(s) })
	}
	for _, m := range ms {
		s.ready <- m
	}
}
