package pgstore

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Tx is a transaction of the caller's, in the database of the store. Make one with Pgx or SQL.
//
// What is done in it takes effect when it commits, and not at all when it is rolled back, in whole or to a savepoint. The store
// never ends it and tries nothing again. Roll it back behind an error of the call: PostgreSQL has aborted it, or a part of the
// call's messages is in it. errors.As finds the *pgconn.PgError of pgx in the error. So a serialization failure can be told.
//
// The store raises synchronous_commit in it where it is less than the store's class needs. Other settings that it changes
// have the caller's values again behind each call.
type Tx struct {
	send func(ctx context.Context, x *step) error
}

// Pgx is for transactions of pgx: a pgx.Tx, also one of a pool. A pool itself or a connection does not fit: the message would
// be there though the order is rolled back.
func Pgx(tx interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	Rollback(ctx context.Context) error
},
) Tx {
	return Tx{func(ctx context.Context, x *step) error { return x.send(ctx, tx) }}
}

// SQL is for transactions of database/sql, with any driver for PostgreSQL: a *sql.Tx, or a *sql.Conn with one. With a *sql.DB, or
// what has one in it, each call returns ErrInvalid.
func SQL(tx interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
},
) Tx {
	if _, ok := tx.(interface{ Begin() (*sql.Tx, error) }); ok {
		return Tx{func(context.Context, *step) error {
			return fmt.Errorf("%T is no transaction: begin one and pass that: %w", tx, punctual.ErrInvalid)
		}}
	}
	return Tx{func(ctx context.Context, x *step) error {
		for i, q := range x.QueuedQueries {
			if err := queryEach(ctx, tx.QueryContext, q, x.each[i]); err != nil {
				return err
			}
		}
		return nil
	}}
}

