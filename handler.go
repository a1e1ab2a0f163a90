package punctual

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Handler works on messages. It may be called from many goroutines at once. It must not
// change d; middleware that has to, say to decompress a body, hands on a copy.
//
// What it returns decides what becomes of the message:
//
//	nil                    ack: the message is finished
//	Snooze(d)              again after d; does not count as an attempt
//	RetryAfter(d, err)     again after d; counts as an attempt
//	Discard(err)           dead at once, with err in its history
//	any other error        again when the topic's backoff says; counts as an attempt
//	a panic, a Goexit      as any other error, the stack in its history
//
// Snooze, RetryAfter and Discard are found in wrapped errors, too (errors.As); the outermost rules.
//
// ctx ends when the work is no longer wanted; context.Cause(ctx) says why:
// ErrLeaseLost (somebody else may work on the message now), ErrCancelled (no further
// attempt will be made), context.DeadlineExceeded (the handler's timeout) or ErrClosed (the
// worker was stopped and its time is up). A message may be delivered more than once:
// a handler must bear that, or use Delivery.Token as a fence.
type Handler interface {
	Handle(ctx context.Context, d *Delivery) error
}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(ctx context.Context, d *Delivery) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, d *Delivery) error { return f(ctx, d) }

// Middleware wraps a Handler in another one, for what all handlers share: tracing,
// locks, translation of errors.
type Middleware = func(Handler) Handler

// Snooze returns the error with which a handler puts its message off by d
// without using an attempt and without leaving a trace in its history, say because
// a lock is taken. A negative d makes it an ordinary error, which is retried.
func Snooze(d time.Duration) error {
	if d < 0 {
		return invalidf("snooze for %v: use a positive duration, or 0 for at once", d)
	}
	return &verdict{verb: SettleSnooze, delay: d}
}

// RetryAfter returns the error with which a handler has its message retried
// after d instead of after the topic's backoff. The attempt counts and err is kept in the
// history. A negative d makes it an ordinary error, which is retried.
func RetryAfter(d time.Duration, err error) error {
	if d < 0 {
		return errors.Join(invalidf("retry after %v: use a positive duration, or 0 for at once", d), err)
	}
	return &verdict{verb: SettleRetry, delay: d, err: err}
}

// Discard returns the error with which a handler gives up on its message: it
// becomes dead with ReasonDiscarded, err in its history.
func Discard(err error) error { return &verdict{verb: SettleDiscard, err: err} }

// verdict is an error that says what to do with the message.
type verdict struct {
	verb  Verb
	delay time.Duration
	err   error // may be nil
}

func (v *verdict) Error() string {
	switch {
	case v.verb == SettleSnooze:
		return fmt.Sprintf("snooze for %v", v.delay)
	case v.err != nil:
		return v.err.Error()
	case v.verb == SettleRetry:
		return fmt.Sprintf("retry after %v", v.delay)
	}
	return "discarded by the handler"
}

func (v *verdict) Unwrap() error { return v.err }

// judge says what becomes of the message whose handler returned err.
func judge(err error) (v Verb, delay time.Duration, text string) {
	if err == nil {
		return SettleAck, 0, ""
	}
	var said *verdict
	switch {
	case !errors.As(err, &said):
		return SettleRetry, UseBackoff, TrimError(err.Error())
	case said.verb == SettleSnooze:
		return SettleSnooze, said.delay, ""
	}
	return said.verb, said.delay, TrimError(err.Error())
}
