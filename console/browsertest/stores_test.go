package browsertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore"
	pgrig "github.com/punctualmq/punctual/internal/rigs/postgres"
	redisrig "github.com/punctualmq/punctual/internal/rigs/redis"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/pgstore"
	"github.com/punctualmq/punctual/redisstore"
	"github.com/punctualmq/punctual/storekit"
)

// The servers that all tests share. Each is nil if -store names another store.
var (
	redis    *redisrig.Server
	postgres *pgrig.Server
)

// stores returns the kinds of store over which the tests run. A test of something that is the same
// over every store uses the first kind, or a store in memory.
func stores() []string {
	if *storeFlag == "all" {
		return []string{"mem", "disk", "redis", "postgres"}
	}
	return []string{*storeFlag}
}

// runner is a function that runs tests and returns the exit code.
type runner func() int

// Run implements the interface that pgrig.Run asks for.
func (r runner) Run() int { return r() }

// withServers runs the tests with the servers that they need. It does not search for goroutines
// that are left at the end, because the browser's driver has goroutines of its own.
func withServers(m *testing.M) int {
	noLeaks := func() error { return nil }
	tests := runner(m.Run)
	for _, kind := range stores() {
		switch kind {
		case "redis":
			tests = func() int { return redisrig.Run(m, &redis, noLeaks) }
		case "postgres":
			inner := tests
			tests = func() int { return pgrig.Run(inner, &postgres, noLeaks) }
		}
	}
	return tests.Run()
}

// overStores runs a test over each kind of store.
func overStores(t *testing.T, test func(t *testing.T, s punctual.Store)) {
	for _, kind := range stores() {
		name, _, _ := strings.Cut(kind, ":")
		t.Run(name, func(t *testing.T) { test(t, openStore(t, kind)) })
	}
}

// openStore opens an empty store of a kind, or at a URL. At the end of the test it deletes all
// topics of the store.
func openStore(t *testing.T, kind string) punctual.Store {
	t.Helper()
	switch kind {
	case "redis":
		kind = "redis://" + redis.Addr
	case "postgres":
		kind = postgres.Database(t)
	}
	var s punctual.Store
	var err error
	switch {
	case kind == "mem":
		s = memstore.New(nil)
	case kind == "disk":
		s, err = diskstore.Open(t.TempDir(), nil)
	case strings.HasPrefix(kind, "redis"):
		s, err = redisstore.OpenURL(t.Context(), kind, nil)
	case strings.HasPrefix(kind, "postgres"):
		s, err = pgstore.OpenURL(t.Context(), kind, &pgstore.Options{Migrate: true})
	default:
		t.Fatalf("-store %q is not known", kind)
	}
	if err != nil {
		t.Fatal(err)
	}
	i, err := punctual.As[punctual.Inspector](s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		topics, err := i.Topics(context.Background())
		for _, topic := range topics {
			_, gone := i.DeleteTopic(context.Background(), topic.Topic)
			err = errors.Join(err, gone)
		}
		if err := errors.Join(err, s.Close()); err != nil {
			t.Error(err)
		}
	})
	if topics, err := i.Topics(t.Context()); err != nil || len(topics) > 0 {
		t.Fatalf("the store has %d topics, %v; want an empty one", len(topics), err)
	}
	return s
}

// openAt opens a store in memory whose clock stands still at an instant.
func openAt(t *testing.T, at time.Time) punctual.Store {
	t.Helper()
	s := memstore.New(&memstore.Options{Clock: storekit.NewManualClock(at)})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// errTrouble is the error of the calls of a troubled store that fails.
var errTrouble = fmt.Errorf("the server of the store does not answer: %w", punctual.ErrUnreachable)

// troubled is a store whose calls, except claims, settlements and changes of topics, can be made
// slow and made to fail.
type troubled struct {
	punctual.Store
	punctual.Inspector

	mu    sync.Mutex
	slow  time.Duration // guarded by mu: how much longer each call takes
	fails bool          // guarded by mu
	calls int           // guarded by mu: how many such calls there were
}

func newTroubled(s punctual.Store) *troubled {
	return &troubled{Store: s, Inspector: must(punctual.As[punctual.Inspector](s))}
}

// set says how slow calls are, and whether they fail, from now on.
func (s *troubled) set(slow time.Duration, fails bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slow, s.fails = slow, fails
}

// called returns how many calls there were.
func (s *troubled) called() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// pass counts a call, waits for the duration slow, and returns errTrouble if the store fails.
func (s *troubled) pass(ctx context.Context) error {
	s.mu.Lock()
	slow, fails := s.slow, s.fails
	s.calls++
	s.mu.Unlock()
	if slow > 0 {
		select {
		case <-time.After(slow):
		case <-ctx.Done():
			return fmt.Errorf("wait for a slow store: %w", context.Cause(ctx))
		}
	}
	if fails {
		return errTrouble
	}
	return nil
}

func (s *troubled) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	if err := s.pass(ctx); err != nil {
		return nil, err
	}
	return s.Store.Push(ctx, ms)
}

func (s *troubled) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	if err := s.pass(ctx); err != nil {
		return nil, err
	}
	return s.Store.Amend(ctx, as)
}

func (s *troubled) Now(ctx context.Context) (time.Time, error) {
	if err := s.pass(ctx); err != nil {
		return time.Time{}, err
	}
	return s.Store.Now(ctx)
}

func (s *troubled) Get(ctx context.Context, topic, id string) (punctual.Info, error) {
	if err := s.pass(ctx); err != nil {
		return punctual.Info{}, err
	}
	return s.Inspector.Get(ctx, topic, id)
}

func (s *troubled) List(ctx context.Context, q punctual.ListQuery) (punctual.Page, error) {
	if err := s.pass(ctx); err != nil {
		return punctual.Page{}, err
	}
	return s.Inspector.List(ctx, q)
}

func (s *troubled) Topics(ctx context.Context) ([]punctual.TopicStats, error) {
	if err := s.pass(ctx); err != nil {
		return nil, err
	}
	return s.Inspector.Topics(ctx)
}

func (s *troubled) Stats(ctx context.Context, topic string) (punctual.TopicStats, error) {
	if err := s.pass(ctx); err != nil {
		return punctual.TopicStats{}, err
	}
	return s.Inspector.Stats(ctx, topic)
}

func (s *troubled) Forecast(ctx context.Context, q punctual.ForecastQuery) (punctual.Forecast, error) {
	if err := s.pass(ctx); err != nil {
		return punctual.Forecast{}, err
	}
	return s.Inspector.Forecast(ctx, q)
}

func (s *troubled) Settings(ctx context.Context, topic string) (punctual.Settings, error) {
	if err := s.pass(ctx); err != nil {
		return punctual.Settings{}, err
	}
	return s.Inspector.Settings(ctx, topic)
}
