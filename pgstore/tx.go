package pgstore

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Tx is a transaction of the caller's, in the database of the store. Make one with Pgx or SQL.
//
// What is done in the transaction takes effect when it commits, and not at all when it is rolled
// back, in whole or to a savepoint. The store never ends the transaction, and tries nothing again
// that the server has refused in it. An error of single messages leaves it whole: such a message
// was refused, and the others are in the transaction. Roll it back after any other error, because
// PostgreSQL may have aborted it, or a part of the call's messages may be in it. When the
// connection breaks, that is ErrUnreachable: the transaction cannot commit any more, so nothing of
// it has happened. With pgx, also below database/sql, errors.As finds the *pgconn.PgError in the
// error, by which a serialization failure is recognized.
//
// The store raises synchronous_commit in the transaction where that is less than the store's class
// needs. Other settings that it changes have the caller's values again after each call.
type Tx struct {
	send func(ctx context.Context, x *step) error
}

// Pgx is for transactions of pgx: a pgx.Tx, also one of a pool. A pool itself or a connection is
// not accepted, because the message would be there although the order is rolled back.
func Pgx(tx interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	Rollback(ctx context.Context) error
},
) Tx {
	return Tx{func(ctx context.Context, x *step) error { return x.send(ctx, tx) }}
}

// SQL is for transactions of database/sql, with any driver for PostgreSQL: a *sql.Tx, or a
// *sql.Conn in which one was begun. With what is no transaction, such as a *sql.DB, something
// around one, or a *sql.Conn without BEGIN, each call with an item that is not malformed returns
// ErrInvalid, and no call changes anything.
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

