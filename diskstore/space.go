package diskstore

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/punctualmq/punctual"
)

// spaceGuard refuses pushes while the disk is nearly full. It must do so early: on a
// full disk the database neither writes nor fails, it hangs; and acks and cancels need a little
// space themselves before they free any.
type spaceGuard struct {
	fs      vfs.FS
	dir     string
	reserve uint64

	mu     sync.Mutex
	looked time.Time // guarded by mu: when free was read
	free   uint64    // guarded by mu
	err    error     // guarded by mu: why free could not be read
}

// spaceLook is how often the guard asks how much space is free.
const spaceLook = 250 * time.Millisecond

// check returns ErrNoSpace when less than the reserve is free.
func (g *spaceGuard) check() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.look()
	switch {
	case errors.Is(g.err, vfs.ErrUnsupported):
		return nil // a file system in memory
	case g.err != nil:
		return classify("ask how much space is free", g.err)
	case g.free < g.reserve:
		return fmt.Errorf("%s has %d MiB free and %d are kept in reserve: %w; make room, acks and cancels still work",
			g.dir, g.free>>20, g.reserve>>20, punctual.ErrNoSpace)
	}
	return nil
}

// low tells that pushes are refused or will be soon.
func (g *spaceGuard) low() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.look()
	return g.err == nil && g.free < 2*g.reserve
}

// look asks again how much space is free if the last answer is old. Called with mu held.
func (g *spaceGuard) look() {
	if now := time.Now(); now.Sub(g.looked) > spaceLook {
		usage, err := g.fs.GetDiskUsage(g.dir)
		g.looked, g.free, g.err = now, usage.AvailBytes, err
	}
}
