package pgstore

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/punctualmq/punctual"
	pgrig "github.com/punctualmq/punctual/internal/rigs/postgres"

	"github.com/punctualmq/punctual/storetest/ledger"
)

// shared is the server that all tests use which do nothing to it; each store has a schema of its own there.
var shared *pgrig.Server

func TestMain(m *testing.M) {
	if ledger.IsChild() { // its server is another one, and whoever kills it would leave one of its own behind
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

// spare are schemas of stores that tests have closed. To empty one is much cheaper than to make one.
var spare = make(chan string, 100)

// emptySchema returns a schema with the tables of a store and nothing in them. Others may have it when the test is over.
func emptySchema(t testing.TB, pool *pgxpool.Pool) string {
	t.Helper()
	var schema string
	select {
	case schema = <-spare:
		text := inSchema("TRUNCATE punctual.message, punctual.finished, punctual.topic, punctual.dropped_topic; UPDATE punctual.store SET clock = 0", schema)
		conn, err := pool.Acquire(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
		if _, err := conn.Conn().PgConn().Exec(context.Background(), text).ReadAll(); err != nil {
			t.Fatal(err)
		}
	default:
		schema = fresh()
		if err := Migrate(context.Background(), pool, &Options{Schema: schema}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		select {
		case spare <- schema:
		default:
		}
	})
	return schema
}

// fresh is a schema that nobody has used.
func fresh() string { return "t" + strings.ToLower(rand.Text()) }
