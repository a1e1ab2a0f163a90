package pgstore

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// P14: a migration of tables that somebody reads is refused, and the error names the reader. The
// statements of others do not wait long behind the migration, which passes when the reader has
// ended.
func TestMigrateBesideAReader(t *testing.T) {
	t.Parallel()
	pool := newPool(t, shared)
	t.Cleanup(pool.Close)
	o := &Options{Schema: fresh()}
	s, err := newStore(pool, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := migrate(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	all := migrations(o.Schema)
	next := migration{len(all) + 1, "next", inSchema("ALTER TABLE punctual.message ADD COLUMN next bigint", o.Schema)}
	connect := func() *pgx.Conn {
		c, err := pgx.Connect(t.Context(), shared.URL("postgres"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		return c
	}
	count := inSchema("SELECT count(*) FROM punctual.message", o.Schema)
	reader, other := connect(), connect()
	run(t, reader, "BEGIN; "+count)
	run(t, other, "SET lock_timeout = '5s'") // far longer than the migration waits at a time, and shorter than it waits in all
	ctx, end := context.WithTimeout(t.Context(), 8*time.Second)
	defer end()
	migrated := make(chan error, 1)
	go func() { migrated <- s.migrator.applyRetrying(ctx, next) }()
	waited := false // the migration has waited for the reader
	for begun := time.Now(); time.Since(begun) < 3*time.Second || !waited && ctx.Err() == nil; {
		if _, err := other.Exec(t.Context(), count); err != nil {
			t.Fatalf("P14: a statement behind a migration that waits: %v", err)
		}
		waited = waited || string(run(t, other, "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock' AND relation = '"+inSchema("punctual.message", o.Schema)+"'::regclass")[0]) != "0"
	}
	if !waited {
		t.Error("this test shows nothing: the migration has not waited for the reader")
	}
	end()
	err = <-migrated
	wantDefinite(t, "migration beside a reader", err, punctual.ErrOverloaded)
	if pid := strconv.Itoa(int(reader.PgConn().PID())); err == nil || !strings.Contains(err.Error(), pid) {
		t.Errorf("%v does not name process %s, which reads", err, pid)
	}
	v, err := MigrationStatus(t.Context(), pool, o)
	if err != nil || v.Tables != len(all) {
		t.Errorf("the tables are of version %d, %v; want %d", v.Tables, err, len(all))
	}
	run(t, reader, "ROLLBACK")
	if err := s.migrator.applyRetrying(t.Context(), next); err != nil {
		t.Errorf("migration without a reader: %v", err)
	}
	// Where nothing is pending a migration waits for nobody, not even for somebody who has a table
	// locked.
	run(t, reader, inSchema("BEGIN; LOCK TABLE punctual.message", o.Schema))
	if err := Migrate(ctx, pool, o); !errors.Is(err, context.Canceled) {
		t.Errorf("migration with a context that has ended: %v", err)
	}
	if err := Migrate(t.Context(), pool, o); err != nil {
		t.Errorf("migration of what is up to date: %v", err)
	}
	run(t, reader, "ROLLBACK")
}

// The name of a schema may be a reserved word. One that begins with pg_, which the server keeps for
// itself, is refused before the server is asked.
func TestNamesOfSchemas(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), shared.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	for _, word := range []string{"user", "order", "table"} {
		if _, err := pool.Exec(t.Context(), "CREATE SCHEMA "+word); err == nil {
			t.Fatalf("this test shows nothing: %s is no reserved word", word)
		}
		s := openStore(t, pool, &Options{Schema: word, Migrate: true})
		ackAll(t, s, leaseOne(t, s, "orders", "a"))
		if found, err := s.Examine(t.Context()); err != nil || severities(found)["tables"] != storekit.SeverityGood {
			t.Errorf("Examine of a store in schema %s: %+v, %v; want good tables", word, found, err)
		}
	}
	const reserved = "pg_punctual"
	if _, err := pool.Exec(t.Context(), "CREATE SCHEMA "+reserved); err == nil {
		t.Fatalf("this test shows nothing: the server takes a schema %s", reserved)
	}
	if err := Migrate(t.Context(), pool, &Options{Schema: reserved}); !errors.Is(err, punctual.ErrInvalid) || !strings.Contains(err.Error(), "use another name") {
		t.Errorf("Migrate of schema %s: %v; want invalid, with what to do", reserved, err)
	}
}
