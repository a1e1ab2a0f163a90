package directory

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/errkind"
)

// spaceGuard refuses pushes while the disk is nearly full. It must do so early, because the store fails when its database can
// write no more, and because acks and cancels need a little space themselves before they free any.
type spaceGuard struct {
	fs      vfs.FS
	dir     string
	reserve uint64

	mu     sync.Mutex
	looked time.Time // guarded by mu: when free was read
	free   uint64    // guarded by mu
	err    error     // guarded by mu: why free could not be read
}

// spaceLook is how long an answer of the disk is used before the guard asks again how much space is free.
const spaceLook = 250 * time.Millisecond

// CheckSpace returns ErrNoSpace when less than the reserve is free. If the directory is gone, CheckSpace fails the store, because
// the call that asks may be the first one to find that out, before any change of a file.
func (d *Dir) CheckSpace() error {
	g := &d.space
	switch free, err := d.FreeSpace(); {
	case errors.Is(err, vfs.ErrUnsupported):
		return nil // a file system in memory
	case IsMissing(err):
		if gone := d.Verify(); gone != nil {
			d.state.Fail(gone)
			return d.state.Usable()
		}
		return errkind.Classify("ask how much space is free", err)
	case err != nil:
		return errkind.Classify("ask how much space is free", err)
	case free < g.reserve:
		return fmt.Errorf("%s has %d MiB free and %d are kept in reserve: %w; make room, acks and cancels still work",
			g.dir, free>>20, g.reserve>>20, punctual.ErrNoSpace)
	}
	return nil
}

// FreeSpace is how many bytes are free on the disk, as of spaceLook ago at most.
func (d *Dir) FreeSpace() (uint64, error) {
	g := &d.space
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := time.Now(); now.Sub(g.looked) > spaceLook {
		usage, err := g.fs.GetDiskUsage(g.dir)
		g.looked, g.free, g.err = now, usage.AvailBytes, err
	}
	return g.free, g.err
}
