package pgstore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/punctualmq/punctual"
	pgrig "github.com/punctualmq/punctual/internal/rigs/postgres"
)

// stricter are the isolation levels above that of the store's own transactions, which are read
// committed.
var stricter = []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable}

// newPoolAt returns a pool whose sessions have an isolation level as their default, as a role or a
// database may give it to them. The test fails when a transaction of several statements begins
// there that does not say its own level.
func newPoolAt(t testing.TB, s *pgrig.Server, level pgx.TxIsoLevel) *pgxpool.Pool {
	t.Helper()
	c, err := pgxpool.ParseConfig(s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	c.ConnConfig.RuntimeParams["default_transaction_isolation"] = string(level)
	c.ConnConfig.Tracer = levelTracer{t}
	pool, err := pgxpool.NewWithConfig(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

// levelTracer fails the test when a transaction begins without its isolation level.
type levelTracer struct{ t testing.TB }

func (l levelTracer) TraceBatchStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	if conn.PgConn().TxStatus() == 'I' && !saysLevel(data.Batch.QueuedQueries[0].SQL) {
		l.t.Errorf("P1: a transaction that does not say its isolation level begins with %s", data.Batch.QueuedQueries[0].SQL)
	}
	return ctx
}

func (levelTracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (levelTracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// TraceQueryStart sees the statements that are sent alone. A statement that is all of its
// transaction waits for nobody, so the level does not matter there.
func (l levelTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.HasPrefix(strings.ToLower(data.SQL), "begin") && !saysLevel(data.SQL) {
		l.t.Errorf("P1: a transaction that does not say its isolation level begins with %s", data.SQL)
	}
	return ctx
}

func (levelTracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func saysLevel(statement string) bool {
	statement = strings.ToLower(statement)
	return strings.HasPrefix(statement, "set transaction_isolation to 'read committed'") || strings.HasPrefix(statement, "begin isolation level read committed")
}

// P1: a push waits for the deletion of its topic, and then makes the topic anew, whatever level the
// sessions have by default. With a snapshot from before the deletion the message would be stored
// under the old number of the topic, and swept.
func TestPushBehindDeletionAtEachLevel(t *testing.T) {
	t.Parallel()
	for _, level := range stricter {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			s := openStore(t, newPoolAt(t, shared, level), &Options{Schema: fresh(), Migrate: true, OwnPool: true})
			pushOrders(t, s, 1, time.Hour)
			tx, err := s.db.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.Background()) }()
			var pid int
			if err := tx.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), s.db.sql.text("topic_close"), s.db.class, "orders"); err != nil {
				t.Fatal(err)
			}
			var d droppedTopic
			if err := tx.QueryRow(t.Context(), s.db.sql.text("topic_drop"), s.db.writing("orders")...).Scan(&d.at, &d.number, &d.retention); err != nil {
				t.Fatalf("the topic was not deleted: %v", err)
			}
			pushed := make(chan error, 1)
			go func() {
				rs, err := s.Push(context.Background(), []punctual.NewMessage{{Topic: "orders", ID: "behind"}})
				if err == nil {
					err = rs[0].Err
				}
				pushed <- err
			}()
			awaitBlocked(t, s, pid)
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-pushed; err != nil {
				t.Fatal(err)
			}
			if n, err := s.remover.sweepTopic(t.Context(), d, nil); err != nil || n != 1 {
				t.Fatalf("%d messages went with the topic, %v; want 1", n, err)
			}
			if ds := claimOrders(t, s, 10*time.Second); len(ds) != 1 || ds[0].ID != "behind" {
				t.Errorf("P1: behind the deletion a claim found %v; want the message whose push succeeded", ds)
			}
			// The sessions are the caller's, and keep their default.
			var now string
			if err := s.db.pool.QueryRow(t.Context(), "SHOW transaction_isolation").Scan(&now); err != nil || now != string(level) {
				t.Errorf("a transaction of the caller's in a session of the pool is %s, %v; want %s", now, err, level)
			}
		})
	}
}

