package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/duties"
	"github.com/punctualmq/punctual/storekit"
)

// The functions that a message passes in a worker, in order: ask and claim (claim.go), receive
// (receive.go), begin (lease.go), dispatch (receive.go), slot, handle, work, ensureLease
// (lease.go), attempt, finish, settle (settle.go).

// slot is a goroutine that handles one message after the other. When a handler ends the goroutine
// (runtime.Goexit), another one replaces it.
func (w *Worker) slot(s *session) {
	over := false
	defer func() {
		if !over {
			s.running.Go(func() { w.slot(s) })
		}
	}()
	for m := range s.ready {
		for m != nil {
			m = w.handle(s, m)
		}
	}
	over = true
}

// handle handles m in its slot, and returns the message that has the slot next; nil when the slot
// is free.
func (w *Worker) handle(s *session, m *message) (next *message) {
	over := false
	defer func() {
		if over {
			return
		}
		if next := w.slots.release(m.route, m.took); next != nil {
			s.ready <- next // has room for all messages that have a slot
		}
	}()
	next, _ = w.work(s, m) // work has reported the error
	over = true
	if next != nil {
		return next
	}
	return w.slots.release(m.route, m.took)
}

// work runs the handler of m and settles the message, also when the handler panics or ends its
// goroutine (runtime.Goexit). The error says that the message could not be settled; it has been
// logged. If work returns a next message, that one has the slot, and m is being settled in another
// goroutine.
func (w *Worker) work(s *session, m *message) (next *message, err error) {
	if s.claims.Err() != nil { // the worker stops, so m is not started any more
		return nil, w.finish(m, unstarted(""))
	}
	if w.ensureLease(m) != nil { // ensureLease has reported why
		return nil, w.finish(m, unstarted(""))
	}
	var o outcome
	returned := false
	defer func() {
		if !returned {
			o = decided(errors.New("the handler ended its goroutine with runtime.Goexit"))
		}
		m.took = time.Since(m.began)
		w.observer.OnFinish(m.ctx, m.delivery, o.Verb, m.took, o.failure())
		if returned {
			next = w.pass(s, m, o)
		}
		if next == nil {
			err = w.finish(m, o)
		}
	}()
	m.began = time.Now()
	w.observer.OnStart(m.ctx, m.delivery)
	o = m.atStop(attempt(m))
	returned = true
	return nil, nil
}

// pass gives the slot of m to a message that was claimed ahead, which it returns, and settles m in
// another goroutine. It returns nil, and does nothing, when the slot is to wait for the settlement
// of m.
func (w *Worker) pass(s *session, m *message, o outcome) (next *message) {
	if next = w.slots.pass(m.route, m.took); next != nil {
		s.running.Go(func() {
			defer w.slots.passed()
			_ = w.finish(m, o) // finish reports what goes wrong
		})
	}
	return next
}

// outcome is the decision about a message after an attempt, or instead of one.
type outcome struct {
	punctual.Decision
	// text is the error as the history of the message keeps it.
	text string
	// why says for the log why a message is given back unstarted; empty when the worker stops or
	// the lease is over.
	why string
}

// failure is what the handler returned unless the message is acked: the errors of Follow(nil, ...)
// and Settled(SettleAck) are no failures.
func (o *outcome) failure() error {
	if o.Verb == punctual.SettleAck {
		return nil
	}
	return o.Err
}

// unstarted is the outcome of a message that is given back because it was not started.
func unstarted(why string) outcome {
	return outcome{Decision: punctual.Decision{Verb: punctual.SettleRelease}, why: why}
}

// decided is the outcome of a handler that returned err. It calls a method of err, so it may panic.
func decided(err error) outcome {
	o := outcome{Decision: punctual.DecisionOf(err)}
	if !o.Settled && (o.Verb == punctual.SettleRetry || o.Verb == punctual.SettleDiscard) {
		o.text = storekit.TrimError(err.Error())
	}
	return o
}

// attempt runs the handler and turns a panic into an error.
func attempt(m *message) (o outcome) {
	defer func() {
		if p := recover(); p != nil {
			o = decided(newPanicError(p))
		}
	}()
	return decided(m.route.handler.Handle(m.ctx, m.delivery))
}

// finish removes m from those in flight, settles it, logs the result, and ends the handler's
// context. It does not settle m after the store has answered that the lease is lost, and not where
// the handler has settled m itself. The error says that m could not be settled.
func (w *Worker) finish(m *message, o outcome) error {
	defer m.ctx.end(context.Canceled, nil)
	end := w.inflight.drop(m)
	if m.lost || o.Settled {
		return nil
	}
	o, err := w.settle(m, o, end)
	switch {
	case err == nil:
		if o.Verb != punctual.SettleAck {
			w.logOutcome(m, o)
		}
		return nil
	case errors.Is(err, punctual.ErrLeaseLost), errors.Is(err, punctual.ErrCancelled):
		if m.over == nil {
			w.reportLoss(m, err)
		}
		return nil
	}
	w.observer.OnError(m.ctx, "settle", err)
	level := slog.LevelError
	if m.route.duty && w.outage.Told() {
		level = duties.LevelOf(err)
	}
	w.log(m, level, "message could not be settled; it is delivered again when its lease ends",
		"verb", o.Verb.String(), "err", err)
	return err
}

// logOutcome logs why a message was retried, discarded or given back. A snooze is not logged.
func (w *Worker) logOutcome(m *message, o outcome) {
	var p *panicError
	switch {
	case errors.As(o.Err, &p):
		w.log(m, slog.LevelError, "handler panicked", "err", o.Err)
	case o.Verb == punctual.SettleRetry:
		level := slog.LevelWarn
		if m.route.duty {
			level = duties.LevelOf(o.Err)
		}
		w.log(m, level, "attempt failed", "err", o.Err)
	case o.Verb == punctual.SettleDiscard:
		w.log(m, slog.LevelWarn, "message discarded", "err", o.Err)
	case o.why != "":
		w.log(m, slog.LevelDebug, "message given back unstarted: "+o.why)
	case o.Verb == punctual.SettleRelease && m.over == nil:
		w.log(m, slog.LevelInfo, "message given back, the worker stops")
	}
}

func (w *Worker) log(m *message, level slog.Level, text string, args ...any) {
	logger := w.cfg.Logger.With("topic", m.lease.Topic, "id", m.lease.ID, "attempt", m.attempt)
	logger.Log(m.ctx, level, text, args...)
}

// atStop returns the outcome that holds for m after its handler has decided o. It is a release,
// which does not count as an attempt, if the handler failed because the session ended: the end of
// the session has ended the handler's context, or the session has ended and the error of the
// handler is that of a context. Otherwise it is o. So any error of a handler that was interrupted
// gives the message back, such as the error of a killed command, but not success, Snooze,
// RetryAfter, Discard or a panic.
func (m *message) atStop(o outcome) outcome {
	if m.stop.Err() == nil || o.Settled || o.Verb != punctual.SettleRetry || o.Delay != punctual.UseBackoff || errors.As(o.Err, new(*panicError)) {
		return o
	}
	stopped := context.Cause(m.stop)
	if errors.Is(context.Cause(m.ctx), stopped) || errors.Is(o.Err, context.Canceled) || errors.Is(o.Err, context.DeadlineExceeded) || errors.Is(o.Err, stopped) {
		return outcome{Decision: punctual.Decision{Verb: punctual.SettleRelease, Err: o.Err}}
	}
	return o
}
