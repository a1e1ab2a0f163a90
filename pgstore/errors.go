package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Names of some codes of PostgreSQL's errors.
const (
	codeNotNull       = "23502"
	codeReadOnly      = "25006"
	codeSerialization = "40001"
	codeDeadlock      = "40P01"
	codeNoTable       = "42P01"
	codeNoSchema      = "3F000"
	codeLockTimeout   = "55P03"
	codeUnique        = "23505"
)

// fault says what the errors of the server mean whose codes begin with the text code.
type fault struct {
	code   string
	kind   error
	remedy string
}

// faults are errors with which the server has certainly changed nothing. The first one that fits a
// code counts.
var faults = []fault{
	{codeSerialization, punctual.ErrOverloaded, "other transactions are in the way; try again"},
	{codeDeadlock, punctual.ErrOverloaded, "other transactions are in the way; try again"},
	{codeLockTimeout, errLockTimeout, "somebody holds a lock for longer than lock_timeout allows; try again"},
	{codeUnique, errInUse, "a row with this key is there already; try again"},
	{"57014", errStatementTimeout, "the server cancelled the statement, as after statement_timeout; try again"},
	{"53100", punctual.ErrNoSpace, "the disk of the server is full"},
	{"53300", punctual.ErrOverloaded, "the server has no connection left: raise max_connections or use fewer"},
	{"53", punctual.ErrOverloaded, "the server is short of something; look at its log"},
	{codeReadOnly, punctual.ErrUnreachable, "the server takes no changes, as a standby does: name the primary"},
	{"57P", punctual.ErrUnreachable, "the server ended the session, or is starting, stopping or recovering; try again"},
	{codeNoTable, punctual.ErrStoreFailed, "a table of the store is gone: open the store again, or run punctual migrate up"},
	{codeNoSchema, punctual.ErrStoreFailed, "the schema of the store is gone: open the store again, or run punctual migrate up"},
	{"42501", punctual.ErrForbidden, "this role lacks a right; docs/format-postgres.md names those that are needed"},
	{"28", punctual.ErrUnauthenticated, "the server does not accept this role and password"},
	{"3D000", punctual.ErrUnreachable, "there is no such database: it was renamed or dropped, or the URL is wrong"},
	{"26000", punctual.ErrUnsupported, noPrepared},
	{"42P05", punctual.ErrUnsupported, noPrepared},
	{"XX00", punctual.ErrCorrupt, "the server found damaged data; look at its log"},
}

// errStatementTimeout is the kind of error with which the server ends a statement that takes longer
// than statement_timeout.
var errStatementTimeout error = statementTimeout{punctual.ErrOverloaded}

// statementTimeout distinguishes the error of a statement that took too long from other kinds of
// overload.
type statementTimeout struct{ error }

func (t statementTimeout) Unwrap() error { return t.error }

// errInUse is the kind of error with which the server refuses a key that is in use, such as the ID
// of a message.
var errInUse error = inUse{punctual.ErrOverloaded}

// inUse distinguishes the error of a key that is in use from other kinds of overload.
type inUse struct{ error }

func (i inUse) Unwrap() error { return i.error }

// noPrepared is the remedy where a pooler, such as pgbouncer before 1.21, gives each transaction
// another connection, which lacks the statements that were prepared on the one before, or has one
// of the same name from another client.
const noPrepared = "a pooler is in between that carries no prepared statements: add default_query_exec_mode=cache_describe to the pool's URL"

// explain returns an error of the driver as one of package punctual that says what to do. unknown
// is the kind of error for a lost answer. An error that means ErrStoreFailed also stops the store.
func (db *database) explain(err error, unknown error) error {
	remedy, kind := meaning(err, unknown)
	if errors.Is(kind, punctual.ErrStoreFailed) {
		return db.fail(fmt.Errorf("%s: %w (%v)", remedy, kind, err))
	}
	if remedy == "" {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s: %w (%w)", remedy, kind, err)
	}
	return fmt.Errorf("%s: %w (%v)", remedy, kind, err)
}

// meaning returns the kind of an error and what to tell the user. The remedy is "" for errors that
// say it themselves. A step that fails while the driver prepares its statements was not carried
// out.
func meaning(err, unknown error) (remedy string, kind error) {
	refused := serverError(err)
	var dialled *pgconn.ConnectError
	if errors.As(err, new(uncommitted)) || errors.As(err, new(unsent)) || errors.As(err, new(pgx.ErrPreprocessingBatch)) || pgconn.SafeToRetry(err) {
		unknown = punctual.ErrUnreachable // nothing was changed
	}
	switch {
	case refused != nil:
		return meaningOf(refused, errors.As(err, &dialled), unknown)
	case saysItself(err):
		return "", nil
	case ended(err) && unknown == punctual.ErrUnreachable:
		return "", nil
	case errors.As(err, &dialled):
		return "nobody answers there, or the network is down", punctual.ErrUnreachable
	case unknown == punctual.ErrUnreachable:
		return "the connection broke before anything was changed; try again", unknown
	}
	return "the connection broke before the answer came", unknown
}

// serverError returns the error of the server that err wraps, or nil. Where a caller's transaction
// has another driver than pgx, it has the code alone.
func serverError(err error) *pgconn.PgError {
	var refused *pgconn.PgError
	var other interface{ SQLState() string }
	if !errors.As(err, &refused) && errors.As(err, &other) {
		refused = &pgconn.PgError{Code: other.SQLState()}
	}
	return refused
}

// meaningOf is meaning for an error that the server itself sent. If the server ended the connection
// with it, the transaction may have been committed before. That cannot be so if the server refused
// the connection in the first place (connecting).
func meaningOf(e *pgconn.PgError, connecting bool, unknown error) (remedy string, kind error) {
	if e.Severity == "FATAL" || e.Severity == "PANIC" {
		if !connecting {
			return "the server ended the connection", unknown
		}
	}
	for _, f := range faults {
		if len(e.Code) >= len(f.code) && e.Code[:len(f.code)] == f.code {
			return f.remedy, f.kind
		}
	}
	if e.Severity == "FATAL" {
		return "the server does not take the connection", punctual.ErrUnreachable
	}
	return "the server refused the statement", punctual.ErrUnsupported
}

func ended(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// saysItself reports whether an error is one of the vocabulary already.
func saysItself(err error) bool {
	for _, k := range storekit.ErrorKinds() {
		if errors.Is(err, k.Err) {
			return true
		}
	}
	return false
}
