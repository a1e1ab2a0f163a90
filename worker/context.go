package worker

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/punctualmq/punctual"
)

// The context of a handler ends by itself for three reasons: its timeout, the end of its lease, the end of its
// session. One goroutine, the watcher, sees to all three for all messages in flight. So a message costs neither a timer
// nor a place in a list of children that every slot would have to lock.

// handlerContext is the context of one handler. It costs little until it is used. A handler that waits for its end,
// or derives another context, gets one of the standard library's behind it. So context.Cause and derived contexts
// work as ever, and no goroutine stands behind those either.
type handlerContext struct {
	context.Context // the values; it does not end
	deadline        time.Time
	open            <-chan struct{} // see contextRoot

	mu sync.Mutex
	// err and cause tell how it ended; nil until then. Guarded by mu.
	err, cause error
	// standard does what there is to do, root and cancel end it; nil until it is needed. Guarded by mu.
	standard context.Context
	root     *contextRoot
	cancel   context.CancelCauseFunc
}

// init makes c the context of a handler of session s.
func (c *handlerContext) init(s *session, deadline time.Time) {
	if d, ok := s.handlers.Deadline(); ok && (deadline.IsZero() || d.Before(deadline)) {
		deadline = d
	}
	c.Context, c.deadline, c.open = s.values, deadline, s.open
}

// end ends c with err, which is context.Canceled or context.DeadlineExceeded, and cause, unless it has ended already.
func (c *handlerContext) end(err, cause error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err, c.cause = err, cause
	standard := c.standard
	c.mu.Unlock()
	if standard != nil {
		c.endStandard() // outside of mu: it ends contexts that the handler derived
	}
}

// endStandard ends the standard context as c has ended. Neither changes any more.
func (c *handlerContext) endStandard() {
	if c.err == context.Canceled {
		c.cancel(c.cause)
		return
	}
	c.root.end(c.err, c.cause)
}

// needed returns the standard context, and makes it first if need be.
func (c *handlerContext) needed() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.standard == nil {
		c.root = &contextRoot{Context: c.Context, deadline: c.deadline, open: c.open}
		c.standard, c.cancel = context.WithCancelCause(c.root)
		if c.err != nil {
			c.endStandard()
		}
	}
	return c.standard
}

func (c *handlerContext) Deadline() (time.Time, bool) { return c.deadline, !c.deadline.IsZero() }

func (c *handlerContext) Done() <-chan struct{} { return c.needed().Done() }

// Err is that of the standard context once there is one, so that it tells of an end no earlier than Done does.
func (c *handlerContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.standard != nil {
		return c.standard.Err()
	}
	return c.err
}

// Value finds the standard context for context.Cause and for contexts that are derived: they look for it under a key of
// type *int.
func (c *handlerContext) Value(key any) any {
	if _, ok := key.(*int); ok {
		return c.needed().Value(key)
	}
	return c.Context.Value(key)
}

// contextRoot is the parent of a handler's standard context. It gives that context values and a deadline. A call of
// end ends it, with an error that the standard library's own cancel cannot give. Nobody else sees the root.
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
	return nothingToFree
}

func nothingToFree() bool { return true }

// watch ends the contexts of handlers whose time is over, until ctx ends.
func (w *Worker) watch(ctx context.Context, s *session) {
	over := s.handlers.Done()
	for ctx.Err() == nil {
		w.endOverdue(time.Now())
		w.inflight.sleep(ctx, &w.inflight.ends, over)
		if over != nil && s.handlers.Err() != nil {
			endHandlers(w.inflight.all(), s)
			over = nil
		}
	}
}

// endOverdue ends the contexts of handlers whose time is over. Either they have run for as long as
// they may, or their lease was not renewed until its end.
func (w *Worker) endOverdue(now time.Time) {
	timedOut, expired := w.inflight.overdue(now)
	for _, m := range timedOut {
		m.ctx.end(context.DeadlineExceeded, m.route.timedOut)
	}
	for _, m := range expired {
		w.loseRunning(m, errorf(punctual.ErrLeaseLost, "not renewed within %v", m.length), false)
	}
}

// overdue returns the holds whose leases have ended by the local count, and those whose handlers have just
// reached their timeout. It notes when to look again.
func (f *inflight) overdue(now time.Time) (timedOut, expired []*message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ends.at = time.Time{}
	for _, m := range f.held {
		switch {
		case m.over != nil, m.doubtful(now):
			continue
		case !m.endsAt.After(now):
			expired = append(expired, m)
			continue
		case !m.timeout.IsZero() && !m.timeout.After(now):
			timedOut = append(timedOut, m)
			m.timeout = time.Time{}
		}
		f.ends.notLaterThan(m.nextEnd())
	}
	return timedOut, expired
}

// nextEnd returns when the watcher is to look at m: at the end of its lease or its timeout. The
// caller holds inflight.mu.
func (m *message) nextEnd() time.Time {
	if m.timeout.IsZero() || m.endsAt.Before(m.timeout) {
		return m.endsAt
	}
	return m.timeout
}

// endHandlers ends the contexts of the handlers of ms as that of the session has ended.
func endHandlers(ms []*message, s *session) {
	for _, m := range ms {
		m.ctx.end(s.handlers.Err(), context.Cause(s.handlers))
	}
}

// atStop turns the outcome of a handler that gave up because the worker's time was up into a
// release. A release does not count as an attempt. What a handler asked for by Snooze, RetryAfter
// or Discard, and any other error, stands.
func (m *message) atStop(o outcome) outcome {
	if m.stop.Err() == nil || o.Verb != punctual.SettleRetry || o.Delay != punctual.UseBackoff {
		return o
	}
	if errors.Is(o.Err, context.Canceled) || errors.Is(o.Err, context.DeadlineExceeded) || errors.Is(o.Err, context.Cause(m.stop)) {
		return outcome{Decision: punctual.Decision{Verb: punctual.SettleRelease, Err: o.Err}}
	}
	return o
}
