package punctual

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
)

// The vocabulary of errors. Every error that Punctual returns wraps one of these or an error of
// package context, so that errors.Is finds it in the library, in the command line and over a server
// alike. Only the errors of a program's own code, such as a Codec or QueueConfig.Prepare, are
// passed on with a sentence in front. For each of the vocabulary Definite tells whether the
// operation certainly did not happen.

// Errors of a request that is wrong in itself. The store changed nothing.
var (
	// ErrInvalid: an argument is malformed. The text names the argument and says what to use
	// instead.
	ErrInvalid = errors.New("invalid")
	// ErrTooLarge: something is larger than its limit, such as a body, the headers of a message or
	// a batch.
	ErrTooLarge = errors.New("too large")
	// ErrUnsupported: this store does not have the operation, or cannot have the setting that was
	// asked for.
	ErrUnsupported = errors.New("not supported")
)

// Errors that come from the state of a message or topic. What the call asked for was not done. A
// call that ends with ErrLeased or ErrCancelled may have had another effect, which those two
// describe. With the others nothing was changed, except that a reschedule with ErrNotFound may have
// ended a message that was cancelled under a lease (Store.Amend).
var (
	// ErrNotFound: there is no such message or topic.
	ErrNotFound = errors.New("not found")
	// ErrDuplicate: the ID of a pushed message is already in use. Either a dead message holds the
	// ID, or the push was made with IfExistsFail.
	ErrDuplicate = errors.New("ID is already in use")
	// ErrLeaseLost: the token of a settlement is not the current one. The lease was settled
	// already, other than by an extension; or the message was claimed again, so that somebody else
	// may work on it; or a claim has ended it after the lease; or it was replaced, purged or
	// deleted. Once the lease has run out, a reschedule or a cancel ends the lease, too.
	ErrLeaseLost = errors.New("lease lost")
	// ErrCancelled: the message of a settlement was cancelled while it was leased, so it gets no
	// further attempt. A retry, snooze or release that returns ErrCancelled has ended the message
	// as cancelled; an extension that returns it has left the lease as it is.
	ErrCancelled = errors.New("cancelled while leased")
	// ErrLeased: somebody works on the message. A cancel that returns ErrLeased is recorded: the
	// message gets no further attempt after the one under way (P5). A reschedule that returns it
	// has changed nothing.
	ErrLeased = errors.New("message is leased")
	// ErrNotDead: the message to requeue is scheduled, ready or leased. Only a dead message can be
	// requeued.
	ErrNotDead = errors.New("message is not dead")
	// ErrChanged: the message is not due at the instant that the call named (IfDue), or is gone; or
	// the topic has other settings than the call named (SettingsPatch.If). Somebody has changed
	// them since the caller read them; read them again.
	ErrChanged = errors.New("changed meanwhile")
	// ErrPaused: the topic refuses pushes because its setting PushPaused is on.
	ErrPaused = errors.New("topic is paused")
)

// Errors that come from the state of a store or process.
var (
	// ErrClosed: the store, queue or worker was closed; nothing was changed.
	ErrClosed = errors.New("closed")
	// ErrOverloaded: too much is under way already, such as calls, bytes or another copy of the
	// store; nothing was changed. Try again later.
	ErrOverloaded = errors.New("overloaded")
	// ErrUnreachable: no server answers, or those that answer cannot carry the call out for now.
	// Nothing was changed, because the call was not carried out or only reads. Try again later.
	ErrUnreachable = errors.New("server cannot be reached")
	// ErrUnauthenticated: the server asks for credentials and got none that are valid; nothing was
	// changed.
	ErrUnauthenticated = errors.New("not authenticated")
	// ErrForbidden: the server does not let these credentials, or this origin, do what was asked
	// for; nothing was changed.
	ErrForbidden = errors.New("not allowed")
	// ErrNoSpace: the storage is nearly full, so the store refuses pushes, while acks and cancels
	// still pass. PostgreSQL may refuse any change, also a claim. Nothing was changed.
	ErrNoSpace = errors.New("no space left")
	// ErrLocked: another process, or another Store of this process, owns the store; nothing was
	// changed.
	ErrLocked = errors.New("store is in use")
	// ErrCorrupt: stored data is damaged. The store neither skipped nor repaired what it could not
	// read.
	ErrCorrupt = errors.New("store is damaged")
	// ErrStoreFailed: the storage has failed and the store has stopped, so this call changed
	// nothing. Mend the storage and open the store again.
	ErrStoreFailed = errors.New("store has failed")
	// ErrDurability: the server does not give the durability that the store was opened with. The
	// text names the server's setting to change.
	ErrDurability = errors.New("durability not available")
	// ErrIndeterminate: each item of the call was carried out or not, and it is not known which.
	// For instance the connection broke before the answer came. Repeat the call with the same IDs,
	// or read the messages.
	//
	// On a store behind a network the operation may also happen later, because the network can hold
	// a request back. On Redis the next call of the same process to the same partition prevents
	// that; the calls of other processes are safe from it after 15 s (docs/promises.md).
	ErrIndeterminate = errors.New("may or may not have happened")
)