// queryEach runs one statement and calls each for each row.
func queryEach(ctx context.Context, query func(context.Context, string, ...any) (*sql.Rows, error), q *pgx.QueuedQuery, each func(scanner) error) (err error) {
	args := make([]any, len(q.Arguments))
	for i, a := range q.Arguments {
		args[i] = sqlArgument(a)
	}
	rows, err := query(ctx, q.SQL, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := each(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// sqlArgument writes lists as PostgreSQL writes arrays, because each driver of database/sql has its own way with them.
func sqlArgument(a any) any {
	switch list := a.(type) {
	case []string:
		return array(list, func(s string) string { return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"` })
	case []int32:
		return array(list, func(n int32) string { return strconv.FormatInt(int64(n), 10) })
	case []int64:
		return array(list, func(n int64) string { return strconv.FormatInt(n, 10) })
	case []bool:
		return array(list, strconv.FormatBool)
	case []*int64:
		return array(list, func(n *int64) string {
			if n == nil {
				return "NULL"
			}
			return strconv.FormatInt(*n, 10)
		})
	case []*string: // reasons of death: words
		return array(list, func(s *string) string {
			if s == nil {
				return "NULL"
			}
			return `"` + *s + `"`
		})
	case [][]byte:
		return array(list, func(b []byte) string {
			if b == nil {
				return "NULL"
			}
			return `"\\x` + hex.EncodeToString(b) + `"`
		})
	}
	return a
}

func array[T any](list []T, text func(T) string) string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = text(v)
	}
	return "{" + strings.Join(out, ",") + "}"
}

// PushTx is Push in a transaction of the caller's: the messages exist if it commits. Waiting claims see them within a second
// of the commit, at their due time if that is later than that.
//
// Until the transaction ends, another push of one of the IDs waits for it, and so does the deletion of the topic.
func (s *Store) PushTx(ctx context.Context, tx Tx, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.calls.Done()
	if err := storekit.CheckBatch(len(ms)); err != nil {
		return nil, fmt.Errorf("push: %w", err)
	}
	if err := s.refusal(); err != nil {
		return nil, fmt.Errorf("push: %w", err)
	}
	p := s.pushOf(ms)
	err := s.inCallers(ctx, tx, func(way *callersWay) error {
		for _, part := range p.parts() {
			err := way.write(ctx, func() *step {
				return s.step().add("topics_share", []any{s.class, p.topics(part)}, nil).add("topics_keep", []any{p.topics(part)}, nil)
			})
			if err == nil {
				_, err = p.push(ctx, way, part)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("push: %w", err)
	}
	return p.out, nil
}

// AmendTx is Amend in a transaction of the caller's. Until that ends, claims pass by the messages.
func (s *Store) AmendTx(ctx context.Context, tx Tx, as []punctual.Amendment) ([]punctual.Amended, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.calls.Done()
	if err := storekit.CheckBatch(len(as)); err != nil {
		return nil, fmt.Errorf("amend: %w", err)
	}
	c := s.amendingOf(as)
	c.within = true
	err := s.inCallers(ctx, tx, func(way *callersWay) error {
		for _, part := range c.parts() {
			_, x, err := c.amend(ctx, way, part)
			if err == nil && x.Len() > 0 {
				err = way.send(ctx, x)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("amend: %w", err)
	}
	return c.out, nil
}

// CancelTx cancels one message in a transaction of the caller's, as Queue.Cancel does. The error is nil when it was
// cancelled, ErrLeased when somebody works on it, ErrNotFound when it is not there. None of them aborts the
// transaction.
func (s *Store) CancelTx(ctx context.Context, tx Tx, topic, id string) error {
	out, err := s.AmendTx(ctx, tx, []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: topic, ID: id}})
	if err != nil {
		return err
	}
	return out[0].Err
}

// RescheduleTx moves the due time of one message in a transaction of the caller's. a is the new time: its Due or Delay. It answers as
// CancelTx does.
func (s *Store) RescheduleTx(ctx context.Context, tx Tx, a punctual.Amendment) (punctual.Amended, error) {
	a.Change = punctual.ChangeReschedule
	out, err := s.AmendTx(ctx, tx, []punctual.Amendment{a})
	if err != nil {
		return punctual.Amended{}, err
	}
	return out[0], out[0].Err
}

// callersWay runs the steps of a call in a transaction of the caller's. Its statements have the plans of the store's own
// transactions (plan.sql), and the caller's settings are given back behind them.
type callersWay struct {
	s  *Store
	tx Tx

	names, was []string // the settings that are changed, and the caller's values; none before the first step
	changed    bool     // they are not given back yet
}

// inCallers runs f with the way of a caller's transaction, and leaves that with the settings that it had.
func (s *Store) inCallers(ctx context.Context, tx Tx, f func(w *callersWay) error) error {
	w := &callersWay{s: s, tx: tx}
	err := f(w)
	if !w.changed || len(w.names) == 0 || errors.As(err, new(*pgconn.PgError)) { // an aborted transaction gives them back by its end
		return err
	}
	// A context that ends between two statements leaves the transaction whole.
	ctx, end := outliving(ctx)
	defer end()
	giving := w.do(ctx, w.givingBack(s.step()))
	if err == nil || giving == nil {
		return errors.Join(err, giving)
	}
	return fmt.Errorf("%w (roll the transaction back, whose settings are not given back: %v)", err, giving)
}

// givingBack adds to a step what gives the settings back.
func (w *callersWay) givingBack(x *step) *step { return x.add("plan_back", []any{w.names, w.was}, nil) }

func (w *callersWay) write(ctx context.Context, build func() *step) error {
	return w.send(ctx, build())
}

func (w *callersWay) transact(ctx context.Context, f func(ctx context.Context, to stepper) error) error {
	return f(ctx, w)
}

// send sends a step. The first one tells what the caller's settings are, so that the later ones can give them back themselves.
func (w *callersWay) send(ctx context.Context, x *step) error {
	known := len(w.names) > 0
	if known {
		w.givingBack(x)
	}
	if !w.changed {
		x.behind("plan_within", func(rows scanner) error {
			var name, was, now string
			err := rows.Scan(&name, &was, &now)
			if !known && err == nil {
				w.names, w.was = append(w.names, name), append(w.was, was)
			}
			return err
		})
	}
	w.changed = true // also when this fails: it is not known where
	err := w.do(ctx, x)
	w.changed = err != nil || !known
	return err
}

// do sends statements. Nothing is committed by them, so their error is definite.
func (w *callersWay) do(ctx context.Context, x *step) error {
	err := w.tx.send(ctx, x)
	if err == nil {
		return nil
	}
	remedy, kind := meaning(err, punctual.ErrUnreachable)
	var refused *pgconn.PgError
	if remedy == "" || !errors.As(err, &refused) && !pgconn.SafeToRetry(err) && kind == punctual.ErrUnreachable {
		return fmt.Errorf("in the caller's transaction: %w", err) // the driver's own words tell more
	}
	return fmt.Errorf("%s: %w (%w)", remedy, kind, err)
}
