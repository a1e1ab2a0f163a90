package worker

import (
	"errors"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
)

// receive dispatches the messages of a claim that has returned, and decides when its topics are
// asked for again. It returns an error when the store cannot recover.
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
	p.backlog = len(ms) == a.claim.Max && ms[0].length >= aheadLease
	if p.backlog && before { // this claim did not wait in the store, so its time is the store's
		p.w.slots.claimed(a.got.received.Sub(a.got.sent))
	}
	p.free(a)
	if p.s.claims.Err() != nil {
		return nil
	}
	return p.conclude(a)
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
	troubled := p.w.outage.Told()
	if !p.divided && !atOnce && !troubled {
		return nil
	}
	if troubled && inTime {
		p.tellRecovery(a)
	}
	for _, t := range a.polls {
		if inTime {
			t.group = 0
		}
		t.tries = backoff{}
		if atOnce { // found is set, because long claims would return at once, too
			p.divided, t.rest, p.found = true, a.got.received.Add(shortestBackoff), a.got.received
		}
	}
	return nil
}

// tellRecovery notes that claims for the topics of a, which was in time, succeed again, once that
// is certain: a has brought messages, or the store tells its clock afterwards. A claim that brings
// nothing proves nothing, because a store may have waited for messages without its server.
func (p *poller) tellRecovery(a *ask) {
	polls := slices.Clone(a.polls)
	tell := func() {
		for _, t := range polls {
			p.w.outage.Answered(t)
		}
		p.w.outage.Answered(&p.w.inflight) // there may be no lease to renew any more
	}
	switch {
	case len(a.got.deliveries) > 0:
		tell()
	case p.proving.CompareAndSwap(false, true):
		p.s.running.Go(func() {
			if p.w.readClock(p.s.claims) == nil {
				tell()
			}
			p.proving.Store(false)
		})
	}
}

// failed delays the next claim for a topic that failed alone. Topics that failed together are asked
// for at once, each separately or in groups (see divide).
func (p *poller) failed(a *ask) {
	p.w.observer.OnError(p.s.claims, "claim", a.err)
	for _, t := range a.polls {
		p.w.outage.Failed(t, a.err, "claim failed; trying again until it succeeds")
		wait := t.tries.next()
		if len(a.polls) == 1 {
			t.rest = time.Now().Add(wait)
		}
	}
	if !a.givenUp { // giveUp has divided the others
		p.divide(a)
	}
}

// unrecoverable reports whether err is an error for which trying again is of no use.
func unrecoverable(err error) bool {
	return errors.Is(err, punctual.ErrClosed) || errors.Is(err, punctual.ErrStoreFailed) || errors.Is(err, punctual.ErrCorrupt) || errors.Is(err, punctual.ErrInvalid)
}

// dispatch sends messages that have a slot to the slots' goroutines. Before that it starts
// goroutines until there are as many as slots that have a message or are reserved for a claim. Only
// the poller calls it.
func (w *Worker) dispatch(s *session, ms []*message) {
	for used := w.slots.used(); s.goroutines < used; s.goroutines++ {
		s.running.Go(func() { w.slot(s) })
	}
	for _, m := range ms {
		s.ready <- m
	}
}
