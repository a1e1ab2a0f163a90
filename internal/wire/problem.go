package wire

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// ProblemType is the media type of a Problem that is the whole answer (RFC 9457).
const ProblemType = "application/problem+json"

// Problem is an error: the body of a whole answer, or the member "error" of one item, which has no
// Type, Title and Remedy.
type Problem struct {
	// Type is a link that describes the code.
	Type string `json:"type,omitzero"`
	// Title is a sentence about the code, Detail one about this occurrence.
	Title  string `json:"title,omitzero"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Code is the code of storekit.ErrorCode.
	Code string `json:"code"`
	// Definite is true if the operation certainly did not happen.
	Definite bool `json:"definite"`
	// Remedy says what the client can do.
	Remedy string `json:"remedy,omitzero"`
}

// kind is what HTTP adds to an error code: a status, and a remedy for clients.
type kind struct {
	code   string
	status int
	remedy string
}

// kinds has a row for each error code. A definite error has a status of 4xx, 503 or 507. Any other
// status of 5xx means that the operation may have happened.
var kinds = []kind{
	{"indeterminate", http.StatusInternalServerError, "Repeat it with the same ID or request key, or look."},
	{"invalid", http.StatusBadRequest, "Mend the request; the detail says what."},
	{"too_large", http.StatusRequestEntityTooLarge, "Send less at a time; GET /v1 lists the limits."},
	{"unsupported", http.StatusUnprocessableEntity, "Use another way, or another store below the server."},
	{"not_found", http.StatusNotFound, "It is finished, was removed, or never was; the detail says if it is something else."},
	{"duplicate", http.StatusConflict, "Use another ID, requeue the message if it is dead, or say if_exists=replace."},
	{"lease_lost", http.StatusConflict, "Drop the work; another claim brings the message if it is still to be done."},
	{"cancelled", http.StatusConflict, "Drop the work, or ack it."},
	{"leased", http.StatusConflict, "Somebody works on it: look again when that has ended."},
	{"not_dead", http.StatusConflict, "Reschedule a message that is to be delivered."},
	{"changed", http.StatusConflict, "Read the message again, and decide anew."},
	{"paused", http.StatusConflict, "Let pushes in again with POST /v1/topics/TOPIC/resume."},
	{"closed", http.StatusServiceUnavailable, "Try again; the server is ending or starting anew."},
	{"overloaded", http.StatusServiceUnavailable, "Try again after the time of Retry-After."},
	{"unreachable", http.StatusServiceUnavailable, "See that the storage below the server runs, then try again."},
	{"unauthenticated", http.StatusUnauthorized, "Send a valid token: Authorization: Bearer TOKEN."},
	{"forbidden", http.StatusForbidden, "Use credentials that may do this."},
	{"no_space", http.StatusInsufficientStorage, "Free some space, or purge what is not needed; acks and cancels pass."},
	{"locked", http.StatusServiceUnavailable, "End the other owner of the store, or try again."},
	{"corrupt", http.StatusServiceUnavailable, "Keep a copy of the storage as it is; a check lists what is wrong."},
	{"store_failed", http.StatusServiceUnavailable, "Mend the storage, then start the server again."},
	{"durability", http.StatusServiceUnavailable, "See what the storage stands on with 'punctual doctor'."},
	{"canceled", http.StatusServiceUnavailable, "Try again."},
	{"deadline", http.StatusServiceUnavailable, "Try again with less at a time."},
	{"internal", http.StatusInternalServerError, "Look whether it happened; the server's log says more."},
}

func kindOfCode(code string) kind {
	for _, k := range kinds {
		if k.code == code {
			return k
		}
	}
	return kind{code, http.StatusInternalServerError, ""}
}

// Codes returns the codes that a Problem can have.
func Codes() []string {
	out := make([]string, len(kinds))
	for i, k := range kinds {
		out[i] = k.code
	}
	return out
}

// StatusOf returns the status of an answer with this error code.
func StatusOf(code string) int { return kindOfCode(code).status }

// docs is the page that describes the codes.
const docs = "https://github.com/punctualmq/punctual/blob/main/docs/errors.md"

// ProblemOf returns err, which is not nil, as a whole answer.
func ProblemOf(err error) *Problem {
	p := ItemProblem(err)
	k := kindOfCode(p.Code)
	p.Type, p.Title, p.Remedy = docs, http.StatusText(p.Status), k.remedy
	if own := (interface{ Remedy() string })(nil); errors.As(err, &own) {
		p.Remedy = own.Remedy()
	}
	for _, e := range storekit.ErrorKinds() {
		if e.Code == p.Code {
			p.Title = e.Meaning
		}
	}
	return p
}

// ItemProblem returns err as the error of one item of an answer, nil for nil.
func ItemProblem(err error) *Problem {
	if err == nil {
		return nil
	}
	code := storekit.ErrorCode(err)
	return &Problem{Status: kindOfCode(code).status, Detail: err.Error(), Code: code, Definite: punctual.Definite(err)}
}

// RemoteError is an error that a server reported. It wraps the one error of package punctual that
// its code names, so that storekit.ErrorCode and punctual.Definite return the same for it as on the
// server, but for the cases that Problem.Err names. Where the server's error wraps two, as an
// ErrIndeterminate of a store that has failed does, errors.Is finds the first of them alone.
type RemoteError struct {
	text string
	kind error
}

// Error returns the server's text.
func (e *RemoteError) Error() string { return e.text }

// Unwrap returns the error of package punctual.
func (e *RemoteError) Unwrap() error { return e.kind }

// Err returns the problem as an error, nil for nil. A definite problem about a context that has
// ended becomes ErrOverloaded, because that was a context of the server and not the caller's. A
// code that this program has no error for, such as that of an internal error, becomes
// ErrUnsupported if the problem is definite, otherwise ErrIndeterminate.
func (p *Problem) Err() error {
	if p == nil {
		return nil
	}
	e := &RemoteError{text: p.Detail, kind: punctual.ErrIndeterminate}
	if p.Definite {
		e.kind = punctual.ErrUnsupported
		if p.Code == "canceled" || p.Code == "deadline" {
			e.kind = punctual.ErrOverloaded
		}
	}
	for _, k := range storekit.ErrorKinds() {
		if k.Code == p.Code && k.Definite == p.Definite {
			e.kind = k.Err
		}
	}
	if e.text == "" {
		e.text = e.kind.Error()
	}
	return e
}

// strangeAnswer returns an ErrIndeterminate about an answer that no server of this version gives.
func strangeAnswer(format string, args ...any) error {
	return fmt.Errorf("the server's answer is not understood: %s: %w", fmt.Sprintf(format, args...), punctual.ErrIndeterminate)
}
