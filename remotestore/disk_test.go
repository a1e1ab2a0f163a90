package remotestore_test

import (
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest"
	"github.com/punctualmq/punctual/storetest/ledger"
	"github.com/punctualmq/punctual/storetest/races"
	"github.com/punctualmq/punctual/storetest/random"
)

// first matches the groups of the suite that make test runs over a directory. They are about what a
// server does for a store, and about what a directory may answer otherwise than a store in memory.
var first = regexp.MustCompile("/(claim|wait|settle|fencing|repeat|contract|close|reopen)/")

// TestSlowOverDisk runs the suite over a directory whose server ends and is started anew; all
// groups of the suite only in make torture.
func TestSlowOverDisk(t *testing.T) {
	t.Parallel()
	var sd servedDisks
	open := func(t *testing.T, clock storekit.Clock) punctual.Store {
		if !ledger.Tortured() && !first.MatchString(t.Name()) {
			t.Skip("skipped: only in make torture")
		}
		return sd.open(t, clock)
	}
	storetest.Run(t, open, storetest.WithReopen(sd.reopen), storetest.WithClockElsewhere(), storetest.WithLossyClaims())
}

func TestRacesOverDisk(t *testing.T) {
	t.Parallel()
	races.Run(t, new(servedDisks).open, storetest.WithLossyClaims())
}

func TestRandomOverDisk(t *testing.T) {
	if !ledger.Tortured() {
		t.Skip("skipped: only in make torture")
	}
	t.Parallel()
	var sd servedDisks
	random.Run(t, sd.open, storetest.WithReopen(sd.reopen))
}

// servedDisks are clients, each of a server with a directory of its own.
type servedDisks struct {
	mu sync.Mutex
	of map[punctual.Store]*servedDisk // guarded by mu: by client
}

// servedDisk is a server over a directory.
type servedDisk struct {
	dir   string
	store *diskstore.Store
	*served
}

func serveDisk(t *testing.T, dir string, clock storekit.Clock, addr string) *servedDisk {
	t.Helper()
	s, err := diskstore.Open(dir, &diskstore.Options{Clock: clock})
	s = closing(t, s, err)
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return &servedDisk{dir, s, serveOn(t, s, nil, l, "http://"+l.Addr().String())}
}

func (sd *servedDisks) open(t *testing.T, clock storekit.Clock) punctual.Store {
	t.Helper()
	d := serveDisk(t, t.TempDir(), clock, "")
	client := connect(t, nil, d.url)
	sd.set(client, d)
	return client
}

// reopen ends the server and its store, and starts them anew; the client stays.
func (sd *servedDisks) reopen(t *testing.T, client punctual.Store, clock storekit.Clock) punctual.Store {
	t.Helper()
	sd.mu.Lock()
	old := sd.of[client]
	sd.mu.Unlock()
	old.stop()
	if err := old.store.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	sd.set(client, serveDisk(t, old.dir, clock, strings.TrimPrefix(old.url, "http://")))
	return client
}

func (sd *servedDisks) set(client punctual.Store, d *servedDisk) {
	sd.mu.Lock()
	defer sd.mu.Unlock()
	if sd.of == nil {
		sd.of = make(map[punctual.Store]*servedDisk)
	}
	sd.of[client] = d
}
