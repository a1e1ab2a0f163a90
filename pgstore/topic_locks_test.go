package pgstore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/punctualmq/punctual"
)

// P14: the server's lock table has some thousand places for all its clients. A transaction of a
// caller's takes a bounded number of them, however many topics it has.
func TestLocksOfManyTopics(t *testing.T) {
	t.Parallel()
	const most = 1024
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true})
	tx, err := s.db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	var ms []punctual.NewMessage
	for n := range 3 * most {
		m := laterMessage("a")
		m.Topic = fmt.Sprint("topic", n)
		ms = append(ms, m)
	}
	pushTx(t, s, Pgx(tx), ms...)
	var locks int
	const count = "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'"
	if err := tx.QueryRow(t.Context(), count).Scan(&locks); err != nil {
		t.Fatal(err)
	}
	if locks == 0 || locks > most {
		t.Errorf("P14: a transaction that has pushed to %d topics has %d advisory locks; want 1 to %d", len(ms), locks, most)
	}
}

// P14: a deletion that waits for a caller's transaction holds up no push to its topic for long, nor
// to a topic that shares its lock. The deletion takes effect when the transaction is over.
func TestPushBesideADeletionThatWaits(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true})
	makeTopic(t, s, "orders") // because a transaction that had made the topic would hold up all pushes to it
	var sharing string
	const find = "SELECT 't' || n FROM generate_series(1, 1000000) AS n WHERE hashtext('t' || n) & 1023 = hashtext('orders') & 1023 LIMIT 1" // as topics_share.sql has it
	if err := s.db.pool.QueryRow(t.Context(), find).Scan(&sharing); err != nil {
		t.Fatal(err)
	}
	makeTopic(t, s, sharing)
	tx, err := s.db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	pushTx(t, s, Pgx(tx), laterMessage("open"))
	var pid int
	if err := tx.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	deleted := make(chan error, 1)
	go func() {
		n, err := s.DeleteTopic(context.Background(), "orders")
		if err == nil && n != 6 {
			err = fmt.Errorf("%d messages were deleted; want 6", n)
		}
		deleted <- err
	}()
	awaitBlocked(t, s, pid)
	for n := range 5 {
		for _, topic := range []string{"orders", sharing} {
			m := laterMessage(fmt.Sprint(n))
			m.Topic = topic
			rs, err := s.Push(t.Context(), []punctual.NewMessage{m})
			if err != nil || rs[0].Err != nil {
				t.Errorf("P14: push to %s beside a deletion that waits: %+v, %v", topic, rs, err)
				logSessions(t, s)
				return
			}
		}
		if len(deleted) > 0 {
			t.Fatalf("P1: the topic was deleted beside a push that had not committed: %v", <-deleted)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-deleted; err != nil {
		t.Error(err)
	}
}

// P13: a deletion whose time is over while it waits says what it has waited for, and has changed
// nothing.
func TestDeletionGivesUp(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true})
	makeTopic(t, s, "orders")
	tx, err := s.db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	pushTx(t, s, Pgx(tx), laterMessage("open"))
	ctx, end := context.WithTimeout(t.Context(), time.Second)
	defer end()
	_, err = s.DeleteTopic(ctx, "orders")
	wantDefinite(t, "deletion of a topic with an open push", err, punctual.ErrOverloaded)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v; want one that wraps the error of the context", err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), "orders", "open"); err != nil {
		t.Errorf("the message behind the deletion that gave up: %v", err)
	}
}

// P14: a change of settings does not wait for a caller's transaction that has pushed to the topic
// and stays open, at any isolation level.
func TestConfigureBesideAnOpenPush(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true})
			makeTopic(t, s, "orders")
			tx, err := s.db.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.Background()) }()
			pushTx(t, s, Pgx(tx), laterMessage("open"))
			ctx, end := context.WithTimeout(t.Context(), callTime/2)
			defer end()
			attempts := 7
			if _, err := s.Configure(ctx, "orders", punctual.SettingsPatch{MaxAttempts: &attempts}); err != nil {
				t.Errorf("P14: a change of settings beside an open push: %v", err)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if set, err := s.Settings(t.Context(), "orders"); err != nil || set.MaxAttempts != attempts {
				t.Errorf("the settings are %+v, %v", set, err)
			}
		})
	}
}

