package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// One message's way through a worker, in order: ask, claim, take, begin (poll.go, lease.go), slot, work, ensureLease, attempt,
// finish, settle.

// slot is a goroutine that handles one message after the other. When a handler ends it
// (runtime.Goexit) another one takes its place.
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

// handle handles m in its slot, and returns the message that has a slot in its place, if there is one.
func (w *Worker) handle(s *session, m *message) (next *message) {
	over := false
	defer func() {
		if over {
			return
		}
		if next := w.slots.release(m.route, m.took); next != nil {
			s.ready <- next // has room for all that have a slot
		}
	}()
	next, _ = w.work(s, m) // work has reported it
	over = true
	if next != nil {
		return next
	}
	return w.slots.release(m.route, m.took)
}

// work runs the handler of m and settles the message, also when the handler panics or ends
// its goroutine (runtime.Goexit). The error says that the message could not be settled; it
// has been logged. If work returns the next message for the slot, m is being settled beside it.
func (w *Worker) work(s *session, m *message) (next *message, err error) {
	if s.claims.Err() != nil { // the worker stops and this one was not started
		return nil, w.finish(m, unstarted(""))
	}
	if w.ensureLease(m) != nil { // it has reported why
		return nil, w.finish(m, unstarted(""))
	}
	var o outcome
	returned := false
	defer func() {
		if !returned {
			o = decided(errors.New("the handler ended its goroutine with runtime.Goexit"))
		}
		m.took = time.Since(m.began)
		w.observer.OnFinish(m.ctx, m.delivery, o.Verb, m.took, o.Err)
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

// pass gives the slot of m to a message that was claimed ahead, and settles m beside it. It returns nil, and does nothing,
// where the slot is to wait for the answer.
func (w *Worker) pass(s *session, m *message, o outcome) (next *message) {
	if next = w.slots.pass(m.route, m.took); next != nil {
		s.running.Go(func() {
			defer w.slots.passed()
			_ = w.finish(m, o) // finish reports what goes wrong
		})
	}
	return next
}

// outcome is what becomes of a message, and how its history tells of it.
type outcome struct {
	punctual.Decision
	text string
	// why a message is given back that was not started, for the log; empty when the worker stops or its lease is over.
	why string
}

// unstarted gives a message back that was not started.
func unstarted(why string) outcome {
	return outcome{Decision: punctual.Decision{Verb: punctual.SettleRelease}, why: why}
}

// decided is the outcome of a handler that returned err. It calls a method of err, so it may panic.
func decided(err error) outcome {
	o := outcome{Decision: punctual.DecisionOf(err)}
	if o.Verb == punctual.SettleRetry || o.Verb == punctual.SettleDiscard {
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

// finish settles the message of m. After the store has said that the lease is lost
// there is nothing to settle.
func (w *Worker) finish(m *message, o outcome) error {
	defer m.ctx.end(context.Canceled, nil)
	end := w.inflight.drop(m)
	if m.lost {
		return nil
	}
	err := w.settle(m, o, end)
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
	w.log(m, slog.LevelError, "message could not be settled; it is delivered again when its lease ends",
		"verb", o.Verb.String(), "err", err)
	return err
}

// logOutcome logs what went wrong with an attempt.
func (w *Worker) logOutcome(m *message, o outcome) {
	var p *panicError
	switch {
	case errors.As(o.Err, &p):
		w.log(m, slog.LevelError, "handler panicked", "err", o.Err)
	case o.Verb == punctual.SettleRetry:
		w.log(m, slog.LevelWarn, "attempt failed", "err", o.Err)
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
