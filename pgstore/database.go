package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// How statements reach the server: one transaction in one message, or a transaction of several
// steps. Both are tried again when the server rolled them back because others were in the way.

const (
	// tries bounds how often a transaction is tried that others keep from happening.
	tries = 10
	// callTime bounds a part of a call, and a transaction with its further tries, where the context
	// has no deadline, so that no call hangs on a server that hangs.
	callTime = 30 * time.Second
)

// sender is what takes several statements at once: a pool, a connection or a transaction.
type sender interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// scanner is a row.
type scanner interface{ Scan(dest ...any) error }

// database is the way to the tables: it carries statements to the server, over a connection of the
// pool or of the reserve, and knows the store's clock and epoch, which most statements are given.
type database struct {
	pool    *pgxpool.Pool
	reserve reserve
	sql     statements
	class   int32 // distinguishes the advisory locks of this schema from others
	clock   clock
	needs   string                // what clock.sql raises synchronous_commit to where the session has less
	epoch   atomic.Pointer[epoch] // as readStore has read it last; nil until open has called that
	fail    func(error) error     // stops the store; see explain

	// settings keeps the settings of topics that it has decoded, by their texts, because most
	// topics have the same text.
	settings storekit.SettingsReader
	defaults []any       // the settings of a new topic, as arguments of topic_create.sql; never changed
	acks     knownTopics // those that tell of acks (punctual.EventAcked), where an ack takes a transaction that stores the event
	bounded  knownTopics // those with MaxLeases or MaxRate, where a claim is claim_bounded
	keyed    knownTopics // those with keys, where a claim is turns and claim_keyed
}

// step is one message of statements to the server, with what is to be done with their rows.
type step struct {
	pgx.Batch
	db   *database
	each []func(scanner) error // what each statement's rows are given to, for SQL, which sends the statements one by one
}

func (db *database) step() *step { return &step{db: db} }

