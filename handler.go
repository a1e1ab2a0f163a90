package punctual

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/punctualmq/punctual/limits"
)

// Handler works on messages. A Worker calls Handle from many goroutines at once. Handle must not
// change d; middleware that has to, say to decompress a body, hands on a copy.
//
// What Handle returns decides what becomes of the message:
//
//	nil                    ack: the message is finished
//	Snooze(d)              delivered again after d; does not count as an attempt
//	SnoozeUntil(t)         delivered again at t; does not count as an attempt
//	RetryAfter(d, err)     delivered again after d; counts as an attempt
//	Discard(err)           dead at once, with err in its history
//	Follow(err, ms...)     as err says, with ms stored in the same step
//	Settled(verb)          nothing: the handler has settled the message itself
//	any other error        delivered again when the topic's backoff says; counts as an attempt
//	a panic                as any other error, with the panic's value and stack in its history
//	a Goexit               as any other error
//
// A Snooze, SnoozeUntil, RetryAfter, Discard, Follow or Settled that is wrapped in another error
// counts as well (errors.As); of several the outermost one counts. A handler that returns the error
// of its ctx because the worker's time to stop is up gives its message back: the attempt does not
// count.
//
// ctx ends when the work is no longer wanted, and context.Cause(ctx) says why:
//
//	ErrLeaseLost               somebody else may work on the message now
//	ErrCancelled               no further attempt will be made
//	context.DeadlineExceeded   the handler's timeout is over
//	ErrClosed                  the worker was stopped and its time is up
//
// In a Drain of a Worker ctx also ends with the context of Drain, whose cause it then has.
//
// A message may be delivered more than once. A handler must bear that, or use Delivery.Token as a
// fence.
type Handler interface {
	Handle(ctx context.Context, d *Delivery) error
}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(ctx context.Context, d *Delivery) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, d *Delivery) error { return f(ctx, d) }

// Snooze returns the error with which a handler puts its message off by d, say because an account
// is locked. The message keeps its attempts, and its history gets no entry. With a negative d the
// error is an ordinary one, so that the message is retried.
func Snooze(d time.Duration) error {
	if d < 0 {
		return invalidf("snooze for %v: use a positive duration, or 0 for at once", d)
	}
	return &decisionError{verb: SettleSnooze, delay: d}
}

// SnoozeUntil returns the error with which a handler puts its message off until t, say until a shop
// opens. The message keeps its attempts, and its history gets no entry. A t in the past is at once.
// With the zero Time or a t after limits.MaxDue the error is an ordinary one, so that the message
// is retried.
func SnoozeUntil(t time.Time) error {
	switch {
	case t.IsZero():
		return invalidf("snooze until the zero Time: set it, or use Snooze(0) for at once")
	case t.After(limits.MaxDue):
		return invalidf("snooze until %s: use a time until %s", t.Format(time.RFC3339), limits.MaxDue.Format(time.RFC3339))
	}
	return &decisionError{verb: SettleSnooze, due: t}
}

// RetryAfter returns the error with which a handler has its message retried after d instead of
// after the topic's backoff. The attempt counts, and the history keeps the text of err. With a
// negative d the error is an ordinary one, so that the message is retried after the topic's
// backoff.
func RetryAfter(d time.Duration, err error) error {
	if d < 0 {
		return errors.Join(invalidf("retry after %v: use a positive duration, or 0 for at once", d), err)
	}
	return &decisionError{verb: SettleRetry, delay: d, err: err}
}

// Discard returns the error with which a handler gives up on its message: the message becomes dead
// with ReasonDiscarded, and its history keeps the text of err.
func Discard(err error) error { return &decisionError{verb: SettleDiscard, err: err} }

