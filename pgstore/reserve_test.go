package pgstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/punctualmq/punctual"
	pgrig "github.com/punctualmq/punctual/internal/rigs/postgres"
	"github.com/punctualmq/punctual/worker"
)

// poolOf returns a pool of so many connections.
func poolOf(t *testing.T, server *pgrig.Server, conns int32) *pgxpool.Pool {
	t.Helper()
	c, err := pgxpool.ParseConfig(server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	c.MaxConns = conns
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

// holdAll takes all connections of the store's pool until the test ends, each with an open
// transaction, and shows that none is left.
func holdAll(t *testing.T, s *Store) {
	t.Helper()
	for s.db.pool.Stat().AcquiredConns() < s.db.pool.Stat().MaxConns() {
		tx, err := s.db.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	}
	ctx, end := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer end()
	if _, err := s.db.pool.Begin(ctx); err == nil {
		t.Fatal("this test shows nothing: the pool has a connection left")
	}
}

// P10, P14: handlers hold all connections of the pool. Leases are renewed all the same, and
// messages are acked, claimed and pushed.
func TestPoolHeldByHandlers(t *testing.T) {
	t.Parallel()
	s := openStore(t, poolOf(t, shared, 2), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true})
	pushOrders(t, s, 4, 0)
	held := claimN(t, s, 2)
	holdAll(t, s)
	ctx, end := context.WithTimeout(t.Context(), callTime/2)
	defer end()
	for _, x := range []punctual.Settlement{{Verb: punctual.SettleExtend, Delay: time.Hour}, {Verb: punctual.SettleAck}} {
		for _, d := range held {
			x.Topic, x.ID, x.Token = d.Topic, d.ID, d.Token
			errs, err := s.Settle(ctx, []punctual.Settlement{x})
			if err != nil || errs[0] != nil {
				t.Errorf("P14: %v while handlers hold the pool: %v, %v", x.Verb, errs, err)
			}
		}
	}
	if ds, err := s.Claim(ctx, punctual.Claim{Topics: []string{"orders"}, Max: 10}); err != nil || len(ds) != 2 {
		t.Errorf("P14: a claim while handlers hold the pool: %v, %v; want both messages", ds, err)
	}
	if _, err := s.Push(ctx, []punctual.NewMessage{message("more")}); err != nil {
		t.Errorf("P14: a push while handlers hold the pool: %v", err)
	}
}

// What works without an open store, and an Open that fails, closes the connections that it has made
// beside a full pool.
func TestReserveEndsWithoutAStore(t *testing.T) {
	t.Parallel()
	there := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true})
	for name, call := range map[string]func(pool *pgxpool.Pool) error{
		"Examine": func(pool *pgxpool.Pool) error {
			_, err := Examine(t.Context(), pool, &Options{Schema: there.opt.Schema})
			return err
		},
		"Migrate": func(pool *pgxpool.Pool) error { return Migrate(t.Context(), pool, &Options{Schema: there.opt.Schema}) },
		"MigrationStatus": func(pool *pgxpool.Pool) error {
			_, err := MigrationStatus(t.Context(), pool, &Options{Schema: there.opt.Schema})
			return err
		},
		"Open": func(pool *pgxpool.Pool) error {
			_, err := Open(t.Context(), pool, &Options{Schema: fresh()})
			if !errors.Is(err, punctual.ErrNotFound) {
				return fmt.Errorf("this test shows nothing: Open where there is no store: %w", err)
			}
			return nil
		},
	} {
		c, err := pgxpool.ParseConfig(shared.URL("postgres"))
		if err != nil {
			t.Fatal(err)
		}
		c.MaxConns = 1
		var opened, closed atomic.Int64 // connections of the pool and of the reserve, which has the pool's configuration
		c.AfterConnect = func(context.Context, *pgx.Conn) error { opened.Add(1); return nil }
		c.BeforeClose = func(*pgx.Conn) { closed.Add(1) }
		pool, err := pgxpool.NewWithConfig(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		held, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := call(pool); err != nil {
			t.Errorf("%s beside a full pool: %v", name, err)
		}
		beside := opened.Load() - 1 // the other one is held
		if beside == 0 {
			t.Fatalf("this test shows nothing: %s has needed no connection beside the pool", name)
		}
		if n := closed.Load(); n != beside {
			t.Errorf("%s has made %d connections beside the pool, and closed %d", name, beside, n)
		}
		held.Release()
		pool.Close()
	}
}

// P3, P6: there are more handlers than the pool has connections, and each needs a transaction for
// longer than its lease. All finish in their first attempt.
func TestSlowHandlersWithTransactions(t *testing.T) {
	t.Parallel()
	const handlers, conns = 4, 2
	pool := poolOf(t, shared, conns)
	s := openStore(t, pool, &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true})
	pushOrders(t, s, handlers, 0)
	w := worker.New(s, &worker.Config{Concurrency: handlers, Lease: 2 * time.Second})
	done := make(chan int, 10*handlers)
	w.Handle("orders", punctual.HandlerFunc(func(ctx context.Context, d *punctual.Delivery) error {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(context.Background()) }()
		if _, err := tx.Exec(ctx, "SELECT pg_sleep(2.5)"); err != nil {
			return fmt.Errorf("attempt %d: %w", d.Attempt, err)
		}
		done <- d.Attempt
		return nil
	}))
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(func() {
		if err := w.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	for n := range handlers {
		select {
		case attempt := <-done:
			if attempt != 1 {
				t.Fatalf("P6: a handler finishes in attempt %d; want the first", attempt)
			}
		case <-time.After(callTime):
			t.Fatalf("P3: only %d of %d handlers finish", n, handlers)
		}
	}
	stop()
	if s.db.reserve.times() == 0 {
		t.Error("this test shows nothing: the pool was never full")
	}
	if st, err := s.Stats(t.Context(), "orders"); err != nil || st.Ready+st.Leased+st.Scheduled+st.Dead > 0 {
		t.Errorf("what is left: %+v, %v; want nothing", st, err)
	}
}
