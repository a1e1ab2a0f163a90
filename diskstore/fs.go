package diskstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/punctualmq/punctual"
)

// safeFS is the file system that the store and its database see. It adds three things.
//
// A marker names the current MANIFEST. It must not reach the disk before the directory
// entry of the file it names does, or the database does not open after a power cut
// (cockroachdb/pebble issue 5825, not yet in v2.1.7): so the directory is synced before a
// marker is created.
//
// When a change of a file fails the database panics, or tries again for ever, or reports
// success, depending on the file; to panic would take our user's program with it. So the store
// fails first and the goroutine stops: the database never learns of it.
//
// Every change of a file passes a gate, which is shut when the store is closed: a failed
// database may go on trying, and by then the directory can have a new owner.
type safeFS struct {
	vfs.FS
	gate *gate
	fail func(error)
	// engine tells that this is the database's side, whose goroutines stop when a change fails
	// or the gate is shut.
	engine bool
}

// Unwrap implements vfs.FS.
func (f safeFS) Unwrap() vfs.FS { return f.FS }

// change runs one change of a file if the gate is open.
func (f safeFS) change(do func() error) error {
	if !f.gate.enter() {
		if f.engine {
			stopHere()
		}
		return fmt.Errorf("the store is closed: %w", punctual.ErrClosed)
	}
	err := do()
	f.gate.leave()
	if err != nil && f.engine && !errors.Is(err, os.ErrNotExist) {
		f.fail(classify("change a file", err))
		stopHere()
	}
	return err
}

// changed is change for calls that return a file.
func (f safeFS) changed(do func() (vfs.File, error)) (file vfs.File, err error) {
	err = f.change(func() error {
		file, err = do()
		return err
	})
	if err != nil {
		return nil, err
	}
	return safeFile{file, f}, nil
}

// Create implements vfs.FS.
func (f safeFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.changed(func() (vfs.File, error) {
		if strings.HasPrefix(f.PathBase(name), "marker.") {
			if err := syncDir(f.FS, f.PathDir(name)); err != nil {
				return nil, err
			}
		}
		return f.FS.Create(name, c)
	})
}

// OpenReadWrite implements vfs.FS.
func (f safeFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.changed(func() (vfs.File, error) { return f.FS.OpenReadWrite(name, c, opts...) })
}

// ReuseForWrite implements vfs.FS.
func (f safeFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.changed(func() (vfs.File, error) { return f.FS.ReuseForWrite(oldname, newname, c) })
}

// Link implements vfs.FS.
func (f safeFS) Link(oldname, newname string) error {
	return f.change(func() error { return f.FS.Link(oldname, newname) })
}

// Remove implements vfs.FS.
func (f safeFS) Remove(name string) error { return f.change(func() error { return f.FS.Remove(name) }) }

// RemoveAll implements vfs.FS.
func (f safeFS) RemoveAll(name string) error {
	return f.change(func() error { return f.FS.RemoveAll(name) })
}

// Rename implements vfs.FS.
func (f safeFS) Rename(oldname, newname string) error {
	return f.change(func() error { return f.FS.Rename(oldname, newname) })
}

// MkdirAll implements vfs.FS.
func (f safeFS) MkdirAll(dir string, perm os.FileMode) error {
	return f.change(func() error { return f.FS.MkdirAll(dir, perm) })
}

// Lock gives the database a lock of no effect: the store holds the real one, and lets go of
// it also when the database cannot.
func (f safeFS) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// OpenDir implements vfs.FS.
func (f safeFS) OpenDir(name string) (vfs.File, error) {
	dir, err := f.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return safeFile{dir, f}, nil
}

type safeFile struct {
	vfs.File
	fs safeFS
}

// Write implements vfs.File.
func (f safeFile) Write(b []byte) (n int, err error) {
	err = f.fs.change(func() error {
		n, err = f.File.Write(b)
		return err
	})
	return n, err
}

// WriteAt implements vfs.File.
func (f safeFile) WriteAt(b []byte, off int64) (n int, err error) {
	err = f.fs.change(func() error {
		n, err = f.File.WriteAt(b, off)
		return err
	})
	return n, err
}

// Sync implements vfs.File.
func (f safeFile) Sync() error { return f.fs.change(f.File.Sync) }

// SyncData implements vfs.File.
func (f safeFile) SyncData() error { return f.fs.change(f.File.SyncData) }

// SyncTo implements vfs.File.
func (f safeFile) SyncTo(length int64) (full bool, err error) {
	err = f.fs.change(func() error {
		full, err = f.File.SyncTo(length)
		return err
	})
	return full, err
}

// Preallocate implements vfs.File. It is a hint: to have less room than it asks for is no failure.
func (f safeFile) Preallocate(offset, length int64) (err error) {
	return errors.Join(f.fs.change(func() error {
		err = f.File.Preallocate(offset, length)
		return nil
	}), err)
}

