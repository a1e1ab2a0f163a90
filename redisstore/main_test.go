package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/punctualmq/punctual"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"

	"github.com/punctualmq/punctual/storetest/ledger"
)

// shared is the server for all tests that do not steer their server; each test has prefixes of
// its own there.
var shared *redisrig.Server

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	if ledger.IsChild() {
		return m.Run() // on the server of its parent
	}
	// The goroutine of a pool that could not dial sleeps for a second between its tries, so it may
	// end that much after the pool was closed.
	dialling := goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")
	return redisrig.Run(m, &shared, func() error { return goleak.Find(dialling) })
}

// connect returns a client of a server, closed at the end of the test.
func connect(t testing.TB, s *redisrig.Server) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr})
	closeAtEnd(t, c.Close)
	return c
}

func closeAtEnd(t testing.TB, end func() error) {
	t.Cleanup(func() {
		if err := end(); err != nil && !errors.Is(err, punctual.ErrClosed) {
			t.Errorf("close: %v", err)
		}
	})
}

// openStore opens a store, closed at the end of the test.
func openStore(t testing.TB, c redis.UniversalClient, o *Options) *Store {
	t.Helper()
	s, err := Open(context.Background(), c, o)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, s.Close)
	return s
}

// fresh returns a prefix that nobody has used.
func fresh() string { return rand.Text() + ":" }

// waitUntil waits, for a minute at most, until done reports true of what other goroutines or a
// server do.
func waitUntil(t *testing.T, what string, done func() bool) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("waited for a minute: %s", what)
		}
	}
}
