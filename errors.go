package punctual

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
)

// The vocabulary of errors. Every error that Punctual returns wraps one of these (or the
// context's), so that errors.Is finds it on every path: library, command line, network.
// Each is definite (the operation certainly did not happen) or not; see Definite.

// Errors of a request that is wrong in itself; nothing was changed.
var (
	// ErrInvalid: a malformed argument; the text says which and what to use instead.
	ErrInvalid = errors.New("invalid")
	// ErrTooLarge: a body, header or batch beyond its limit.
	ErrTooLarge = errors.New("too large")
	// ErrUnsupported: this store does not have the operation.
	ErrUnsupported = errors.New("not supported")
)

// Errors that come from the state of a message or topic; nothing was changed.
var (
	// ErrNotFound: no such message or topic.
	ErrNotFound = errors.New("not found")
	// ErrDuplicate: the ID is taken, by a dead message or by any when the push asked to
	// fail then.
	ErrDuplicate = errors.New("ID is already in use")
	// ErrLeaseLost: the token is not the current one; somebody else may work on
	// the message, or it is finished, replaced, purged or deleted.
	ErrLeaseLost = errors.New("lease lost")
	// ErrCancelled: the message was cancelled while leased; it ends with this attempt.
	ErrCancelled = errors.New("cancelled while leased")
	// ErrLeased: somebody works on the message, so it cannot be cancelled or rescheduled.
	// After a cancel no further attempt will be made (P5).
	ErrLeased = errors.New("message is leased")
	// ErrNotDead: only a dead message can be requeued.
	ErrNotDead = errors.New("message is not dead")
	// ErrPaused: the topic takes no messages for now.
	ErrPaused = errors.New("topic is paused")
)

// Errors that come from the state of a store or process.
var (
	// ErrClosed: the store, queue or worker was closed; nothing was changed.
	ErrClosed = errors.New("closed")
	// ErrOverloaded: too much is under way; nothing was changed. Try again later.
	ErrOverloaded = errors.New("overloaded")
	// ErrUnreachable: no server answers; the call was never sent, or only read. Nothing was
	// changed. Try again later.
	ErrUnreachable = errors.New("server cannot be reached")
	// ErrUnauthenticated: the server asks for credentials and got none that are valid; nothing was changed.
	ErrUnauthenticated = errors.New("not authenticated")
	// ErrForbidden: the server does not let these credentials, or this origin, do it; nothing was changed.
	ErrForbidden = errors.New("not allowed")
	// ErrNoSpace: the storage is nearly full; pushes are refused while acks and
	// cancels still pass. PostgreSQL may refuse any change, also a claim. Nothing was changed.
	ErrNoSpace = errors.New("no space left")
	// ErrLocked: another process owns the store; nothing was changed.
	ErrLocked = errors.New("store is in use")
	// ErrCorrupt: stored data is damaged. Nothing was skipped or repaired.
	ErrCorrupt = errors.New("store is damaged")
	// ErrStoreFailed: the storage failed earlier and the store has stopped; nothing
	// was changed by this call. Reopen the store after mending it.
	ErrStoreFailed = errors.New("store has failed")
	// ErrDurability: the server cannot give the durability asked for.
	ErrDurability = errors.New("durability not available")
	// ErrIndeterminate: the operation may or may not have happened, and never
	// anything in between. Repeat it with the same ID, or look.
	//
	// On a store behind a network it may also happen later, because the network can hold a request back. The next call of
	// the same process prevents that on Redis; for another process it ends after 15 s (docs/promises.md).
	ErrIndeterminate = errors.New("may or may not have happened")
)

// BatchError says that some items of a call with many failed; the results tell which. It
// wraps the error of the first one, so errors.Is finds that. Definite is true of it only if
// all failed and certainly none was done.
type BatchError struct {
	// Failed is how many of the Total items failed.
	Failed, Total int
	// Err is the error of the first that failed.
	Err error

	untouched bool   // certainly no item was done
	op        string // what the caller of the queue asked for
}