// gate lets changes of files pass until it is shut.
type gate struct {
	mu     sync.Mutex
	passed int    // changes under way; guarded by mu
	shut   bool   // guarded by mu
	after  func() // called when it is shut and no change is under way; guarded by mu
}

func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return false
	}
	g.passed++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.passed--
	g.finish()
}

// close shuts the gate and calls after, if not nil, as soon as no change is under way, which is
// at once unless the disk hangs.
func (g *gate) close(after func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = true
	if after != nil {
		g.after = after
	}
	g.finish()
}

// finish calls after when it is time. Called with mu held.
func (g *gate) finish() {
	if g.shut && g.passed == 0 && g.after != nil {
		g.after()
		g.after = nil
	}
}

// unchanging refuses every change of a file.
type unchanging struct{ vfs.FS }

// Unwrap implements vfs.FS.
func (f unchanging) Unwrap() vfs.FS { return f.FS }

// Create implements vfs.FS.
func (unchanging) Create(name string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, refuse("create", name)
}

// OpenReadWrite implements vfs.FS.
func (unchanging) OpenReadWrite(name string, _ vfs.DiskWriteCategory, _ ...vfs.OpenOption) (vfs.File, error) {
	return nil, refuse("open", name)
}

// ReuseForWrite implements vfs.FS.
func (unchanging) ReuseForWrite(_, name string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, refuse("create", name)
}

// Link implements vfs.FS.
func (unchanging) Link(_, name string) error { return refuse("link", name) }

// Remove implements vfs.FS.
func (unchanging) Remove(name string) error { return refuse("remove", name) }

// RemoveAll implements vfs.FS.
func (unchanging) RemoveAll(name string) error { return refuse("remove", name) }

// Rename implements vfs.FS.
func (unchanging) Rename(_, name string) error { return refuse("rename", name) }

// MkdirAll implements vfs.FS.
func (unchanging) MkdirAll(name string, _ os.FileMode) error { return refuse("mkdir", name) }

func refuse(doing, name string) error {
	return &os.PathError{Op: doing, Path: name, Err: syscall.EROFS}
}

func syncDir(fs vfs.FS, dir string) error {
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

// holder is the content of the file HOLDER: who has the directory open.
type holder struct {
	PID     int       `json:"pid"`
	Host    string    `json:"host"`
	Program string    `json:"program"`
	Since   time.Time `json:"since"`
}

func (h holder) String() string {
	return fmt.Sprintf("process %d (%s) on %s since %s", h.PID, h.Program, h.Host, h.Since.Format(time.RFC3339))
}

// lockDir makes the caller the one owner of the directory, or says who is.
func lockDir(fs vfs.FS, dir string) (io.Closer, error) {
	lock, err := lockFile(fs, dir)
	if err != nil {
		known := lockError(dir, err)
		if h, herr := readHolder(fs, dir); herr == nil && errors.Is(known, punctual.ErrLocked) {
			return nil, fmt.Errorf("directory %s: %w by %v; one process owns a directory at a time", dir, punctual.ErrLocked, h)
		}
		return nil, known
	}
	if err := writeHolder(fs, dir); err != nil {
		return nil, fmt.Errorf("write %s: %w", fs.PathJoin(dir, "HOLDER"), joinClose(err, lock))
	}
	return lock, nil
}

// lockFile takes the lock itself. The kernel refuses it to other processes, the file system to
// a second opener in this one, but by name only: so the directory is named without links.
func lockFile(fs vfs.FS, dir string) (io.Closer, error) {
	if vfs.Root(fs) == vfs.Default {
		full, err := filepath.Abs(dir)
		if err == nil {
			full, err = filepath.EvalSymlinks(full)
		}
		if err != nil {
			return nil, err
		}
		dir = full
	}
	return fs.Lock(fs.PathJoin(dir, "LOCK"))
}

func lockError(dir string, err error) error {
	if os.IsPermission(err) || strings.Contains(err.Error(), "read-only") {
		return classify("lock directory "+dir, err)
	}
	return fmt.Errorf("lock directory %s: %w: %v", dir, punctual.ErrLocked, err)
}

func readHolder(fs vfs.FS, dir string) (h holder, err error) {
	f, err := fs.Open(fs.PathJoin(dir, "HOLDER"))
	if err != nil {
		return h, err
	}
	defer f.Close()
	return h, json.NewDecoder(f).Decode(&h)
}

func writeHolder(fs vfs.FS, dir string) error {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	text, err := json.Marshal(holder{os.Getpid(), host, filepath.Base(os.Args[0]), time.Now().UTC().Truncate(time.Second)})
	if err != nil {
		return err
	}
	f, err := fs.Create(fs.PathJoin(dir, "HOLDER"), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	return joinClose(err, f)
}

// joinClose closes c and returns err, or the error of closing when err is nil.
func joinClose(err error, c io.Closer) error {
	if cerr := c.Close(); err == nil {
		return cerr
	}
	return err
}
