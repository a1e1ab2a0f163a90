package pgstore

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/punctualmq/punctual"
	pgrig "github.com/punctualmq/punctual/internal/rigs/postgres"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest"
	"github.com/punctualmq/punctual/storetest/ledger"
	"github.com/punctualmq/punctual/storetest/races"
	"github.com/punctualmq/punctual/storetest/random"
	"github.com/punctualmq/punctual/storetest/transitions"
)

// TestOverPostgres is the suite of all stores.
func TestOverPostgres(t *testing.T) {
	t.Parallel()
	open, again := onePool(t)
	storetest.Run(t, open, storetest.WithReopen(again))
}

func TestSlowRandomHistories(t *testing.T) {
	t.Parallel()
	open, again := onePool(t)
	random.Run(t, open, storetest.WithReopen(again))
}

// onePool opens stores on one pool, because a new connection costs the server more than most cases.
// The sessions of the pool have an isolation level by default that breaks whatever does not say its
// own.
func onePool(t *testing.T) (storetest.Open, storetest.Reopen) {
	pool := newPoolAt(t, shared, pgx.Serializable)
	t.Cleanup(pool.Close)
	open := func(t *testing.T, clock storekit.Clock) punctual.Store {
		t.Helper()
		// A connection that listens costs the server more than most cases. So only the cases of
		// waiting claims and of the clock have one, and stores that a case opens again, unless make
		// torture runs the cases.
		listen := strings.Contains(t.Name(), "/wait/") || strings.Contains(t.Name(), "/clock/") || ledger.Tortured()
		return openStore(t, pool, &Options{Schema: emptySchema(t, pool), clock: clock, NoListen: !listen})
	}
	again := func(t *testing.T, old punctual.Store, clock storekit.Clock) punctual.Store {
		t.Helper()
		s := old.(*Store)
		if err := s.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
		return openStore(t, pool, &Options{Schema: s.opt.Schema, clock: clock})
	}
	return open, again
}

// TestSweptByItself: the store itself removes events that nobody has read in time.
func TestSweptByItself(t *testing.T) {
	t.Parallel()
	storetest.RunSweeps(t, func(t *testing.T, clock storekit.Clock) punctual.Store {
		return openStore(t, newPool(t, shared), &Options{Schema: fresh(), Migrate: true, OwnPool: true, clock: clock, checkEvery: 5 * time.Millisecond})
	})
}

func TestRaces(t *testing.T) {
	t.Parallel()
	races.Run(t, openSerializable, storetest.WithLossyClaims())
}

// openSerializable opens a store on sessions whose default isolation level breaks whatever does not
// say its own.
func openSerializable(t *testing.T, clock storekit.Clock) punctual.Store {
	t.Helper()
	return openEmpty(t, newPoolAt(t, shared, pgx.Serializable), clock)
}

// TestSlowTransitions compares every transition of a message's life with memstore, because SQL
// repeats the rules.
func TestSlowTransitions(t *testing.T) {
	t.Parallel()
	open, _ := onePool(t)
	transitions.Run(t, open)
}

// TestSlowWorkload runs a mixed load of concurrent calls for eight seconds, and has the ledger
// judge the answers.
func TestSlowWorkload(t *testing.T) {
	t.Parallel()
	ledger.RunWorkload(t, openSerializable, 8*time.Second, 1)
}

func openFresh(t *testing.T, clock storekit.Clock) punctual.Store {
	t.Helper()
	return openEmpty(t, newPool(t, shared), clock)
}

func openEmpty(t *testing.T, pool *pgxpool.Pool, clock storekit.Clock) punctual.Store {
	t.Helper()
	return openStore(t, pool, &Options{Schema: emptySchema(t, pool), OwnPool: true, clock: clock})
}

// TestSlowRandomHistoriesPooled runs random histories through a pooler, which gives each
// transaction another connection.
func TestSlowRandomHistoriesPooled(t *testing.T) {
	t.Parallel()
	pooler := pgrig.StartBouncer(t, shared)
	random.Run(t, func(t *testing.T, clock storekit.Clock) punctual.Store {
		return openEmpty(t, pooledPool(t, pooler), clock)
	})
}

func TestRacesPooled(t *testing.T) {
	t.Parallel()
	pooler := pgrig.StartBouncer(t, shared)
	races.Run(t, func(t *testing.T, clock storekit.Clock) punctual.Store {
		return openEmpty(t, pooledPool(t, pooler), clock)
	}, storetest.WithLossyClaims())
}

func pooledPool(t *testing.T, pooler *pgrig.Bouncer) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), pooler.URL("postgres")+"&default_query_exec_mode=cache_describe")
	if err != nil {
		t.Fatal(err)
	}
	return pool
}