// NewBatchError returns the error of a call with many items by the errors of its items: nil if none failed, else a *BatchError. op is the
// operation, whose name the items' errors may begin with. It is for stores with calls of their own that take many items.
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

// ErrorKind is one entry of the vocabulary.
type ErrorKind struct {
	// Err is the sentinel.
	Err error
	// Code is its name on every wire: stable, lower case.
	Code string
	// Definite tells that the operation certainly did not happen.
	Definite bool
	// Meaning is one sentence for documents.
	Meaning string
}

// ErrorKinds returns the vocabulary, most telling first: the first kind that
// matches an error names it.
func ErrorKinds() []ErrorKind {
	return []ErrorKind{
		{ErrIndeterminate, "indeterminate", false, "The operation may or may not have happened; repeat it with the same ID, or look."},
		{ErrInvalid, "invalid", true, "An argument is malformed; the text says which and what to use instead."},
		{ErrTooLarge, "too_large", true, "A body, header or batch is beyond its limit."},
		{ErrUnsupported, "unsupported", true, "This store does not have the operation."},
		{ErrNotFound, "not_found", true, "There is no such message or topic."},
		{ErrDuplicate, "duplicate", true, "The ID is already in use by a dead message, or by any message and the push asked to fail then."},
		{ErrLeaseLost, "lease_lost", true, "The token is not the current one; somebody else may work on the message."},
		{ErrCancelled, "cancelled", true, "The message was cancelled while leased; it ends with this attempt."},
		{ErrLeased, "leased", true, "Somebody works on the message; after a cancel no further attempt will be made."},
		{ErrNotDead, "not_dead", true, "Only a dead message can be requeued."},
		{ErrPaused, "paused", true, "The topic takes no messages for now."},
		{ErrClosed, "closed", true, "The store, queue or worker was closed."},
		{ErrOverloaded, "overloaded", true, "Too much is under way; try again later."},
		{ErrUnreachable, "unreachable", true, "No server answers; the call was never sent, or only read."},
		{ErrUnauthenticated, "unauthenticated", true, "The server asks for credentials and got none that are valid."},
		{ErrForbidden, "forbidden", true, "The server does not let these credentials, or this origin, do it."},
		{ErrNoSpace, "no_space", true, "The storage is nearly full; pushes are refused, acks and cancels pass."},
		{ErrLocked, "locked", true, "Another process owns the store."},
		{ErrCorrupt, "corrupt", true, "Stored data is damaged; nothing was skipped or repaired."},
		{ErrStoreFailed, "store_failed", true, "The storage failed earlier and the store has stopped; mend it and reopen."},
		{ErrDurability, "durability", true, "The server cannot give the durability asked for."},
	}
}

// ErrorCode returns the code of the first kind that err wraps. The context's errors are "canceled"
// and "deadline", nil is "", anything else "internal".
func ErrorCode(err error) string {
	if err == nil {
		return ""
	}
	for _, k := range ErrorKinds() {
		if errors.Is(err, k.Err) {
			return k.Code
		}
	}
	switch {
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline"
	}
	return "internal"
}

// Definite reports whether an operation that returned err certainly did not
// happen (P13). It is false for ErrIndeterminate and for errors that Punctual does
// not know. The context's errors are definite unless they come with ErrIndeterminate, and
// a *BatchError is only if no item was done.
func Definite(err error) bool {
	if b := (*BatchError)(nil); errors.As(err, &b) {
		return b.untouched
	}
	for _, k := range ErrorKinds() {
		if errors.Is(err, k.Err) {
			return k.Definite
		}
	}
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// errorf puts a sentence in front of a kind.
func errorf(kind error, format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), kind)
}

func invalidf(format string, args ...any) error { return errorf(ErrInvalid, format, args...) }
