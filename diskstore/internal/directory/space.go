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

// spaceGuard is what CheckSpace knows, by which pushes are refused while the disk is nearly full.
// They have to be refused early, because the store fails when its database can write no more, and
// because acks and cancels need a little space themselves before they free any.
type spaceGuard struct {
	dir     string
	reserve uint64

	mu     sync.Mutex
	looked time.Time // guarded by mu: when free was read
	free   uint64    // guarded by mu
	err    error     // guarded by mu: why free could not be read
	// needed is how much of free will be used for what is stored already. Guarded by mu.
	needed uint64
}

// spaceLook is how long an answer of the disk is used before the guard asks again how much space is
// free.
const spaceLook = 250 * time.Millisecond

// CheckSpace returns ErrNoSpace when less than the reserve would be free once n bytes of messages
// are stored. unwritten tells how many bytes the database has in its log alone: it writes them a
// second time, into tables, before it deletes that part of the log, and the n bytes as well.
// CheckSpace counts both as used, because with large messages they can be as much as the reserve.
//
// If the directory is gone, CheckSpace fails the store, because the call that asks may be the first
// one to find that out, before any change of a file.
func (d *Dir) CheckSpace(n uint64, unwritten func() uint64) error {
	g := &d.space
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := time.Now(); now.Sub(g.looked) > spaceLook {
		g.free, g.err = d.FreeSpace()
		g.looked, g.needed = now, unwritten()
	}
	switch {
	case errors.Is(g.err, vfs.ErrUnsupported):
		return nil // a file system in memory
	case IsMissing(g.err):
		if gone := d.Verify(); gone != nil {
			d.state.Fail(gone)
			return d.state.Usable()
		}
		return errkind.Classify("ask how much space is free", g.err)
	case g.err != nil:
		return errkind.Classify("ask how much space is free", g.err)
	case g.free < g.reserve+g.needed+2*n:
		return fmt.Errorf("%s has %d MiB free, of which %d are needed for this push and those before it, and %d are kept in reserve: %w; make room, acks and cancels still work",
			g.dir, g.free>>20, (g.needed+2*n)>>20, g.reserve>>20, punctual.ErrNoSpace)
	}
	g.needed += 2 * n
	return nil
}

// FreeSpace is how many bytes are free on the disk now.
func (d *Dir) FreeSpace() (uint64, error) {
	usage, err := d.fs.GetDiskUsage(d.path)
	return usage.AvailBytes, err
}
