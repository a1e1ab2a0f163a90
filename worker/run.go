package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// stopGrace is how long Stop waits for handlers after it has ended their contexts.
const stopGrace = time.Second

// session is the state of one run, from Start until all its goroutines have ended, or of one Drain.
type session struct {
	drain bool
	// claims ends when nothing more is to be claimed; handlers ends when running handlers are to
	// give up.
	claims, handlers context.Context
	endClaims        context.CancelFunc
	endHandlers      context.CancelCauseFunc
	// values has the values of handlers and never ends; open is never closed (see contextRoot).
	values context.Context
	open   chan struct{}
	// ready passes messages to the goroutines of slots. It has room for as many messages as there
	// are slots, so that the poller never blocks on it. It is closed when no slot has a message any
	// more.
	ready chan *message
	// goroutines counts the goroutines of slots. Only the poller uses it.
	goroutines int
	// running waits for the goroutines of slots, for settlements and releases beside them, for
	// reads of the store's clock, and for the duties.
	running sync.WaitGroup
	// checks waits for the calls of checkGroups that the store has not answered in time.
	checks *sync.WaitGroup
	// claimsOver is closed when the poller will claim nothing more; a Drain, which has no poller,
	// closes it at its beginning. finished is closed when all slots, the renewer and the watcher
	// have ended.
	claimsOver, finished chan struct{}
	// err is the error after which the store cannot recover, or nil. It is written before
	// claimsOver is closed, and read only after.
	err error
}

// underWay reports whether s has not finished.
func (s *session) underWay() bool {
	select {
	case <-s.finished:
		return false
	default:
		return true
	}
}

// enter begins a session, or returns an error that says why none may begin. The session claims
// nothing more once claims has ended; the contexts of handlers end when handlers ends.
func (w *Worker) enter(claims, handlers context.Context, drain bool) (*session, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.stopped:
		return nil, storekit.Errorf(punctual.ErrClosed, "the worker was stopped: make a new one")
	case w.session != nil && !w.session.drain:
		return nil, storekit.Invalidf("the worker was started already")
	case w.session != nil && w.session.underWay():
		return nil, storekit.Invalidf("the worker is being drained: wait for Drain to return")
	}
	if err := w.check(); err != nil {
		return nil, err
	}
	s := &session{drain: drain, ready: make(chan *message, w.cfg.Concurrency), claimsOver: make(chan struct{}), finished: make(chan struct{})}
	s.claims, s.endClaims = context.WithCancel(claims)
	s.handlers, s.endHandlers = context.WithCancelCause(handlers)
	s.values, s.open = context.WithoutCancel(handlers), make(chan struct{})
	w.session = s
	limited := false
	for _, r := range w.routes {
		limited = limited || r.maxSlots > 0
	}
	w.slots.serves(len(w.topics), limited)
	return s, nil
}

// Start begins to claim and handle messages. It returns an error when the worker was set up
// wrongly, was started already, is being drained or was stopped, and when a topic has groups
// (Settings.Groups), because the messages of such a topic are for its groups. To find that out
// Start asks the store for the settings of the worker's topics, and waits at most a second; if the
// store does not answer, the worker starts.
//
// When ctx ends, the worker claims nothing more and running handlers go on; call Stop to wait for
// them. Handlers see the values of ctx, not its end. If the store cannot recover, the worker claims
// nothing more, logs the error, and Stop returns it. A store cannot recover when it was closed, has
// failed or is damaged, or when it refuses the claim as invalid.
func (w *Worker) Start(ctx context.Context) error {
	_, err := w.start(ctx)
	return err
}

func (w *Worker) start(ctx context.Context) (*session, error) {
	checks, err := w.checkGroups(ctx)
	if err != nil {
		return nil, fmt.Errorf("start worker: %w", err)
	}
	s, err := w.enter(ctx, context.WithoutCancel(ctx), false)
	if err != nil {
		return nil, fmt.Errorf("start worker: %w", err)
	}
	s.checks = checks
	if len(w.topics) > w.cfg.Concurrency {
		w.cfg.Logger.Info("there are fewer slots than topics: handlers that hang in one topic can hold up others",
			"slots", w.cfg.Concurrency, "topics", len(w.topics))
	}
	go w.poller(s)
	return s, nil
}

// poller is the goroutine that runs a session from its beginning to its end.
func (w *Worker) poller(s *session) {
	defer close(s.finished)
	defer s.endHandlers(nil)
	defer w.settleBy.end()
	defer w.startLeaseLoops(s)()
	s.running.Go(func() { w.runDuties(s.claims) })
	s.err = w.poll(s)
	s.endClaims()
	w.giveBackAhead(time.Now(), true, s.running.Go)
	close(s.claimsOver)
	for w.slots.used() > 0 {
		<-w.slots.back
	}
	close(s.ready)
	s.running.Wait()
	s.checks.Wait()
	w.runner.Close()
}

// Run starts the worker, waits for ctx to end and stops it, with Config.ShutdownTimeout for the
// handlers that run then. It returns nil when ctx ended and every handler could finish. It returns
// before ctx has ended when Start fails, when the store cannot recover (see Start), or when Stop is
// called.
func (w *Worker) Run(ctx context.Context) error {
	s, err := w.start(ctx)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-s.claimsOver:
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.cfg.ShutdownTimeout)
	defer cancel()
	return w.Stop(stop)
}