// sqlArgument writes lists as the text of PostgreSQL's arrays, because each driver of database/sql
// treats lists in its own way.
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
	case []*string: // keys, and reasons of death, which are words
		return array(list, func(s *string) string {
			if s == nil {
				return "NULL"
			}
			return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(*s) + `"`
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

// PushTx is Queue.Push in a transaction of the caller's: the message exists if the transaction
// commits. Waiting claims see the message within a second of the commit, or at its due time if that
// is later. A message that was refused is an error, too; unless the server has refused a statement,
// the transaction is whole. An ID that is in use is answered as Queue.Push does, by the result's
// Status.
//
// Until the transaction ends, another push of the ID waits for it, a second at most, and then gets
// ErrOverloaded. A push of the ID in another transaction of a caller's waits as long as that
// transaction's lock_timeout allows. The deletion of the topic waits, too. At repeatable read and
// serializable a topic that was made or deleted, or an ID that was stored or changed, since the
// transaction's snapshot is a serialization failure.
func (s *Store) PushTx(ctx context.Context, tx Tx, m punctual.NewMessage) (punctual.PushResult, error) {
	rs, err := s.pushTx(ctx, tx, []punctual.NewMessage{m})
	if err != nil {
		return punctual.PushResult{ID: m.ID, Topic: m.Topic, Err: err}, err
	}
	if rs[0].Err != nil {
		return rs[0], fmt.Errorf("push: %w", rs[0].Err)
	}
	return rs[0], nil
}

// PushManyTx is PushTx for many messages, with a result for each, in order. A message that is
// refused has its PushResult.Err set and does not stop the others, which exist if the caller
// commits all the same.
//
// The error is nil only if every message succeeded. Otherwise it wraps a *punctual.BatchError that
// says how many did not, or it is what has failed for the call as a whole; then there are no
// results.
func (s *Store) PushManyTx(ctx context.Context, tx Tx, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	rs, err := s.pushTx(ctx, tx, ms)
	if err != nil {
		return nil, err
	}
	errs := make([]error, len(rs))
	for i := range rs {
		errs[i] = rs[i].Err
	}
	if err := punctual.NewBatchError("push", errs); err != nil {
		return rs, fmt.Errorf("push: %w", err)
	}
	return rs, nil
}

func (s *Store) pushTx(ctx context.Context, tx Tx, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	return call(ctx, s, "push", "", storekit.CheckBatch(len(ms)), func() ([]punctual.PushResult, error) {
		if err := s.given.refusal(); err != nil {
			return nil, err
		}
		p := newPushing(s, ms)
		return p.out, inCallers(ctx, s, tx, func(w *callersTransaction) error {
			p.prove = func(ctx context.Context, l *locked, names []messageName) error {
				return w.proveAbsent(ctx, l, names)
			}
			for _, part := range p.parts() {
				err := w.write(ctx, func() *step {
					return p.share(part).add("topics_keep", []any{p.topics(part)}, nil)
				})
				if err == nil {
					_, err = p.push(ctx, w, part)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// AmendManyTx cancels, reschedules, requeues or deletes many messages in a transaction of the
// caller's, as Store.Amend does, with a result for each, in order. An amendment that is refused has
// its Amended.Err set and does not stop the others. Until the transaction ends, claims pass by the
// messages.
//
// The error is as that of PushManyTx. At repeatable read and serializable a message that was stored
// or changed since the transaction's snapshot is a serialization failure, never "not found". An ID
// that is not found at these levels stays so until the transaction ends: a push of it waits, as
// after PushTx.
func (s *Store) AmendManyTx(ctx context.Context, tx Tx, as []punctual.Amendment) ([]punctual.Amended, error) {
	out, err := s.amendTx(ctx, tx, as)
	if err != nil {
		return nil, err
	}
	errs := make([]error, len(out))
	for i := range out {
		errs[i] = out[i].Err
	}
	if err := punctual.NewBatchError("amend", errs); err != nil {
		return out, fmt.Errorf("amend: %w", err)
	}
	return out, nil
}

func (s *Store) amendTx(ctx context.Context, tx Tx, as []punctual.Amendment) ([]punctual.Amended, error) {
	return call(ctx, s, "amend", "", storekit.CheckBatch(len(as)), func() ([]punctual.Amended, error) {
		c := newAmending(s, as)
		c.within = true
		return c.out, inCallers(ctx, s, tx, func(w *callersTransaction) error {
			for _, part := range c.parts() {
				if err := c.amendWithin(ctx, w, part); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// amendWithin amends a part in the caller's transaction.
func (c *amending) amendWithin(ctx context.Context, w *callersTransaction, part []int) error {
	s := c.s
	topics := distinct(part, func(i int) string { return c.as[i].Topic })
	x := s.db.step().add("topics_hold", []any{s.db.class, topics}, nil).add("topics_keep", []any{topics}, nil)
	l, err := s.db.lockNames(ctx, w, x, part, c.name)
	if err != nil {
		return err
	}
	if err := w.proveAbsent(ctx, l, namesOfAll(part, c.name)); err != nil {
		return err
	}
	return w.change(ctx, c.amend(l, part))
}

// proveAbsent has the server refuse a transaction that has one snapshot for all its statements,
// with a serialization failure, when a message that the snapshot does not show was stored since. A
// statement that reads sees the snapshot alone; one that stores a row sees all that has the ID.
func (w *callersTransaction) proveAbsent(ctx context.Context, l *locked, names []messageName) error {
	if !w.strict {
		return nil
	}
	var topics, ids, unknown []string
	for _, n := range names {
		if l.rows[n] != nil {
			continue
		}
		topics, ids = append(topics, n.topic), append(ids, n.id)
		if l.settings[n.topic] == nil {
			unknown = append(unknown, n.topic)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(unknown)
	unknown = slices.Compact(unknown)
	x := w.s.db.addCreate(w.s.db.step(), unknown, nil) // without the topics that they are companions of, since they go again
	return w.send(ctx, x.
		add("absent", []any{topics, ids}, nil).
		add("absent_back", []any{topics, ids}, nil).
		add("topics_absent_back", []any{unknown}, nil))
}

// namesOfAll returns the names of the items of a part.
func namesOfAll(part []int, nameOf func(i int) messageName) (all []messageName) {
	for _, i := range part {
		all = append(all, nameOf(i))
	}
	return all
}

// CancelTx cancels one message in a transaction of the caller's, as Queue.Cancel does. The error is
// nil when the message was cancelled, ErrLeased when somebody works on it, and ErrNotFound when it
// is not there. None of these errors aborts the transaction. What AmendManyTx says of isolation
// levels holds here, too.
func (s *Store) CancelTx(ctx context.Context, tx Tx, topic, id string) error {
	out, err := s.amendTx(ctx, tx, []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: topic, ID: id}})
	if err != nil {
		return err
	}
	return out[0].Err
}

// RescheduleTx moves the due time of one message in a transaction of the caller's. a names the
// message, and has the new time as its Due or Delay. The error is as that of CancelTx, or
// ErrChanged or ErrInvalid.
func (s *Store) RescheduleTx(ctx context.Context, tx Tx, a punctual.Amendment) (punctual.Amended, error) {
	a.Change = punctual.ChangeReschedule
	out, err := s.amendTx(ctx, tx, []punctual.Amendment{a})
	if err != nil {
		return punctual.Amended{}, err
	}
	return out[0], out[0].Err
}

// callersTransaction runs the steps of a call in a transaction of the caller's. Its statements have
// the plans that they have in the store's own transactions (plan_within.sql), and the caller's
// settings are given back after them (plan_back.sql).
type callersTransaction struct {
	s  *Store
	tx Tx

	names, was []string // the settings that are changed, and the caller's values; none before the first step
	changed    bool     // the settings are changed, and not given back yet
	strict     bool     // the transaction has one snapshot for all its statements, because it is not read committed
}

// inCallers runs f in a caller's transaction, and then gives the settings back that plan_within.sql
// has changed.
func inCallers(ctx context.Context, s *Store, tx Tx, f func(w *callersTransaction) error) error {
	w := &callersTransaction{s: s, tx: tx}
	err := f(w)
	if !w.changed || len(w.names) == 0 || serverError(err) != nil || errors.Is(err, punctual.ErrUnreachable) {
		return err // an aborted transaction gives them back by its end, and one whose connection broke has ended
	}
	// ctx may have ended between two statements. Then the transaction is whole, and the caller may
	// go on with it.
	ctx, end := outliving(ctx)
	defer end()
	giving := w.do(ctx, w.givingBack(s.db.step()))
	if err == nil || giving == nil {
		return errors.Join(err, giving)
	}
	return fmt.Errorf("%w (roll the transaction back, whose settings are not given back: %v)", err, giving)
}

// givingBack adds the statement that gives the settings back to a step.
func (w *callersTransaction) givingBack(x *step) *step {
	return x.add("plan_back", []any{w.names, w.was}, nil)
}

func (w *callersTransaction) write(ctx context.Context, build func() *step) error {
	return w.send(ctx, build())
}

// createTime is how long the caller's transaction waits at most for a topic that is made on another
// connection. A busy server takes a second or more to open a connection.
const createTime = 5 * time.Second

// create makes topics on another connection of the store, where they are committed at once, because
// a topic that the caller's transaction makes keeps all others who push to it waiting until that
// transaction ends. create makes them in the caller's transaction where that fails, for instance
// because the server gives no other connection in time, or where the transaction's snapshot would
// not show what others make.
func (w *callersTransaction) create(ctx context.Context, build func() *step) error {
	if w.strict || w.createAside(ctx, build) != nil {
		return w.write(ctx, build)
	}
	return nil
}

// createAside makes topics on another connection. What it waits for may itself wait for the
// caller's transaction, and the server cannot see this circle, because the caller's transaction
// waits here and not in the server. So the wait is bounded, also for the sake of those who need a
// connection of the reserve.
func (w *callersTransaction) createAside(ctx context.Context, build func() *step) error {
	wait := createTime
	if until, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(until)/2) // the rest is for the caller's transaction
	}
	brief, end := context.WithTimeout(ctx, wait)
	defer end()
	return w.s.db.sendAlone(brief, build().prepend("lock_wait", []any{lockTimeoutOf(heldAlone)}, nil).own("plan"))
}

// change writes changes and their events.
func (w *callersTransaction) change(ctx context.Context, c *changes) error {
	if x := c.step(); x.Len() > 0 {
		if err := w.send(ctx, x); err != nil {
			return err
		}
	}
	return w.tell(ctx, w, c)
}

func (w *callersTransaction) transact(ctx context.Context, f func(ctx context.Context, to stepper) error) error {
	return f(ctx, w)
}

// send sends a step. The first step also changes the caller's settings and returns what they were,
// so that each later step can change them and give them back by itself.
func (w *callersTransaction) send(ctx context.Context, x *step) error {
	known := len(w.names) > 0
	if known {
		w.givingBack(x)
	}
	if !w.changed {
		var which string // the transaction
		x.prepend("within", nil, func(rows scanner) error {
			var is, level string
			if err := rows.Scan(&is, &level); err != nil {
				return err
			}
			w.strict = level != "read committed" && level != "read uncommitted"
			if is != which {
				return fmt.Errorf("each statement is a transaction of its own: begin one and pass that: %w", punctual.ErrInvalid)
			}
			return nil
		})
		x.prepend("plan_within", nil, func(rows scanner) error {
			var name, was, now string
			err := rows.Scan(&name, &was, &now, &which)
			if !known && err == nil {
				w.names, w.was = append(w.names, name), append(w.was, was)
			}
			return err
		})
	}
	w.changed = true // also when this fails, because it is not known behind which statement
	err := w.do(ctx, x)
	w.changed = err != nil || !known
	return err
}

// do sends statements. They commit nothing, and a transaction whose connection broke cannot commit
// any more, so no error of theirs is ErrIndeterminate.
func (w *callersTransaction) do(ctx context.Context, x *step) error {
	err := w.tx.send(ctx, x)
	if err == nil {
		return nil
	}
	if errors.Is(err, pgx.ErrTxClosed) || errors.Is(err, sql.ErrTxDone) {
		return fmt.Errorf("the transaction has ended: begin one and pass that: %w (%w)", punctual.ErrInvalid, err)
	}
	remedy, kind := meaning(err, punctual.ErrUnreachable)
	if remedy == "" {
		return fmt.Errorf("in the caller's transaction: %w", err)
	}
	if serverError(err) == nil {
		remedy = "the connection of the caller's transaction broke, so nothing of it can be committed: run it again"
	}
	return fmt.Errorf("%s: %w (%w)", remedy, kind, err)
}
