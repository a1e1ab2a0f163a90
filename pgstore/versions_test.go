package pgstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/punctualmq/punctual"
)

// While a snapshot is held, each replacement leaves a version of the message, and a change of that
// message, such as a claim, reads all of them, because the server checks the key of the new version
// against each. A claim of another message does not pay for that, and it is over when the snapshot
// is.
func TestVersionsOfAReplacedMessage(t *testing.T) {
	t.Parallel()
	const versions = 400
	pool, err := pgxpool.New(t.Context(), shared.Database(t)) // where nobody else holds a snapshot
	if err != nil {
		t.Fatal(err)
	}
	s := openStore(t, pool, &Options{Migrate: true, NoListen: true, OwnPool: true})
	conn, err := s.db.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	at := func(n int) time.Time { return longDue.Add(time.Duration(n) * time.Second) }
	push := func(id string, n int) {
		t.Helper()
		m := message(id)
		m.Due, m.IfExists = at(n), punctual.IfExistsReplace
		if rs, err := s.Push(t.Context(), []punctual.NewMessage{m}); err != nil || rs[0].Err != nil {
			t.Fatalf("push: %+v, %v", rs, err)
		}
	}
	timeline := s.db.epoch.Load().timeline
	claim := func(n int) int64 { // how many pages a claim reads that begins at at(n) and takes the message that is due then
		t.Helper()
		run(t, conn.Conn(), "BEGIN; "+s.db.sql.text("plan"))
		defer run(t, conn.Conn(), "ROLLBACK")
		return pagesOf(t, conn.Conn(), s.db.sql.text("claim"), fmt.Sprintf("'{0,0}', NULL, 'local', 'orders', 1, NULL, %d, 2000, %d, 1, '%s', NULL", claimBytes, at(n).UnixMilli(), timeline))
	}
	push("replaced", 0)
	snapshot, err := s.db.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = snapshot.Rollback(t.Context()) }()
	if _, err := snapshot.Exec(t.Context(), "SELECT FROM pg_class"); err != nil {
		t.Fatal(err)
	}
	for n := range versions {
		push("replaced", n+1)
	}
	push("other", versions+1)
	held, other := claim(versions), claim(versions+1)
	if held < versions/2 {
		t.Fatalf("this test shows nothing: a claim of a message of %d versions reads %d pages", versions, held)
	}
	if held > 2*versions || other > versions/4 {
		t.Errorf("with %d versions of a message a claim reads %d pages, and one of another message %d; want some %d and far fewer", versions, held, other, versions)
	}
	if err := snapshot.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "claims read no versions behind the end of the snapshot", func() bool { return claim(versions) < versions/4 })
	t.Logf("of %d versions a claim reads %d pages, one of another message %d, and %d when the snapshot is over", versions, held, other, claim(versions))
}