// Stop ends the worker: it claims nothing more, waits for running handlers, and settles their
// messages. Messages that were claimed but not started are given back without using an attempt.
//
// When ctx ends first, the contexts of the running handlers end with a cause that wraps ErrClosed.
// A handler that returns a context error then gives its message back without using an attempt. Stop
// waits up to one more second for the handlers. If any were running when ctx ended, it returns an
// error that says how many, and how many have not returned yet. When such a handler returns later,
// the worker still settles its message. That fails if the lease has been lost meanwhile, for
// example because somebody has claimed the message again, or if the store was closed.
//
// Stop may be called again, also at the same time, and waits again. Without a Start it only
// prevents one. A Drain under way ends after the message in flight. A Stop that is called from a
// handler waits for that handler, too, until ctx ends.
func (w *Worker) Stop(ctx context.Context) error {
	w.mu.Lock()
	w.stopped = true
	s := w.session
	w.mu.Unlock()
	if s == nil {
		return nil
	}
	s.endClaims()
	select {
	case <-s.finished:
		return s.err
	case <-ctx.Done():
		return w.stopByForce(ctx, s)
	}
}

// stopByForce ends the contexts of the running handlers and waits a little for them.
func (w *Worker) stopByForce(ctx context.Context, s *session) error {
	running := w.inflight.running()
	s.endHandlers(storekit.Errorf(punctual.ErrClosed, "the worker stops and its time is up"))
	timer := time.NewTimer(stopGrace)
	defer timer.Stop()
	select {
	case <-s.finished:
		if running == 0 {
			return s.err
		}
	case <-timer.C:
	}
	err := fmt.Errorf("stop worker: handlers running when its time was up: %d, not returned since: %d: %w",
		running, w.inflight.running(), contextError(ctx))
	if running == 0 {
		err = fmt.Errorf("stop worker: its time was up before everything was settled: %w", contextError(ctx))
	}
	select {
	case <-s.claimsOver:
		return errors.Join(s.err, err)
	default: // a claim has not returned, so err is not written yet
		return err
	}
}

// Drain claims and handles the messages that are due now, one at a time in the calling goroutine,
// until no message is due. It returns how many handlers it ran. The topics are asked in the order
// of their Handle calls, and within a topic the earliest due message comes first, so that a test
// knows the order. Leases are renewed meanwhile. By a real clock a message pushed just now is due
// only in the next millisecond, and is left to the next Drain.
//
// Drain returns an error early when ctx ends, when Stop is called, or when a claim, a settlement or
// a duty fails. It does not try a failed claim again; it tries the settlement of the message in
// flight as long as its lease lasts. When ctx ends, the context of the running handler ends, too,
// and the handler may give its message back as in Stop. A handler that keeps its message due, for
// example by Snooze(0), keeps Drain busy. Drain may be called again, but not while another Drain is
// under way, and not on a worker that was started. A handler that ends its goroutine (as t.FailNow
// does) ends the goroutine that called Drain.
func (w *Worker) Drain(ctx context.Context) (handled int, err error) {
	checks, err := w.checkGroups(ctx)
	if err != nil {
		return 0, fmt.Errorf("drain: %w", err)
	}
	defer checks.Wait()
	s, err := w.enter(ctx, ctx, true)
	if err != nil {
		return 0, fmt.Errorf("drain: %w", err)
	}
	close(s.claimsOver)
	defer close(s.finished)
	defer s.endHandlers(nil)
	defer s.endClaims()
	defer w.settleBy.end()
	defer w.startLeaseLoops(s)()
	for s.claims.Err() == nil {
		found, ran, err := w.drainOne(s)
		if ran {
			handled++
		}
		switch {
		case s.claims.Err() != nil: // an error of the claim follows from that, and one of a settlement has been logged
		case err != nil:
			return handled, fmt.Errorf("drain: %w", err)
		case found:
			continue
		}
		did, err := w.drainDuties(s.claims)
		switch {
		case s.claims.Err() != nil:
		case err != nil:
			return handled, fmt.Errorf("drain: %w", err)
		case did == 0:
			return handled, nil
		}
	}
	if ctx.Err() != nil {
		return handled, fmt.Errorf("drain: %w", contextError(ctx))
	}
	return handled, storekit.Errorf(punctual.ErrClosed, "drain: the worker was stopped")
}

// drainOne claims one message and handles it, and reports whether there was one and whether its
// handler ran.
func (w *Worker) drainOne(s *session) (found, ran bool, err error) {
	got, err := w.claim(s.claims, punctual.Claim{Topics: w.topics, Max: 1, Lease: w.cfg.Lease})
	if err != nil || len(got.deliveries) == 0 {
		return false, false, err
	}
	m := w.begin(s, got)[0]
	_, err = w.work(s, m) // there is no next message, because Drain claims none ahead
	return true, !m.began.IsZero(), err
}

// contextError returns an error that wraps ctx.Err, and also context.Cause of ctx if that is
// another error.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == err {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}
