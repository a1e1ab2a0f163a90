package storekit

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/punctualmq/punctual"
)

// Calls admits the calls of a store until the store is closed or has failed, and waits for those
// under way. A store in a server has one, whose fields it sets before its first call. The methods
// of Calls are safe for concurrent use.
type Calls struct {
	// Name is the name of the store in errors, such as "redis store".
	Name string
	// Logger is told when the store stops; see Fail.
	Logger *slog.Logger

	mu       sync.Mutex
	closed   bool           // guarded by mu
	failed   error          // guarded by mu: why the store has stopped, or nil
	underWay sync.WaitGroup // grows only with mu held and while not closed, or by a call that is under way
}

// Begin admits a call, at whose end the caller calls End. It refuses the call if the store is
// closed, if the store has failed, or if ctx has ended, and checks these in this order. When it
// returns an error, End must not be called.
func (c *Calls) Begin(ctx context.Context) error { return c.begin(ctx, false) }

// BeginAnyway is Begin for a call that a store answers also after it has failed, such as an
// examination.
func (c *Calls) BeginAnyway(ctx context.Context) error { return c.begin(ctx, true) }

func (c *Calls) begin(ctx context.Context, anyway bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return c.ErrClosed()
	case c.failed != nil && !anyway:
		return c.failed
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", c.Name, ctx.Err())
	}
	c.underWay.Add(1)
	return nil
}

// End notes that a call has ended which Begin has admitted.
func (c *Calls) End() { c.underWay.Done() }

// Go runs f in a goroutine that Wait waits for. Only a call that is under way may call Go.
func (c *Calls) Go(f func()) { c.underWay.Go(f) }

// Fail stops the store for good, because of err. Begin refuses further calls with that error. If
// the store has stopped already, the first cause stays. Fail returns the cause.
func (c *Calls) Fail(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		c.failed = err
		c.Logger.Error(c.Name+" stopped", "error", err)
	}
	return c.failed
}

// Close refuses further calls. It does not wait for those under way; see Wait. A second Close is an
// ErrClosed.
func (c *Calls) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.ErrClosed()
	}
	c.closed = true
	return nil
}

// Wait waits until no call is under way. Call it after Close, because further calls could begin
// meanwhile otherwise.
func (c *Calls) Wait() { c.underWay.Wait() }

// ErrClosed returns the error of a call of a closed store: an ErrClosed that names the store.
func (c *Calls) ErrClosed() error { return fmt.Errorf("%s: %w", c.Name, punctual.ErrClosed) }

// Call runs a method of a store. The call is refused before work begins if c does not admit it, or
// else with check, the error of its arguments, if that is not nil.
//
// The errors of check and work get the name of the method in front. The subject, which may be
// empty, follows the method in errors of work only, because check names what it refuses. An error
// of Plain gets neither. Beside an error the result is zero.
func Call[T any](ctx context.Context, c *Calls, method, subject string, check error, work func() (T, error)) (T, error) {
	var none T
	if err := c.Begin(ctx); err != nil {
		return none, err
	}
	defer c.End()
	err := check
	if err == nil {
		var got T
		if got, err = work(); err == nil {
			return got, nil
		}
		if subject != "" {
			method += " " + subject
		}
	}
	if p, ok := err.(plain); ok {
		return none, p.error
	}
	return none, fmt.Errorf("%s: %w", method, err)
}

// plain marks an error that names its method itself.
type plain struct{ error }

// Plain marks an error as complete without the name of the method, so that Call returns it as it
// is. Plain of nil is nil.
func Plain(err error) error {
	if err == nil {
		return nil
	}
	return plain{err}
}
