package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
)

// stopGrace is how long Stop waits for handlers after it has ended their contexts.
const stopGrace = time.Second

// session is the time from a Start until everything is at rest again, or one Drain.
type session struct {
	drain bool
	// claims ends when nothing more is to be claimed, handlers when running handlers
	// are to give up.
	claims, handlers context.Context
	endClaims        context.CancelFunc
	endHandlers      context.CancelCauseFunc
	// values are those of handlers, without its end; open is never closed (see contextRoot).
	values context.Context
	open   chan struct{}
	// ready has room for as many messages as there are slots, so that the poller does not wait to
	// pass one on. It is closed when all slots are at rest.
	ready chan *message
	// goroutines counts those of slots. The poller's.
	goroutines int
	// running waits for those of slots, and for calls of the store that the poller does not wait for.
	running sync.WaitGroup
	// claimsOver is closed when nothing more will be claimed, finished when all slots
	// are at rest and the renewer has ended.
	claimsOver, finished chan struct{}
	// err is why claims ended by themselves. It is written before claimsOver is closed, and
	// read only after.
	err error
}

// underWay reports whether s is under way.
func (s *session) underWay() bool {
	select {
	case <-s.finished:
		return false
	default:
		return true
	}
}

// enter begins a session, or says why it may not begin. Handlers end with handlers, at the latest.
func (w *Worker) enter(claims, handlers context.Context, drain bool) (*session, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.stopped:
		return nil, errorf(punctual.ErrClosed, "the worker was stopped: make a new one")
	case w.session != nil && !w.session.drain:
		return nil, invalidf("the worker was started already")
	case w.session != nil && w.session.underWay():
		return nil, invalidf("the worker is being drained: wait for Drain to return")
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

// Start begins to claim and handle messages, and returns at once. It returns an error when
// the worker was set up wrongly, runs already or was stopped.
//
// When ctx ends nothing more is claimed, while running handlers go on: call Stop to wait for them. Handlers see the
// values of ctx, not its end. If the store cannot recover, the worker claims nothing more, logs the error, and Stop
// returns it. That is so when the store was closed, has failed or is damaged, or refuses the claim as invalid.
func (w *Worker) Start(ctx context.Context) error {
	_, err := w.start(ctx)
	return err
}

func (w *Worker) start(ctx context.Context) (*session, error) {
	s, err := w.enter(ctx, context.WithoutCancel(ctx), false)
	if err != nil {
		return nil, fmt.Errorf("start worker: %w", err)
	}
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
	s.err = w.poll(s)
	s.endClaims()
	w.giveBackAhead(time.Now(), true, s.running.Go)
	close(s.claimsOver)
	for w.slots.used() > 0 {
		<-w.slots.back
	}
	close(s.ready)
	s.running.Wait()
}

// Run starts the worker, waits for ctx to end and stops it, with Config.ShutdownTimeout for
// the handlers that run then. It returns nil when ctx ended and every handler could finish. It returns
// before ctx has ended when the store cannot recover (see Start), or when Stop is called.
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

// Stop ends the worker: nothing more is claimed, and running handlers finish and are settled. What was
// claimed but not started is given back without using an attempt.
//
// When ctx ends first, the contexts of the running handlers end with a cause that wraps
// ErrClosed. Those that return a context error within a second give their message back
// without using an attempt. Then Stop returns an error, and does not wait for the others. The error
// says how many handlers had to be told and how many have not returned yet. Once they return they
// are still settled, as far as the store will have it.
//
// Stop may be called again, also at the same time, and waits again. Without a Start it only prevents one.
// A Drain under way is ended after the message in flight. Called from a handler Stop waits
// for that handler too.
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
	running := w.inflight.count()
	s.endHandlers(errorf(punctual.ErrClosed, "the worker stops and its time is up"))
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
		running, w.inflight.count(), contextError(ctx))
	if running == 0 {
		err = fmt.Errorf("stop worker: its time was up before everything was settled: %w", contextError(ctx))
	}
	select {
	case <-s.claimsOver:
		return errors.Join(s.err, err)
	default: // a claim does not return
		return err
	}
}

// Drain claims and handles what is due now, one message at a time in the calling goroutine, until nothing is due. It
// returns how many handlers it ran. The topics are asked in the order of their Handle calls. Within a topic the
// earliest due comes first, so a test knows what happens when. Leases are renewed meanwhile. By a real clock a
// message pushed just now is due in the next millisecond only, and left to the next Drain.
//
// It ends early with an error when ctx ends, when Stop is called, or when a claim or a settlement fails. Nothing is
// retried beyond the lease in flight. A handler that runs when ctx ends gets to know by its own context, and may give
// its message back as in Stop. A handler that keeps its message due, say by Snooze(0), keeps Drain busy. Drain may be
// called again, but not together with another one or with Start. A handler that ends its goroutine (as t.FailNow
// does) ends the caller's.
func (w *Worker) Drain(ctx context.Context) (handled int, err error) {
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
		case s.claims.Err() != nil: // an error of the claim, if any, is only its echo
		case err != nil:
			return handled, fmt.Errorf("drain: %w", err)
		case !found:
			return handled, nil
		}
	}
	if ctx.Err() != nil {
		return handled, fmt.Errorf("drain: %w", contextError(ctx))
	}
	return handled, errorf(punctual.ErrClosed, "drain: the worker was stopped")
}

// drainOne claims one message and handles it, and reports whether there was one and whether its handler ran.
func (w *Worker) drainOne(s *session) (found, ran bool, err error) {
	got, err := w.claim(s.claims, punctual.Claim{Topics: w.topics, Max: 1, Lease: w.cfg.Lease})
	if err != nil || len(got.deliveries) == 0 {
		return false, false, err
	}
	m := w.begin(s, got)[0]
	_, err = w.work(s, m) // nothing was claimed ahead
	return true, !m.began.IsZero(), err
}

// contextError returns an error that wraps ctx.Err, and the cause if it is another.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == err {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}
