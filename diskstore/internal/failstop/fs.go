package failstop

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/errkind"
)

// Side tells who uses a file system.
type Side bool

// The store's own side gets the errors of changes. The goroutines of the database stop when a change fails or is
// refused.
const (
	Store    Side = false
	Database Side = true
)

// FS is the file system that the store and its database see. It adds three things.
//
// A marker names the current MANIFEST. It may reach the disk before the directory entry of that
// file. Then the database does not open after a power cut (cockroachdb/pebble issue 5825, not yet
// in v2.1.7). So the directory is synced before a marker is created.
//
// When a change of a file fails, the database panics, tries again for ever, or reports success, depending on the
// file. A panic would end our user's program. So the store fails first and the goroutine stops: the database never
// learns of it.
//
// Every change of a file is counted, and refused when the store is closed. A failed database may go on trying, and by
// then the directory can have a new owner. A store that has lost its directory to a new owner fails before it harms
// that one. It also fails before it reports anything that the new owner does not know.
type FS struct {
	vfs.FS
	state *State
	owned func() error // returns why the directory is not the store's any more, or nil
	side  Side
}

// NewFS is fs for one side of a store. owned returns why the store is not the owner of its directory any more, or nil.
func NewFS(fs vfs.FS, state *State, owned func() error, side Side) FS {
	return FS{FS: fs, state: state, owned: owned, side: side}
}

// Unwrap implements vfs.FS.
func (f FS) Unwrap() vfs.FS { return f.FS }

// change runs one change of a file unless changes are refused.
func (f FS) change(do func() error) error {
	ran, err := f.state.changes.run(do)
	if !ran {
		if f.side == Database {
			BlockForever()
		}
		return fmt.Errorf("the store is closed: %w", punctual.ErrClosed)
	}
	if err != nil && f.side == Database && !errors.Is(err, os.ErrNotExist) {
		f.state.Fail(errkind.Classify("change a file", err))
		BlockForever()
	}
	return err
}

// named is change for what makes, renames or removes a file: only the owner of the directory may.
func (f FS) named(do func() error) error {
	return f.change(func() error {
		if err := f.owned(); err != nil {
			f.state.Fail(err)
			return err
		}
		return do()
	})
}

// kept is change for that after which something is reported as kept: whoever owns the directory by
// then must be going to read it.
func (f FS) kept(do func() error) error {
	return f.change(func() error {
		if err := do(); err != nil {
			return err
		}
		err := f.owned()
		if err != nil {
			f.state.Fail(err)
		}
		return err
	})
}

// whenFileLeft opens a file. While no further file may be opened it tries again, for half of the time that the disk
// may take. Nothing has happened then, and whoever else opens files will close some.
func (f FS) whenFileLeft(open func() (vfs.File, error)) (opened vfs.File, err error) {
	for began, waited := time.Now(), false; ; waited = true {
		opened, err = open()
		if !errkind.NoFileLeft(err) || time.Since(began) > f.state.timeout/2 {
			return opened, err
		}
		if !waited {
			f.state.log.Warn("no further file can be opened; waiting until one is closed", "dir", f.state.dir, "limit", errkind.FileLimit(), "error", err)
		}
		select {
		case <-time.After(fileWait):
		case <-f.state.failed:
			return opened, err
		}
	}
}

// fileWait is how long is waited between two attempts to open a file.
const fileWait = 10 * time.Millisecond

// changed carries out a call that changes the disk and returns a file. Its errors are those of named.
func (f FS) changed(do func() (vfs.File, error)) (opened vfs.File, err error) {
	err = f.named(func() error {
		opened, err = f.whenFileLeft(do)
		return err
	})
	if err != nil {
		return nil, err
	}
	return file{opened, f}, nil
}

// Create implements vfs.FS.
func (f FS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.changed(func() (vfs.File, error) {
		if strings.HasPrefix(f.PathBase(name), "marker.") {
			if err := SyncDir(f.FS, f.PathDir(name)); err != nil {
				return nil, err // also when no file can be opened for it: tried again from here
			}
		}
		return f.FS.Create(name, c)
	})
}

// OpenReadWrite implements vfs.FS.
func (f FS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.changed(func() (vfs.File, error) { return f.FS.OpenReadWrite(name, c, opts...) })
}

// ReuseForWrite implements vfs.FS.
func (f FS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.changed(func() (vfs.File, error) { return f.FS.ReuseForWrite(oldname, newname, c) })
}

// Link implements vfs.FS.
func (f FS) Link(oldname, newname string) error {
	return f.named(func() error { return f.FS.Link(oldname, newname) })
}

// Remove implements vfs.FS.
func (f FS) Remove(name string) error {
	return f.named(func() error { return f.FS.Remove(name) })
}

// RemoveAll implements vfs.FS.
func (f FS) RemoveAll(name string) error {
	return f.named(func() error { return f.FS.RemoveAll(name) })
}

// Rename implements vfs.FS.
func (f FS) Rename(oldname, newname string) error {
	return f.named(func() error { return f.FS.Rename(oldname, newname) })
}

// MkdirAll implements vfs.FS.
func (f FS) MkdirAll(dir string, perm os.FileMode) error {
	return f.change(func() error { return f.FS.MkdirAll(dir, perm) })
}

// Open implements vfs.FS.
func (f FS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	opened, err := f.whenFileLeft(func() (vfs.File, error) { return f.FS.Open(name, opts...) })
	if err != nil || f.side == Store {
		return opened, err
	}
	return file{opened, f}, nil
}

