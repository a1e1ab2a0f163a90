package worker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// The context of a handler ends before the handler returns for three reasons: its timeout, the end
// of its lease or a cancel, the end of its session. One goroutine, the watcher, ends the contexts
// of all messages in flight whose time is over, so that a message needs no timer and no entry in a
// list of child contexts for which every slot would have to take one lock. The answer to a renewal
// that reports a lost lease or a cancel ends the context as well (Worker.renewed).

// handlerContext is the context of one handler. It is cheap until the handler calls Done or
// context.Cause, or derives another context. Then it makes a context of the standard library and
// forwards to that one, so that context.Cause and derived contexts work as usual, and derived
// contexts need no goroutine.
type handlerContext struct {
	context.Context // gives the values; it never ends
	deadline        time.Time
	open            <-chan struct{} // see contextRoot

	mu sync.Mutex
	// err and cause are what the context ended with; nil until then. Guarded by mu.
	err, cause error
	// standard is the standard library's context, nil until it is needed; root and cancel end it.
	// Guarded by mu.
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

// end ends c with err, which is context.Canceled or context.DeadlineExceeded, and cause. It does
// nothing if c has ended already.
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
		c.endStandard() // without mu, because it calls into contexts that the handler derived
	}
}

// endStandard ends the standard context with the err and cause of c, which do not change any more.
func (c *handlerContext) endStandard() {
	if c.err == context.Canceled {
		c.cancel(c.cause)
		return
	}
	c.root.end(c.err, c.cause)
}

// needed returns the standard context, and makes it with the first call.
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

// Err returns the error of the standard context once there is one, so that Err does not report an
// end before Done is closed.
func (c *handlerContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.standard != nil {
		return c.standard.Err()
	}
	return c.err
}

// Value returns the value for key. The standard library looks up a key of type *int to find its own
// context, for context.Cause and for derived contexts; that lookup goes to the standard context.
func (c *handlerContext) Value(key any) any {
	if _, ok := key.(*int); ok {
		return c.needed().Value(key)
	}
	return c.Context.Value(key)
}

// contextRoot is the parent of a handler's standard context, to which it gives values and a
// deadline. Its method end ends the child with an error that the standard library's own cancel
// functions cannot set, such as DeadlineExceeded at a time of the worker's choice. No other code
// sees the root.
//
// It relies on the standard library calling the AfterFunc method of a parent that has one (see
// context.AfterFunc), here once for each root.
type contextRoot struct {
	context.Context                 // gives the values; it never ends
	deadline        time.Time       // zero: none
	open            <-chan struct{} // never closed; the standard library registers a child only if Done is not nil
	// endChild is set by AfterFunc when the child is made, and does not change after that.
	endChild func()
	ended    atomic.Pointer[contextEnd]
}

// contextEnd is what a context ended with. It is immutable.
type contextEnd struct {
	err error
	// values has the values of the root, and is a cancelled context in which context.Cause finds
	// the cause.
	values context.Context
}

// end ends the child with err and cause. It does nothing if the child has ended already.
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

// AfterFunc keeps f, which ends the child, for end. The function that it returns does nothing,
// because f is freed together with the root.
func (r *contextRoot) AfterFunc(f func()) (stop func() bool) {
	r.endChild = f
	return nothingToFree
}

func nothingToFree() bool { return true }
