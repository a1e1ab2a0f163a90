package pgstore

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/punctualmq/punctual"
	pgrig "github.com/punctualmq/punctual/internal/rigs/postgres"

	"github.com/punctualmq/punctual/storetest/ledger"
)

// shared is the server of all tests that neither stop it nor change its settings. Each test has
// schemas or a database of its own there.
var shared *pgrig.Server

func TestMain(m *testing.M) {
	if ledger.IsChild() { // the child uses the server of its parent, and needs none of its own
		os.Exit(m.Run())
	}
	os.Exit(pgrig.Run(m, &shared, func() error { return goleak.Find() }, "fsync=off", "max_connections=400"))
}

// newPool returns a pool for a server, which the caller closes.
func newPool(t testing.TB, s *pgrig.Server) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

// openStore opens a store, closed at the end of the test.
func openStore(t testing.TB, pool *pgxpool.Pool, o *Options) *Store {
	t.Helper()
	s, err := Open(context.Background(), pool, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, punctual.ErrClosed) {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// makeTopic makes a topic with the settings of a new one.
func makeTopic(t testing.TB, s *Store, topic string) {
	t.Helper()
	if _, err := s.Configure(context.Background(), topic, punctual.SettingsPatch{}); err != nil {
		t.Fatal(err)
	}
}

// spares are schemas of stores that tests have closed, because it is much cheaper to empty a schema
// than to make one. The one that was used last is used next, because connections have prepared the
// statements for it.
type spares struct {
	mu      sync.Mutex
	schemas []spareSchema // guarded by mu
}

// spareSchema is a schema, and how many rows were deleted from it since its tables were last
// truncated.
type spareSchema struct {
	name    string
	deleted int64
}

var spare spares

func (s *spares) take() (spareSchema, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.schemas) == 0 {
		return spareSchema{}, false
	}
	last := s.schemas[len(s.schemas)-1]
	s.schemas = s.schemas[:len(s.schemas)-1]
	return last, true
}

func (s *spares) put(x spareSchema) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.schemas = append(s.schemas, x)
}

// emptySchema returns a schema with the tables of a store and nothing in them. Another test may get
// it when this one is over.
func emptySchema(t testing.TB, pool *pgxpool.Pool) string {
	t.Helper()
	ctx := context.Background()
	x, ok := spare.take()
	if !ok {
		x.name = fresh()
		if err := Migrate(ctx, pool, &Options{Schema: x.name}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { spare.put(x) })
	if !ok {
		return x.name
	}
	if err := x.empty(ctx, pool); err != nil {
		t.Fatal(err)
	}
	return x.name
}

// empty deletes the few rows of a test, so that plans stay valid, and truncates once many have been
// deleted.
func (x *spareSchema) empty(ctx context.Context, pool *pgxpool.Pool) error {
	tables := []string{"punctual.message", "punctual.finished", "punctual.topic", "punctual.dropped_topic", "punctual.rate", "punctual.key"}
	text := "UPDATE punctual.store SET clock = 0, steps = 0; UPDATE punctual.clock_step SET steps = 0, carried = true;"
	for _, table := range tables {
		text += "DELETE FROM " + table + ";"
	}
	deleted, err := execAll(ctx, pool, inSchema(text, x.name))
	if x.deleted += deleted; err != nil || x.deleted < 1000 {
		return err
	}
	x.deleted = 0
	_, err = execAll(ctx, pool, inSchema("TRUNCATE "+strings.Join(tables, ", "), x.name))
	return err
}

// execAll carries out statements without parameters, and returns how many rows they have changed.
func execAll(ctx context.Context, pool *pgxpool.Pool, text string) (rows int64, err error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	results, err := conn.Conn().PgConn().Exec(ctx, text).ReadAll()
	for _, r := range results {
		rows += r.CommandTag.RowsAffected()
	}
	return rows, err
}

// fresh returns the name of a schema that nobody has used.
func fresh() string { return "t" + strings.ToLower(rand.Text()) }
