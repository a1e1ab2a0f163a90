package failstop

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
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

// The store's own side gets the errors of changes. The goroutines of the database stop when a
// change is refused, or fails for another reason than that a file does not exist.
const (
	Store    Side = false
	Database Side = true
)

// FS is the file system that the store and its database see. It adds the following to the file
// system below it.
//
// A file marker.manifest.* names the current MANIFEST. The marker may reach the disk before the
// directory entry of the MANIFEST. Then the database does not open after a power cut
// (cockroachdb/pebble issue 5825, not yet mended in v2.1.7). So FS syncs the directory before a
// marker is created.
//
// When a change of a file fails, the database panics, tries again for ever, or reports success,
// depending on the file. A panic would end our user's program. So the store fails first and the
// goroutine stops: the database never learns of it.
//
// Every change of a file is counted, and refused when the store is closed or has failed. A failed
// database may go on trying, and by then the directory can have a new owner. A store that has lost
// its directory to a new owner fails before it harms that one. It also fails before it reports
// anything that the new owner does not know.
//
// When no further file can be opened, FS waits until another one is closed (whenFileLeft). While
// the store closes, FS can refuse the reads of the database, so that a long read ends
// (changeCounter.noReads). The database learns of a read that has failed after a pause (unread).
// Lock has no effect.
type FS struct {
	vfs.FS
	state *State
	owned func() error // returns why the directory is not the store's any more, or nil
	side  Side
}

// NewFS returns the FS over fs for one side of a store. owned returns why the store is not the
// owner of its directory any more, or nil.
func NewFS(fs vfs.FS, state *State, owned func() error, side Side) FS {
	return FS{FS: fs, state: state, owned: owned, side: side}
}

// Unwrap implements vfs.FS.
func (f FS) Unwrap() vfs.FS { return f.FS }

// change runs one change of a file unless changes are refused. Of a change that is refused or
// fails, the store's side gets the error; on the database's side the goroutine stops here (see
// Side).
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

// named is change for what links, renames or removes a file, which only the owner of the directory
// may do.
func (f FS) named(do func() error) error {
	return f.change(func() error {
		if err := f.verify(); err != nil {
			return err
		}
		return do()
	})
}

// verify returns why the store does not own its directory any more, or nil. It fails a store that
// does not.
func (f FS) verify() error {
	err := f.owned()
	if err != nil {
		f.state.Fail(err)
	}
	return err
}

// kept is change for a write or an fsync after which the store reports something as stored. It asks
// afterwards whether the store still owns the directory, because only then does the next owner read
// what was written.
func (f FS) kept(do func() error) error {
	return f.change(func() error {
		if err := do(); err != nil {
			return err
		}
		return f.verify()
	})
}

// whenFileLeft opens a file. While no further file may be opened it tries again, for half of the
// time that the disk may take. It may try again because a failed attempt changes nothing, and it is
// worth trying because others will close files.
func (f FS) whenFileLeft(open func() (vfs.File, error)) (opened vfs.File, err error) {
	for began, waited := time.Now(), false; ; waited = true {
		opened, err = open()
		if !errkind.NoFileLeft(err) || time.Since(began) > f.state.timeout/2 {
			return opened, err
		}
		if !waited {
			f.state.LogSeldom(slog.LevelWarn, "no further file can be opened; waiting until one is closed", "limit", errkind.FileLimit(), "error", err)
		}
		select {
		case <-time.After(fileWait):
		case <-f.state.failed:
			return opened, err
		}
	}
}

// fileWait is the pause between two attempts to open a file.
const fileWait = 10 * time.Millisecond

// changed carries out a call that changes the disk and returns a file. Its errors are those of
// named. It asks for the owner before each attempt, because the directory may get another one while
// whenFileLeft waits.
func (f FS) changed(do func() (vfs.File, error)) (opened vfs.File, err error) {
	err = f.change(func() error {
		opened, err = f.whenFileLeft(func() (vfs.File, error) {
			if err := f.verify(); err != nil {
				return nil, err
			}
			return do()
		})
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
				return nil, err // if no file could be opened for the sync, whenFileLeft runs this function again
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
		return opened, f.unread(err)
	}
	return file{opened, f}, nil
}

// unread returns the error of a read, to the database after a pause, because the database tries a
// compaction that has failed again at once, for ever. After StopReads the goroutine stops here.
func (f FS) unread(err error) error {
	if err == nil || err == io.EOF || f.side == Store {
		return err
	}
	if f.state.changes.stopReads.Load() {
		BlockForever()
	}
	time.Sleep(readPause)
	return err
}

// readPause is how long the database gets to wait for the error of a read.
const readPause = 100 * time.Millisecond

// Lock gives the database a lock of no effect. The store holds the real one (package directory), so
// that it can give the lock back also when the database hangs.
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
	n, err := f.File.ReadAt(b, off)
	return n, f.fs.unread(err)
}

// Write implements vfs.File. A write of the store itself needs kept, because what is in the claim
// log is reported as stored without an fsync.
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

// Preallocate implements vfs.File. An error of the file goes to the caller and does not fail the
// store, because a preallocation is only a hint.
func (f file) Preallocate(offset, length int64) (err error) {
	return errors.Join(f.fs.change(func() error {
		err = f.File.Preallocate(offset, length)
		return nil
	}), err)
}

// changeCounter counts the changes of files under way, and refuses further ones once it is shut.
type changeCounter struct {
	mu       sync.Mutex
	underWay int    // changes under way; guarded by mu
	done     uint64 // changes that have returned; guarded by mu
	shut     bool   // guarded by mu
	after    func() // called, with mu held, when shut is set and no change is under way; guarded by mu

	// noReads refuses the database's reads, so that a long read ends. State.WaitCalls sets it for a
	// while, State.RefuseReads for good.
	noReads atomic.Bool
	// stopReads stops each goroutine of the database at its next read that fails (State.StopReads).
	stopReads atomic.Bool
}

// ErrReadsEnded is the error of a read of the database that is refused because the store is being
// closed.
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

// close refuses all further changes. It calls after, if not nil, as soon as no change is under way:
// at once, or when the last change under way returns, which a disk that hangs may put off for ever.
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

// ReadOnly is a file system that refuses every change of a file, except that Lock, which an FS
// above replaces, may make its file.
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
