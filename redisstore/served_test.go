package redisstore

import (
	"context"
	"net"
	"regexp"
	"sync"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/remotestore"
	"github.com/punctualmq/punctual/server"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest"
	"github.com/punctualmq/punctual/storetest/ledger"
	"github.com/punctualmq/punctual/storetest/races"
	"github.com/punctualmq/punctual/storetest/random"
)

// first matches the groups of the suite that make test runs over a server.
var first = regexp.MustCompile("/(claim|ids|wait|settle|fencing|repeat|contract|close|reopen)/")

// TestSlowServed runs the suite with a client of a server, which is started anew where the suite
// opens a store again. make torture runs all groups.
func TestSlowServed(t *testing.T) {
	t.Parallel()
	var sv serving
	open := func(t *testing.T, clock storekit.Clock) punctual.Store {
		if !ledger.Tortured() && !first.MatchString(t.Name()) {
			t.Skip("skipped: only in make torture")
		}
		return sv.open(t, clock)
	}
	storetest.Run(t, open, storetest.WithReopen(sv.reopen), storetest.WithClockElsewhere(), storetest.WithLossyClaims())
}

func TestServedRandomHistories(t *testing.T) {
	if !ledger.Tortured() {
		t.Skip("skipped: only in make torture")
	}
	t.Parallel()
	var sv serving
	random.Run(t, sv.open, storetest.WithReopen(sv.reopen))
}

func TestServedRaces(t *testing.T) {
	t.Parallel()
	races.Run(t, new(serving).open, storetest.WithLossyClaims())
}

// serving opens clients, each with a server and a store of its own.
type serving struct {
	mu sync.Mutex
	of map[punctual.Store]*served // guarded by mu: by client
}

// served is a server over a store.
type served struct {
	store *Store
	addr  string
	stop  func() // drains, and waits
}

func serve(t testing.TB, s *Store, addr string) *served {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	srv, err := server.New(s, &server.Options{Limits: server.Limits{Rate: 1e6}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ctx, nil, l) }()
	stop := sync.OnceFunc(func() {
		end()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(stop)
	return &served{s, l.Addr().String(), stop}
}

// openServed opens a client of a server.
func openServed(t testing.TB, sd *served) *remotestore.Store {
	t.Helper()
	s, err := remotestore.Open(context.Background(), []string{"http://" + sd.addr}, nil)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, s.Close)
	return s
}

func (sv *serving) open(t *testing.T, clock storekit.Clock) punctual.Store {
	t.Helper()
	sd := serve(t, openFresh(t, clock).(*Store), "127.0.0.1:0")
	s := openServed(t, sd)
	sv.mu.Lock()
	defer sv.mu.Unlock()
	if sv.of == nil {
		sv.of = make(map[punctual.Store]*served)
	}
	sv.of[s] = sd
	return s
}

// reopen starts the server and its store anew; the client stays.
func (sv *serving) reopen(t *testing.T, client punctual.Store, clock storekit.Clock) punctual.Store {
	t.Helper()
	sv.mu.Lock()
	old := sv.of[client]
	sv.mu.Unlock()
	old.stop()
	again := serve(t, reopen(t, old.store, clock).(*Store), old.addr)
	sv.mu.Lock()
	defer sv.mu.Unlock()
	sv.of[client] = again
	return client
}
