package storekit

import (
	"context"
	"errors"

	"github.com/punctualmq/punctual"
)

// ErrorKind describes one error of the vocabulary.
type ErrorKind struct {
	// Err is the sentinel.
	Err error
	// Code is the error's name in JSON and in metrics: lower case, and the same in every release.
	Code string
	// Definite tells that an operation with this error certainly did not happen.
	Definite bool
	// Meaning is one sentence for documents and for people.
	Meaning string
}

// ErrorKinds returns the vocabulary in order of precedence: an error that wraps several of the
// kinds has the code of the first. So ErrIndeterminate comes before all others. The slice is the
// caller's.
func ErrorKinds() []ErrorKind {
	return []ErrorKind{
		{punctual.ErrIndeterminate, "indeterminate", false, "The operation may or may not have happened; repeat it with the same ID, or look."},
		{punctual.ErrInvalid, "invalid", true, "An argument is malformed; the text says which and what to use instead."},
		{punctual.ErrTooLarge, "too_large", true, "A body, header or batch is beyond its limit."},
		{punctual.ErrUnsupported, "unsupported", true, "This store does not have the operation."},
		{punctual.ErrNotFound, "not_found", true, "There is no such message or topic."},
		{punctual.ErrDuplicate, "duplicate", true, "The ID is already in use by a dead message, or by any message and the push asked to fail then."},
		{punctual.ErrLeaseLost, "lease_lost", true, "The token is not the current one; somebody else may work on the message."},
		{punctual.ErrCancelled, "cancelled", true, "The message was cancelled while leased; it ends with this attempt."},
		{punctual.ErrLeased, "leased", true, "Somebody works on the message; after a cancel no further attempt will be made."},
		{punctual.ErrNotDead, "not_dead", true, "Only a dead message can be requeued."},
		{punctual.ErrChanged, "changed", true, "The message is not due at the instant named any more, or the topic has other settings than those named; somebody changed them meanwhile."},
		{punctual.ErrPaused, "paused", true, "The topic takes no messages for now."},
		{punctual.ErrClosed, "closed", true, "The store, queue or worker was closed."},
		{punctual.ErrOverloaded, "overloaded", true, "Too much is under way; try again later."},
		{punctual.ErrUnreachable, "unreachable", true, "No server answers; the call was never sent, or only read."},
		{punctual.ErrUnauthenticated, "unauthenticated", true, "The server asks for credentials and got none that are valid."},
		{punctual.ErrForbidden, "forbidden", true, "The server does not let these credentials, or this origin, do it."},
		{punctual.ErrNoSpace, "no_space", true, "The storage is nearly full; pushes are refused, acks and cancels pass."},
		{punctual.ErrLocked, "locked", true, "Another process owns the store."},
		{punctual.ErrCorrupt, "corrupt", true, "Stored data is damaged; nothing was skipped or repaired."},
		{punctual.ErrStoreFailed, "store_failed", true, "The storage failed earlier and the store has stopped; mend it and reopen."},
		{punctual.ErrDurability, "durability", true, "The server cannot give the durability asked for."},
	}
}

// ErrorCode returns the code of the first kind in ErrorKinds that err wraps. It returns "canceled"
// and "deadline" for the errors of package context, "" for nil, and "internal" for any other error.
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