// Follow returns the error with which a handler has ms stored together with what becomes of its
// message (Settlement.Then): either both happen or neither, whatever crashes. err is what the
// handler would return otherwise, and says what becomes of the message: nil acks it, a Snooze puts
// it off, a Discard gives up on it. With any other error the message is retried and ms are not
// stored, because the next attempt returns them again. For example,
//
//	bill, err := invoices.Compose(Invoice{o.Number}, punctual.ID(d.ID+"~invoice"), punctual.In(48*time.Hour))
//	return punctual.Follow(err, bill)
//
// acks the order and stores its invoice in one step. If a follow-up is refused, the message is
// neither acked nor lost: Worker puts it off by the topic's backoff without counting an attempt
// when the reason passes by itself (ErrPaused, ErrNoSpace, ErrOverloaded), and otherwise retries it
// with the reason in its history. QueueConfig.Prepare is not called for ms, because a Worker has no
// Queue: what it would add has to be in them already.
func Follow(err error, ms ...NewMessage) error {
	d := decisionError{verb: SettleAck}
	if said := (*decisionError)(nil); errors.As(err, &said) {
		d = *said
		d.err = err
	} else if err != nil {
		return err
	}
	if d.settled && len(ms) > 0 {
		return errors.Join(invalidf("follow-ups of a message that the handler has settled itself: store them with that settlement"), errors.New(err.Error()))
	}
	if d.settled || d.verb == SettleRetry {
		return err
	}
	d.then = slices.Concat(d.then, ms)
	return &d
}

// Settled returns the error with which a handler says that it has settled its message itself, by v:
// for instance in its own transaction with pgstore.SettleTx. A Worker then leaves the message
// alone. v is what observers see in OnFinish; nobody calls their OnSettle. If the message was not
// settled in truth, nothing is lost: its lease runs out, and it is delivered again. With a v that
// does not end a lease (SettleExtend, or none at all) the error is an ordinary one, so that the
// message is retried.
func Settled(v Verb) error {
	switch v {
	case SettleAck, SettleRetry, SettleSnooze, SettleDiscard, SettleRelease:
		return &decisionError{verb: v, settled: true}
	}
	return invalidf("settled by verb %q: use one that ends a lease, such as SettleAck", v)
}

// decisionError is the error that Snooze, SnoozeUntil, RetryAfter, Discard, Follow and Settled
// return: it says how to settle the message.
type decisionError struct {
	verb Verb
	// settled: the handler has settled the message itself, by verb.
	settled bool
	delay   time.Duration
	due     time.Time    // of SnoozeUntil
	then    []NewMessage // of Follow
	err     error        // may be nil
}

func (e *decisionError) Error() string {
	switch {
	case e.settled:
		return "settled by the handler: " + e.verb.String()
	case !e.due.IsZero():
		return "snooze until " + e.due.Format(time.RFC3339)
	case e.verb == SettleSnooze:
		return fmt.Sprintf("snooze for %v", e.delay)
	case e.err != nil:
		return e.err.Error()
	case e.verb == SettleRetry:
		return fmt.Sprintf("retry after %v", e.delay)
	case e.verb == SettleAck:
		return fmt.Sprintf("ack with %d follow-ups", len(e.then))
	}
	return "discarded by the handler"
}

func (e *decisionError) Unwrap() error { return e.err }

// Decision is how to settle a message after its handler has returned.
type Decision struct {
	// Verb is SettleAck, SettleRetry, SettleSnooze or SettleDiscard, or what Settled was called
	// with.
	Verb Verb
	// Settled: the handler has settled the message by Verb itself, so nothing is to be done with
	// it.
	Settled bool
	// Delay is the Settlement.Delay: the time until the next attempt, or UseBackoff. It is 0 for
	// SettleAck and SettleDiscard.
	Delay time.Duration
	// Due is the Settlement.Due of SnoozeUntil: the instant of the next attempt in the place of
	// Delay. Else it is zero.
	Due time.Time
	// Then are the messages of Follow, for Settlement.Then; none for SettleRetry.
	Then []NewMessage
	// Err is what the handler returned. After Follow(nil, ...) and Settled(SettleAck) it is not nil
	// although the verb is SettleAck.
	Err error
}

// DecisionOf returns how to settle the message whose handler returned err. It is for those who run
// handlers without a Worker.
func DecisionOf(err error) Decision {
	if err == nil {
		return Decision{Verb: SettleAck}
	}
	var said *decisionError
	if errors.As(err, &said) {
		return Decision{Verb: said.verb, Settled: said.settled, Delay: said.delay, Due: said.due, Then: said.then, Err: err}
	}
	return Decision{Verb: SettleRetry, Delay: UseBackoff, Err: err}
}