// add adds a statement; each is called for each row, if it is not nil.
func (x *step) add(statement string, args []any, each func(scanner) error) *step {
	if each == nil {
		each = func(scanner) error { return nil }
	}
	x.each = append(x.each, each)
	x.Queue(x.db.sql.text(statement), args...).Query(func(rows pgx.Rows) error {
		defer rows.Close()
		for rows.Next() {
			if err := each(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	return x
}

// own makes a step a transaction of the store's own: it puts level.sql in front, and behind that
// the statement plan, which says how the server is to read, unless plan is "".
func (x *step) own(plan string) *step {
	if plan != "" {
		x.prepend(plan, nil, nil)
	}
	return x.prepend("level", nil, nil)
}

// prepend puts a statement in front of those that the step has so far.
func (x *step) prepend(statement string, args []any, each func(scanner) error) *step {
	first := x.db.step().add(statement, args, each)
	x.QueuedQueries = append(first.QueuedQueries, x.QueuedQueries...)
	x.each = append(first.each, x.each...)
	return x
}

// send sends a step and reads its answers.
func (x *step) send(ctx context.Context, to sender) error {
	return to.SendBatch(ctx, &x.Batch).Close()
}

// sendAlone sends a step that is a transaction.
func (db *database) sendAlone(ctx context.Context, x *step) error {
	conn, err := db.acquire(ctx)
	if err != nil {
		return unsent{err}
	}
	defer conn.Release()
	return x.send(ctx, conn)
}

// within returns a context with a deadline: that of ctx, or callTime from now where ctx has none.
func within(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, callTime)
}

// answerGrace is how long some calls, such as claims, still wait for an answer after their context
// has ended.
const answerGrace = time.Second

// outliving returns a context that ends answerGrace after ctx, or after callTime if that is
// earlier.
func outliving(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, end := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(answerGrace, end) })
	return longer, func() { stop(); end() }
}

// write runs a transaction of one step. build makes the step anew for each try.
func (db *database) write(ctx context.Context, build func() *step) error {
	return db.again(ctx, func(ctx context.Context) error { return db.sendAlone(ctx, build().own("plan")) }, punctual.ErrIndeterminate)
}

// read is write for a step that changes nothing, so that a lost answer is ErrUnreachable.
func (db *database) read(ctx context.Context, build func() *step) error {
	return db.again(ctx, func(ctx context.Context) error { return db.sendAlone(ctx, build().own("plan")) }, punctual.ErrUnreachable)
}

// readAll is read for a step that reads all messages, or all of a topic. Because that takes long,
// it waits for a connection of the pool and takes none of the reserve.
func (db *database) readAll(ctx context.Context, build func() *step) error {
	return db.again(ctx, func(ctx context.Context) error {
		return build().own("plan_all").send(ctx, db.pool)
	}, punctual.ErrUnreachable)
}

// transact runs a transaction of several steps. The step that f returns is sent together with the
// commit. f may be called again, after what it did before was rolled back.
func (db *database) transact(ctx context.Context, f func(ctx context.Context, tx *transaction) (last *step, err error)) error {
	return db.again(ctx, func(ctx context.Context) error {
		conn, err := db.acquire(ctx)
		if err != nil {
			return unsent{err}
		}
		tx := &transaction{db: db, conn: conn}
		defer tx.release(ctx)
		last, err := f(ctx, tx)
		if err != nil {
			return uncommitted{err}
		}
		if !tx.begun { // f has sent nothing
			return nil
		}
		if last == nil {
			last = db.step()
		}
		last.Queue("COMMIT")
		return last.send(ctx, conn)
	}, punctual.ErrIndeterminate)
}

// transaction is one under way on a connection.
type transaction struct {
	db    *database
	conn  *pgxpool.Conn
	begun bool
}

// send sends a step, the first one together with BEGIN and plan.sql.
func (t *transaction) send(ctx context.Context, x *step) error {
	if !t.begun {
		t.begun = true
		x.prepend("plan", nil, nil)
		begin := t.db.step()
		begin.Queue("BEGIN ISOLATION LEVEL READ COMMITTED")
		begin.QueuedQueries = append(begin.QueuedQueries, x.QueuedQueries...)
		x = begin
	}
	return x.send(ctx, t.conn)
}

// release rolls back the transaction if it is open, and gives the connection back. Without the
// rollback the pool would close the connection, which the server notices only later, and what is
// tried next could wait for locks of this transaction until then. Where the rollback fails, the
// pool does close the connection.
func (t *transaction) release(ctx context.Context) {
	if c := t.conn.Conn().PgConn(); t.begun && !c.IsClosed() && c.TxStatus() != 'I' {
		ctx, end := context.WithTimeout(context.WithoutCancel(ctx), rollbackTime)
		_, _ = c.Exec(ctx, "ROLLBACK").ReadAll() // a failure shows in the connection's state
		end()
	}
	t.conn.Release()
}

// rollbackTime is how long a rollback may take before its connection is closed instead.
const rollbackTime = time.Second

// unsent marks the error of a step that was not sent, because there was no connection.
type unsent struct{ error }

func (u unsent) Unwrap() error { return u.error }

// uncommitted marks the error of a transaction whose commit was not sent.
type uncommitted struct{ error }

func (u uncommitted) Unwrap() error { return u.error }

// again calls f, and calls it anew while it fails because of what others do (inTheWay), up to tries
// times in all. The error of the last call goes through explain, with unknown.
func (db *database) again(ctx context.Context, f func(context.Context) error, unknown error) error {
	ctx, end := within(ctx)
	defer end()
	for try := 1; ; try++ {
		err := f(ctx)
		if err == nil {
			return nil
		}
		if !inTheWay(err) || try == tries {
			return db.explain(err, unknown)
		}
		if isNoToken(err) {
			if err := db.beginEpoch(ctx); err != nil {
				return db.explain(err, unknown)
			}
		}
		if err := sleep(ctx, rand.N(time.Duration(1<<try)*time.Millisecond)); err != nil {
			return fmt.Errorf("while others were in the way: %w", err)
		}
	}
}

// inTheWay reports whether a transaction was rolled back for a reason that may be gone at the next
// try.
func inTheWay(err error) bool {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		return errors.Is(err, errIDTaken)
	}
	return refused.Code == codeSerialization || refused.Code == codeDeadlock || isNoToken(err)
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