// P14: pushes to a topic wait while it is deleted, and that takes no longer for more messages,
// because they are counted afterwards.
func TestDeletionCountsOutsideItsLock(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true})
	makeTopic(t, s, "few")
	pushOrders(t, s, 2000, time.Hour)
	conn, err := s.db.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	read := func(topic string) int64 {
		t.Helper()
		run(t, conn.Conn(), "BEGIN; "+s.db.sql.text("plan"))
		defer run(t, conn.Conn(), "ROLLBACK")
		return pagesOf(t, conn.Conn(), s.db.sql.text("topic_drop"), "'{0,0}', NULL, 'local', '"+topic+"'")
	}
	read("few") // fills the caches of the session
	if few, many := read("few"), read("orders"); many > few+4 {
		t.Errorf("P14: under its lock the deletion of a topic with 2,000 messages reads %d pages, and that of one with none %d; want as many", many, few)
	}
	if n, err := s.DeleteTopic(t.Context(), "orders"); err != nil || n != 2000 {
		t.Errorf("%d messages were deleted, %v; want 2000", n, err)
	}
}

// The number that DeleteTopic returns is right although other processes sweep, and although a
// transaction holds one of the messages.
func TestDeletionCountsBesideSweeps(t *testing.T) {
	t.Parallel()
	schema := fresh()
	s := openStore(t, newPool(t, shared), &Options{Schema: schema, Migrate: true, NoListen: true, OwnPool: true})
	other := openStore(t, newPool(t, shared), &Options{Schema: schema, NoListen: true, OwnPool: true, checkEvery: time.Hour})
	const all = 3 * sweepItems
	pushOrders(t, s, sweepItems, time.Hour)
	more := make([]punctual.NewMessage, all-sweepItems)
	for i := range more {
		more[i] = punctual.NewMessage{Topic: "orders", Delay: time.Hour}
	}
	if _, err := s.Push(t.Context(), more); err != nil {
		t.Fatal(err)
	}
	tx, err := s.db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), inSchema("SELECT FROM punctual.message WHERE id = '7' FOR UPDATE", schema)); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	swept := make(chan int, 1)
	go func() {
		met := 0 // sweeps that have met the deleted topic
		for ctx.Err() == nil {
			numbers, err := other.remover.numbers(ctx, "topics_dropped", nil)
			if err == nil && len(numbers) > 0 {
				err = other.remover.sweep(ctx)
				met++
			}
			if err != nil && ctx.Err() == nil {
				t.Error(err)
				break
			}
		}
		swept <- met
	}()
	n, err := s.DeleteTopic(t.Context(), "orders")
	end()
	if met := <-swept; met == 0 {
		t.Fatal("this test shows nothing: nobody has swept meanwhile")
	}
	if err != nil || n != all {
		t.Errorf("%d messages were deleted, %v; want %d", n, err, all)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := other.remover.sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	var left int
	if err := s.db.pool.QueryRow(t.Context(), inSchema("SELECT (SELECT count(*) FROM punctual.message) + (SELECT count(*) FROM punctual.dropped_topic)", schema)).Scan(&left); err != nil || left > 0 {
		t.Errorf("%d rows are left, %v", left, err)
	}
}

// A sweep that takes long does not stop the checks of the server and of the clock.
func TestChecksBesideALongSweep(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true, checkEvery: 10 * time.Millisecond})
	makeTopic(t, s, "orders")
	retention := time.Hour
	if _, err := s.Configure(t.Context(), "orders", punctual.SettingsPatch{DeadRetention: &retention}); err != nil {
		t.Fatal(err)
	}
	tx, err := s.db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	var pid int
	if _, err := tx.Exec(t.Context(), inSchema("LOCK TABLE punctual.dropped_topic IN ACCESS EXCLUSIVE MODE", s.opt.Schema)); err != nil {
		t.Fatal(err)
	}
	if err := tx.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	awaitBlocked(t, s, pid) // a sweep reads which topics were deleted
	clock := func() (micros int64) {
		t.Helper()
		if err := s.db.pool.QueryRow(t.Context(), inSchema("SELECT clock FROM punctual.store", s.opt.Schema)).Scan(&micros); err != nil {
			t.Fatal(err)
		}
		return micros
	}
	before := clock()
	for limit := time.Now().Add(callTime / 2); clock() < before+2*time.Second.Microseconds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("the clock is not written down while a sweep waits")
		}
	}
}