// BatchError says how many items of a call with many items failed; the results of the call tell
// which. It wraps the error of the first item that failed, so errors.Is finds the kind of that
// error. Definite reports true for a BatchError only if every item failed and certainly none was
// carried out.
type BatchError struct {
	// Failed is how many of the Total items failed.
	Failed, Total int
	// Err is the error of the first item that failed.
	Err error

	untouched bool   // every item failed, and certainly none was carried out
	op        string // the operation that the caller asked for, such as "push"
}

// NewBatchError returns nil if every one of errs is nil, else a *BatchError. errs has the error of
// each item of a call, in order, nil for an item that succeeded. op names the operation, such as
// "push"; an item's error may begin with that name, which the text of the BatchError then does not
// repeat. NewBatchError is for stores with calls of their own that take many items, as pgstore's
// PushManyTx does.
func NewBatchError(op string, errs []error) error {
	e := &BatchError{Total: len(errs), untouched: true, op: op}
	for _, err := range errs {
		e.untouched = e.untouched && err != nil && Definite(err)
		if err != nil {
			e.Failed++
			e.Err = cmp.Or(e.Err, err)
		}
	}
	if e.Failed == 0 {
		return nil
	}
	return e
}

func (e *BatchError) Error() string {
	if e.Total == 1 {
		return e.Err.Error()
	}
	return fmt.Sprintf("%d of %d failed, the first with: %s", e.Failed, e.Total, strings.TrimPrefix(e.Err.Error(), e.op+": "))
}

// Unwrap returns Err.
func (e *BatchError) Unwrap() error { return e.Err }

// Definite reports whether an operation that returned err certainly did not happen (P13). It is
// false for ErrIndeterminate and for errors that Punctual does not know. An error of package
// context is definite unless err wraps ErrIndeterminate as well. A *BatchError is definite only if
// no item was carried out. For example, a push whose error is definite may be repeated under
// another ID, and any other failed push only under the same one.
func Definite(err error) bool {
	if b := (*BatchError)(nil); errors.As(err, &b) {
		return b.untouched
	}
	if errors.Is(err, ErrIndeterminate) {
		return false
	}
	for _, kind := range definite {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// definite are the errors of an operation that certainly did not happen.
var definite = [...]error{
	ErrInvalid, ErrTooLarge, ErrUnsupported, ErrNotFound, ErrDuplicate, ErrLeaseLost, ErrCancelled, ErrLeased, ErrNotDead, ErrChanged, ErrPaused, ErrClosed, ErrOverloaded, ErrUnreachable, ErrUnauthenticated, ErrForbidden, ErrNoSpace, ErrLocked, ErrCorrupt, ErrStoreFailed, ErrDurability,
	context.Canceled, context.DeadlineExceeded,
}

// errorf returns an error that wraps kind and begins with the formatted sentence.
func errorf(kind error, format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), kind)
}

func invalidf(format string, args ...any) error { return errorf(ErrInvalid, format, args...) }
