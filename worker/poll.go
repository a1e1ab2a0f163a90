package worker

import (
	"runtime"
	"sync/atomic"
	"time"
)

// The poller asks the store for messages. One claim names all topics that may have a slot when the
// claim is sent. When a topic that had no slot then gets one while that claim is under way, a
// second claim asks for this topic. So each topic is in at most one claim under way that is not
// late.
//
// A claim of several topics that takes longer than ask.mayTake is ended. After that, or after a
// failure, each of its topics is asked for separately until an answer was in time. So a topic that
// hangs or fails costs the other topics one such claim: less than a second as long as a claim names
// fewer than 6,000 topics (P14). When topics outnumber the slots they are asked for in groups
// instead, because thousands of claims would wait for slots one after the other. A group that is
// late is divided again.
//
// A late claim of one topic may go on until longestClaim is over, because it may still lease
// messages. Another claim is sent beside it, because a claim over another connection succeeds if
// only the first connection hangs (P11). A message that a late claim brings is handled if there is
// a slot for it, and is given back otherwise.
//
// Claims with short waits show soon that a claim hangs, but cost the server two claims a second. So
// a worker of one topic that has found nothing for quietFor sends a long claim and beside it a
// second long claim of one message, which most stores send over another connection. If one of the
// two connections hangs, the claim over the other one finds what becomes due. As soon as one of
// them finds a message, claims are short again, and the other one, unless it returns soon, is
// treated as late.

const (
	// claimWait is how long a claim waits in the store when nothing is due. It is short because a
	// claim that hangs cannot be told from one that waits until this time is over.
	claimWait = 500 * time.Millisecond
	// quietFor is how long a worker of one topic must have found nothing before its claims are
	// long.
	quietFor = 3 * time.Second
	// longWait is how long a long claim waits in the store. The second claim is timed to end
	// halfway between the ends of two long claims.
	longWait = 20 * time.Second
	// longestClaim is how long a claim of one topic may take in all. Then its context ends, so that
	// its connection is freed.
	longestClaim = 30 * time.Second
	// mostLate is how many late claims of one topic may be under way, the second of two long claims
	// included. Beyond that the next claim waits until one of them has returned.
	mostLate = 3
	// mostGroups is into how many groups the topics of a claim that was late or failed are divided
	// at most where topics outnumber the slots.
	mostGroups = 64
	// shortFor is how long a claim of many topics (more than drawnEach) waits for a slot beside the
	// kept ones (slots.kept).
	shortFor = 20 * time.Millisecond
	// rejoinWait is how long beyond poller.rejoin topics without a claim wait for the claims of
	// other topics to end, to share one claim with them.
	rejoinWait = 50 * time.Millisecond
	// lateEach is by how much each topic of a claim of several topics prolongs the time that the
	// claim may take.
	lateEach = 50 * time.Microsecond
)

// poller is the state of a session's claims. Only the goroutine that polls uses it, but for
// proving.
type poller struct {
	w     *Worker
	s     *session
	polls []*polled // in order of Handle
	order order
	// whole is the claim under way for all topics, or nil.
	whole *ask
	// second is the claim beside a long one, or nil. It has no reserved slots and is counted in
	// polled.late, as a late claim.
	second *ask
	// found is when a claim last brought a message or returned at once without waiting in the
	// store, or when polling began.
	found time.Time
	// divided reports that topics may be asked for without the others, because one has a claim of
	// its own, is in a group or rests. While it is false the poller need not walk over the topics.
	divided bool
	// rejoin is when claims of some of the topics are to end, so that one claim can name all topics
	// again. waits reports that topics without a claim wait for that, up to rejoinWait longer.
	rejoin time.Time
	waits  bool
	// short is since when there has been no free slot beside the kept ones; zero while there is
	// one, and always zero with drawnEach topics or fewer.
	short time.Time
	// answers receives the claims that have returned. Its buffer has room for two claims of each
	// topic.
	answers  chan *ask
	underWay int
	// groups is the number of the newest group; numbers are not used again.
	groups int
	// backlog reports that the latest claim that was not given up brought as many messages as it
	// asked for, the first of them with a lease of at least aheadLease.
	backlog bool
	// proving reports that the store's clock is being read for tellRecovery.
	proving atomic.Bool
	// clockRead is when the poller last had the store's clock read.
	clockRead time.Time
}

// polled is a topic as the poller sees it. The goroutine of poll alone uses it.
type polled struct {
	*route
	// asked is the claim under way for some of the topics, this one among them, or nil. A claim for
	// all topics is poller.whole.
	asked *ask
	// group is the number of the group with which the topic is asked for, because a claim for it
	// failed or was late. It is 0 while the topic is in no group.
	group int
	// late counts the claims for this topic alone that were late and have not returned, and the
	// second of two long claims.
	late int
	// rest is when the topic may be asked for again.
	rest time.Time
	// tries is the backoff after failed claims.
	tries backoff
}

// poll claims messages and dispatches them. It returns nil when the session's claims are over, or
// the error after which the store cannot recover. No claim is under way any more then.
func (w *Worker) poll(s *session) error {
	p := &poller{w: w, s: s, answers: make(chan *ask, 2*len(w.topics)), found: time.Now()}
	for _, t := range w.topics {
		p.polls = append(p.polls, &polled{route: w.routes[t]})
	}
	defer func() {
		for _, t := range p.polls {
			w.outage.Left(t)
		}
		w.outage.Left(&w.inflight)
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for s.claims.Err() == nil {
		p.refreshClock()
		// Settlements return in batches, so many slots become free at almost the same time. Let
		// their goroutines free them first, because otherwise each claim would ask for one message
		// (BenchmarkWorker, msgs/claim). A claim that has returned is handled before another one is
		// sent.
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
		_ = p.receive(<-p.answers) // returns nil once the context of the claims has ended
	}
}

// refreshClock has the store's clock read in another goroutine when no answer has changed the bound
// of that clock for clockEvery. No claim waits for the answer.
func (p *poller) refreshClock() {
	if now := time.Now(); now.Sub(p.clockRead) >= clockEvery && p.w.inflight.boundAge(now) >= clockEvery {
		p.clockRead = now
		p.s.running.Go(func() { _ = p.w.readClock(p.s.claims) }) // a claim will get the error, too
	}
}

// nextTime returns when the poller has to act although no claim returns and no slot becomes free: a
// claim becomes late, a topic has rested, or a wait for slots or other topics is over. It is zero
// when nothing of that is ahead.
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
