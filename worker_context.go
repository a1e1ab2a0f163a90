package punctual

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// The context of a handler ends by itself for three reasons: its timeout, the end of its lease, the end of its
// session. One goroutine, the watcher, sees to all three for all messages in hand. So a message costs neither a timer
// nor a place in a list of children that every hand would have to lock.

// contextRoot is the parent of one handler's context. It gives it values and a deadline, and ends it
// when end is called. The handler's context is one of the standard library's, so that
// context.Cause and derived contexts are as ever: no goroutine for those, either. Nobody else sees the root.
//
// It rests on the standard library calling the AfterFunc method of a parent that has one (see
// context.AfterFunc), here once for each root.
type contextRoot struct {
	context.Context                 // the values; it does not end
	deadline        time.Time       // zero: none
	open            <-chan struct{} // is never closed: says that the root may end, not when
	// endChild is given to AfterFunc when the child is made, and does not change after.
	endChild func()
	ended    atomic.Pointer[contextEnd]
}

// contextEnd tells how a context ended. It does not change.
type contextEnd struct {
	err error
	// values are those of the root, and one in which context.Cause finds the cause.
	values context.Context
}

// newHandlerContext returns the context of a handler of session s, the root that can end it, and a function to
// end it with any other cause and free what it holds.
func newHandlerContext(s *session, deadline time.Time) (context.Context, *contextRoot, context.CancelCauseFunc) {
	if d, ok := s.handlers.Deadline(); ok && (deadline.IsZero() || d.Before(deadline)) {
		deadline = d
	}
	root := &contextRoot{Context: s.values, deadline: deadline, open: s.open}
	ctx, cancel := context.WithCancelCause(root)
	return ctx, root, cancel
}

// end ends the child with err and cause unless it has ended already.
func (r *contextRoot) end(err, cause error) {
	values, cancel := context.WithCancelCause(r.Context)
	cancel(cause)
	if r.ended.CompareAndSwap(nil, &contextEnd{err, values}) {
		r.endChild()
	}
}

func (r *contextRoot) Deadline() (time.Time, bool) { return r.deadline, !r.deadline.IsZero() }

func (r *contextRoot) Done() <-chan struct{} { return r.open }

func (r *contextRoot) Err() error {
	if e := r.ended.Load(); e != nil {
		return e.err
	}
	return nil
}

func (r *contextRoot) Value(key any) any {
	if e := r.ended.Load(); e != nil {
		return e.values.Value(key)
	}
	return r.Context.Value(key)
}

// AfterFunc takes the function that ends the child. The one returned has nothing to do: what is to be
// freed goes with the root.
func (r *contextRoot) AfterFunc(f func()) (stop func() bool) {
	r.endChild = f
	return leaveRoot
}

func leaveRoot() bool { return true }

// watch ends the contexts of handlers whose time is over, until ctx ends.
func (w *Worker) watch(ctx context.Context, s *session) {
	over := s.handlers.Done()
	for ctx.Err() == nil {
		w.endOverdue(time.Now())
		w.leases.sleep(ctx, &w.leases.ends, over)
		if over != nil && s.handlers.Err() != nil {
			endHandlers(w.leases.all(), s)
			over = nil
		}
	}
}

// endOverdue ends the contexts of handlers that have run for as long as they may, and of those
// whose lease has not been renewed until its end.
func (w *Worker) endOverdue(now time.Time) {
	timedOut, expired := w.leases.overdue(now)
	for _, h := range timedOut {
		h.root.end(context.DeadlineExceeded, h.route.timedOut)
	}
	for _, h := range expired {
		w.loseRunning(h, errorf(ErrLeaseLost, "not renewed within %v", h.length), false)
	}
}

// overdue returns the holds whose leases have ended by the local count, and those whose handlers have just
// reached their timeout. It notes when to look again.
func (l *leases) overdue(now time.Time) (timedOut, expired []*hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends.at = time.Time{}
	for _, h := range l.held {
		switch {
		case h.over != nil:
			continue
		case !h.endsAt.After(now):
			expired = append(expired, h)
			continue
		case !h.timeout.IsZero() && !h.timeout.After(now):
			timedOut = append(timedOut, h)
			h.timeout = time.Time{}
		}
		l.ends.notLaterThan(h.nextEnd())
	}
	return timedOut, expired
}

// nextEnd returns when the watcher is to look at h: at the end of its lease or its timeout. The
// caller holds leases.mu.
func (h *hold) nextEnd() time.Time {
	if h.timeout.IsZero() || h.endsAt.Before(h.timeout) {
		return h.endsAt
	}
	return h.timeout
}

// endHandlers ends the contexts of the handlers of hs as that of the session has ended.
func endHandlers(hs []*hold, s *session) {
	for _, h := range hs {
		h.root.end(s.handlers.Err(), context.Cause(s.handlers))
	}
}

// atStop turns the outcome of a handler that gave up because the worker's time was up into
// a release, which does not count as an attempt. What a handler asked for by Snooze, RetryAfter or
// Discard, and any other error, stands.
func (h *hold) atStop(o outcome) outcome {
	if h.stop.Err() == nil || o.verb != SettleRetry || o.delay != UseBackoff {
		return o
	}
	if errors.Is(o.err, context.Canceled) || errors.Is(o.err, context.DeadlineExceeded) || errors.Is(o.err, context.Cause(h.stop)) {
		return outcome{verb: SettleRelease, err: o.err}
	}
	return o
}