// Lock gives the database a lock of no effect: the store holds the real one, and lets go of
// it also when the database cannot.
func (f FS) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// OpenDir implements vfs.FS.
func (f FS) OpenDir(name string) (vfs.File, error) {
	dir, err := f.whenFileLeft(func() (vfs.File, error) { return f.FS.OpenDir(name) })
	if err != nil {
		return nil, err
	}
	return file{dir, f}, nil
}

type file struct {
	vfs.File
	fs FS
}

// ReadAt implements vfs.File.
func (f file) ReadAt(b []byte, off int64) (int, error) {
	if f.fs.side == Database && f.fs.state.changes.noReads.Load() {
		return 0, ErrReadsEnded
	}
	return f.File.ReadAt(b, off)
}

// Write implements vfs.File. What the store itself writes, the claim log, is reported as kept
// without an fsync.
func (f file) Write(b []byte) (n int, err error) {
	write := func() error {
		n, err = f.File.Write(b)
		return err
	}
	if f.fs.side == Database {
		err = f.fs.change(write)
	} else {
		err = f.fs.kept(write)
	}
	return n, err
}

// WriteAt implements vfs.File.
func (f file) WriteAt(b []byte, off int64) (n int, err error) {
	err = f.fs.change(func() error {
		n, err = f.File.WriteAt(b, off)
		return err
	})
	return n, err
}

// Sync implements vfs.File.
func (f file) Sync() error { return f.fs.kept(f.File.Sync) }

// SyncData implements vfs.File.
func (f file) SyncData() error { return f.fs.kept(f.File.SyncData) }

// SyncTo implements vfs.File.
func (f file) SyncTo(length int64) (full bool, err error) {
	err = f.fs.kept(func() error {
		full, err = f.File.SyncTo(length)
		return err
	})
	return full, err
}

// Preallocate implements vfs.File. It is a hint: to have less room than it asks for is no failure.
func (f file) Preallocate(offset, length int64) (err error) {
	return errors.Join(f.fs.change(func() error {
		err = f.File.Preallocate(offset, length)
		return nil
	}), err)
}

// changeCounter counts the changes of files under way until it is shut.
type changeCounter struct {
	mu       sync.Mutex
	underWay int    // changes under way; guarded by mu
	done     uint64 // changes that have returned; guarded by mu
	shut     bool   // guarded by mu
	after    func() // called when it is shut and no change is under way; guarded by mu

	// noReads refuses the database's reads, which ends what would read for long. It is set by Close.
	noReads atomic.Bool
}

// ErrReadsEnded is what a long read gets that the closing of the store ended.
var ErrReadsEnded = fmt.Errorf("the store is being closed: %w", punctual.ErrClosed)

// progress is the number of changes that have returned: while it grows the disk does not hang.
func (g *changeCounter) progress() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.done
}

// run runs a change and counts it, unless changes are refused.
func (g *changeCounter) run(change func() error) (ran bool, err error) {
	g.mu.Lock()
	if g.shut {
		g.mu.Unlock()
		return false, nil
	}
	g.underWay++
	g.mu.Unlock()
	err = change()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.underWay--
	g.done++
	if g.shut {
		g.callAfter()
	}
	return true, err
}

// close refuses all further changes. It calls after, if not nil, as soon as no change is under way, which is
// at once unless the disk hangs.
func (g *changeCounter) close(after func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = true
	if after != nil {
		g.after = after
	}
	g.callAfter()
}

// callAfter calls after when no change is under way. Called with mu held, when it is shut.
func (g *changeCounter) callAfter() {
	if g.underWay == 0 && g.after != nil {
		g.after()
		g.after = nil
	}
}

// ReadOnly is a file system that refuses every change of a file.
type ReadOnly struct{ vfs.FS }

// Unwrap implements vfs.FS.
func (f ReadOnly) Unwrap() vfs.FS { return f.FS }

// Create implements vfs.FS.
func (ReadOnly) Create(name string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, refuse("create", name)
}

// OpenReadWrite implements vfs.FS.
func (ReadOnly) OpenReadWrite(name string, _ vfs.DiskWriteCategory, _ ...vfs.OpenOption) (vfs.File, error) {
	return nil, refuse("open", name)
}

// ReuseForWrite implements vfs.FS.
func (ReadOnly) ReuseForWrite(_, name string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, refuse("create", name)
}

// Link implements vfs.FS.
func (ReadOnly) Link(_, name string) error { return refuse("link", name) }

// Remove implements vfs.FS.
func (ReadOnly) Remove(name string) error { return refuse("remove", name) }

// RemoveAll implements vfs.FS.
func (ReadOnly) RemoveAll(name string) error { return refuse("remove", name) }

// Rename implements vfs.FS.
func (ReadOnly) Rename(_, name string) error { return refuse("rename", name) }

// MkdirAll implements vfs.FS.
func (ReadOnly) MkdirAll(name string, _ os.FileMode) error { return refuse("mkdir", name) }

func refuse(doing, name string) error {
	return &os.PathError{Op: doing, Path: name, Err: syscall.EROFS}
}

// SyncDir makes the names in a directory durable.
func SyncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}

// ReadFile reads a whole file.
func ReadFile(fs vfs.FS, name string) ([]byte, error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(f)
	return data, errkind.JoinClose(err, f)
}
