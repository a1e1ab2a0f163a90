package pgstore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
)

// P14: the server's lock table has some thousand places for all its clients. A transaction of a caller's takes a bounded number of them,
// however many topics it has.
func TestLocksOfManyTopics(t *testing.T) {
	t.Parallel()
	const most = 1024
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true})
	tx, err := s.pool.Begin(t.Context())
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

// P14: a deletion that waits for a caller's transaction holds up no push to its topic for long, nor to a topic that shares its lock. The
// deletion takes effect when the transaction is over.
func TestPushBesideADeletionThatWaits(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true})
	makeTopic(t, s, "orders") // because a transaction that had made the topic would hold up all pushes to it
	var sharing string
	const find = "SELECT 't' || n FROM generate_series(1, 1000000) AS n WHERE hashtext('t' || n) & 1023 = hashtext('orders') & 1023 LIMIT 1" // as topics_share.sql has it
	if err := s.pool.QueryRow(t.Context(), find).Scan(&sharing); err != nil {
		t.Fatal(err)
	}
	makeTopic(t, s, sharing)
	tx, err := s.pool.Begin(t.Context())
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

// P13: a deletion whose time is over while it waits says what it has waited for, and has changed nothing.
func TestDeletionGivesUp(t *testing.T) {
	t.Parallel()
	s := openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, NoListen: true, OwnPool: true})
	makeTopic(t, s, "orders")
	tx, err := s.pool.Begin(t.Context())
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
