package sharedstore_test

import (
	"log/slog"
	"sync"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore"
	"github.com/punctualmq/punctual/sharedstore"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest"
	"github.com/punctualmq/punctual/storetest/ledger"
	"github.com/punctualmq/punctual/storetest/races"
)

// TestSlowOverOwner holds a store that is not the owner of its directory to those cases of the
// contract that reopen the store: the first time the owner ends instead. The other cases call a
// server as those of remotestore's tests do, so only make torture runs them here, too.
func TestSlowOverOwner(t *testing.T) {
	t.Parallel()
	var p pairs
	if !ledger.Tortured() {
		storetest.RunReopen(t, p.open, p.reopen)
		return
	}
	storetest.Run(t, p.open, storetest.WithReopen(p.reopen), storetest.WithClockElsewhere(), storetest.WithLossyClaims())
}

func TestRaces(t *testing.T) {
	t.Parallel()
	races.Run(t, new(pairs).open, storetest.WithLossyClaims())
}

// pairs keeps, for each store that was opened as one that does not own its directory, the store
// that owns the directory.
type pairs struct {
	mu    sync.Mutex
	owner map[punctual.Store]*sharedstore.Store // guarded by mu
}

func openAs(t *testing.T, dir string, clock storekit.Clock) *sharedstore.Store {
	s, err := sharedstore.Open(t.Context(), dir, &sharedstore.Options{
		Disk: &diskstore.Options{Clock: clock}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, s) })
	return s
}

// open opens a store whose directory another store owns.
func (p *pairs) open(t *testing.T, clock storekit.Clock) punctual.Store {
	dir := t.TempDir()
	owner := openAs(t, dir, clock)
	s := openAs(t, dir, clock)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.owner == nil {
		p.owner = make(map[punctual.Store]*sharedstore.Store)
	}
	p.owner[s] = owner
	return s
}

// reopen closes the owner of old's directory and returns old, which becomes the owner with its next
// call. When it is called with the same store again, it closes that store and opens the directory
// anew.
func (p *pairs) reopen(t *testing.T, old punctual.Store, clock storekit.Clock) punctual.Store {
	p.mu.Lock()
	owner := p.owner[old]
	delete(p.owner, old)
	p.mu.Unlock()
	if owner != nil {
		closed(t, owner)
		return old
	}
	s := old.(*sharedstore.Store)
	if !s.Owner() {
		t.Error("the store went on behind the end of the owner and does not own the directory")
	}
	closed(t, s)
	return openAs(t, s.Dir(), clock)
}