// P5: in a transaction of the caller's whose snapshot is older than a change of the message, an
// amendment is refused with a serialization failure. "Not found" is said of what is not there, and
// stays true until the transaction ends.
func TestAmendBehindTheSnapshot(t *testing.T) {
	t.Parallel()
	one := func(rs []punctual.PushResult, err error) error {
		if err != nil {
			return err
		}
		return rs[0].Err
	}
	later := func(topic, id string, how punctual.IfExists) punctual.NewMessage {
		return punctual.NewMessage{Topic: topic, ID: id, Delay: time.Hour, IfExists: how}
	}
	since := map[string]func(ctx context.Context, s *Store) error{
		"pushed": func(ctx context.Context, s *Store) error {
			return one(s.Push(ctx, []punctual.NewMessage{later("orders", "new", 0)}))
		},
		"pushed to a new topic": func(ctx context.Context, s *Store) error {
			return one(s.Push(ctx, []punctual.NewMessage{later("new", "new", 0)}))
		},
		"replaced": func(ctx context.Context, s *Store) error {
			return one(s.Push(ctx, []punctual.NewMessage{later("orders", "old", punctual.IfExistsReplace)}))
		},
		"cancelled": func(ctx context.Context, s *Store) error {
			_, err := s.Amend(ctx, []punctual.Amendment{{Change: punctual.ChangeCancel, Topic: "orders", ID: "old"}})
			return err
		},
		"pushed to a topic made anew": func(ctx context.Context, s *Store) error {
			if _, err := s.DeleteTopic(ctx, "orders"); err != nil {
				return err
			}
			return one(s.Push(ctx, []punctual.NewMessage{later("orders", "old", 0)}))
		},
		"deleted with its topic": func(ctx context.Context, s *Store) error {
			_, err := s.DeleteTopic(ctx, "orders")
			return err
		},
	}
	ids := map[string][2]string{"pushed": {"orders", "new"}, "pushed to a new topic": {"new", "new"}}
	for _, level := range stricter {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true})
			for what, change := range since {
				for _, c := range []punctual.Change{punctual.ChangeCancel, punctual.ChangeReschedule, punctual.ChangeRequeue} {
					tx := behindSnapshot(t, s, level, change, later("orders", "old", punctual.IfExistsReplace))
					name, ok := ids[what]
					if !ok {
						name = [2]string{"orders", "old"}
					}
					a := punctual.Amendment{Change: c, Topic: name[0], ID: name[1]}
					if c != punctual.ChangeCancel {
						a.Delay = time.Hour
					}
					_, err := s.AmendManyTx(t.Context(), Pgx(tx), []punctual.Amendment{a})
					var refused *pgconn.PgError
					if !errors.As(err, &refused) || refused.Code != codeSerialization || !punctual.Definite(err) {
						t.Errorf("P5: %s of a message that was %s since the snapshot: %v; want a serialization failure, definite", c, what, err)
					}
					if err := tx.Rollback(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
			nobody := func(context.Context, *Store) error { return nil }
			tx := behindSnapshot(t, s, level, nobody, later("orders", "old", punctual.IfExistsReplace))
			for _, name := range [][2]string{{"orders", "nobody"}, {"nowhere", "nobody"}} {
				for range 2 {
					if err := s.CancelTx(t.Context(), Pgx(tx), name[0], name[1]); !errors.Is(err, punctual.ErrNotFound) {
						t.Errorf("P5: CancelTx of what is not there: %v; want not found", err)
					}
				}
			}
			if err := s.CancelTx(t.Context(), Pgx(tx), "orders", "old"); err != nil {
				t.Errorf("CancelTx of what the snapshot shows: %v", err)
			}
			var pid int
			if err := tx.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
				t.Fatal(err)
			}
			pushed := make(chan error, 1)
			go func() {
				pushed <- one(s.Push(context.Background(), []punctual.NewMessage{later("orders", "nobody", punctual.IfExistsFail)}))
			}()
			awaitBlocked(t, s, pid) // the push waits, so "not found" stays true until the transaction ends
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-pushed; err != nil {
				t.Errorf("push of an ID that was not found in a transaction: %v", err)
			}
			if st, err := s.Topics(t.Context()); err != nil || len(st) != 1 {
				t.Errorf("topics behind it: %+v, %v; want orders alone", st, err)
			}
			if r, err := s.Check(t.Context(), nil); err != nil || len(r.Problems) > 0 || r.Live != 1 {
				t.Errorf("Check behind it: %+v, %v; want the message that was pushed", r, err)
			}
		})
	}
}

// behindSnapshot pushes the message before, begins a transaction that takes its snapshot, and then
// calls change, by which others change something that the snapshot does not show. It deletes the
// topics orders and new first, in case an earlier case has made them.
func behindSnapshot(t *testing.T, s *Store, level pgx.TxIsoLevel, change func(context.Context, *Store) error, before punctual.NewMessage) pgx.Tx {
	t.Helper()
	for _, topic := range []string{"orders", "new"} {
		if _, err := s.DeleteTopic(t.Context(), topic); err != nil && !errors.Is(err, punctual.ErrNotFound) {
			t.Fatal(err)
		}
	}
	if _, err := s.Push(t.Context(), []punctual.NewMessage{before}); err != nil {
		t.Fatal(err)
	}
	tx, err := s.db.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	if _, err := tx.Exec(t.Context(), "SELECT 1"); err != nil {
		t.Fatal(err)
	}
	if err := change(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	return tx
}
