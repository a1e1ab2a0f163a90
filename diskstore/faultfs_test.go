package diskstore

import (
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// hookFS asks a hook before the calls that change files, other than Lock and Preallocate, and
// before a directory is opened. It fails the call with what the hook returns. The hook may also
// wait, or copy the file system. Pebble's errorfs would do, but for its ReuseForWrite, which
// returns a file without faults.
type hookFS struct {
	vfs.FS
	hook func(op fsOp) error
}

// fsOp is one call: kind is create, link, remove, rename, mkdir, opendir, write or sync, path is
// the path of the file, and name its last part.
type fsOp struct{ kind, name, path string }

func (f hookFS) Unwrap() vfs.FS { return f.FS }

func (f hookFS) ask(kind, name string) error {
	if err := f.hook(fsOp{kind, f.PathBase(name), name}); err != nil {
		return &os.PathError{Op: kind, Path: name, Err: err}
	}
	return nil
}

func (f hookFS) wrap(name string, file vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return hookFile{file, f, name}, nil
}

func (f hookFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.ask("create", name); err != nil {
		return nil, err
	}
	file, err := f.FS.Create(name, c)
	return f.wrap(name, file, err)
}

func (f hookFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	if err := f.ask("create", name); err != nil {
		return nil, err
	}
	file, err := f.FS.OpenReadWrite(name, c, o...)
	return f.wrap(name, file, err)
}

// ReuseForWrite does not reuse: MemFS.CrashClone deadlocks with the rename inside (pebble v2.1.7).
func (f hookFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.Remove(oldname); err != nil {
		return nil, err
	}
	return f.Create(newname, c)
}

func (f hookFS) OpenDir(name string) (vfs.File, error) {
	if err := f.ask("opendir", name); err != nil {
		return nil, err
	}
	file, err := f.FS.OpenDir(name)
	return f.wrap(name, file, err)
}

func (f hookFS) Link(oldname, newname string) error {
	if err := f.ask("link", newname); err != nil {
		return err
	}
	return f.FS.Link(oldname, newname)
}

func (f hookFS) Remove(name string) error {
	if err := f.ask("remove", name); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

func (f hookFS) RemoveAll(name string) error {
	if err := f.ask("remove", name); err != nil {
		return err
	}
	return f.FS.RemoveAll(name)
}

func (f hookFS) Rename(oldname, newname string) error {
	if err := f.ask("rename", newname); err != nil {
		return err
	}
	return f.FS.Rename(oldname, newname)
}

func (f hookFS) MkdirAll(dir string, perm os.FileMode) error {
	if err := f.ask("mkdir", dir); err != nil {
		return err
	}
	return f.FS.MkdirAll(dir, perm)
}

// hookFile is an open file of a hookFS. It hides the file descriptor, because the database could
// use that without asking the hook.
type hookFile struct {
	vfs.File
	fs   hookFS
	name string
}

func (f hookFile) Fd() uintptr { return vfs.InvalidFd }

func (f hookFile) Write(b []byte) (int, error) {
	if err := f.fs.ask("write", f.name); err != nil {
		return 0, err
	}
	return f.File.Write(b)
}

func (f hookFile) WriteAt(b []byte, at int64) (int, error) {
	if err := f.fs.ask("write", f.name); err != nil {
		return 0, err
	}
	return f.File.WriteAt(b, at)
}

func (f hookFile) Sync() error {
	if err := f.fs.ask("sync", f.name); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f hookFile) SyncData() error {
	if err := f.fs.ask("sync", f.name); err != nil {
		return err
	}
	return f.File.SyncData()
}

func (f hookFile) SyncTo(n int64) (bool, error) {
	if err := f.fs.ask("sync", f.name); err != nil {
		return false, err
	}
	return f.File.SyncTo(n)
}

// failingReads is a disk that does not read tables while armed is set, or with only, not for a
// function of this name.
type failingReads struct {
	vfs.FS
	only   string
	armed  atomic.Bool
	failed atomic.Int64 // how many reads failed
}

func (f *failingReads) Unwrap() vfs.FS { return f.FS }

func (f *failingReads) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.Open(name, opts...)
	if err != nil || !strings.HasSuffix(name, ".sst") {
		return file, err
	}
	return failingFile{file, f}, nil
}

type failingFile struct {
	vfs.File
	fs *failingReads
}

func (f failingFile) ReadAt(b []byte, off int64) (int, error) {
	if f.fs.armed.Load() && (f.fs.only == "" || strings.Contains(string(debug.Stack()), f.fs.only)) {
		f.fs.failed.Add(1)
		return 0, errIO
	}
	return f.File.ReadAt(b, off)
}

// faults is a hook that can be told to fail or to hang.
type faults struct {
	mu    sync.Mutex
	count int                         // guarded by mu: calls so far
	rule  func(n int, op fsOp) error  // guarded by mu: the error of a call, by its number, or nil
	wait  func(op fsOp) chan struct{} // guarded by mu: what a call waits for, or nil
	hits  int                         // guarded by mu: how often a call got an error or had to wait so far
	last  fsOp                        // guarded by mu: the last of these calls
}

func (f *faults) hook(op fsOp) error {
	f.mu.Lock()
	f.count++
	var err error
	if f.rule != nil {
		if err = f.rule(f.count, op); err != nil {
			f.hits++
			f.last = op
		}
	}
	var gate chan struct{}
	if f.wait != nil {
		if gate = f.wait(op); gate != nil {
			f.hits++
			f.last = op
		}
	}
	f.mu.Unlock()
	if gate != nil {
		<-gate
	}
	return err
}

func (f *faults) set(rule func(n int, op fsOp) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rule = rule
}

func (f *faults) hang(wait func(op fsOp) chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wait = wait
}

func (f *faults) state() (count, hits int, last fsOp) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count, f.hits, f.last
}

// afterKill returns the file system as a killed process leaves it.
func afterKill(mem *vfs.MemFS) *vfs.MemFS {
	return mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
}

var (
	errIO    error = syscall.EIO
	errSpace error = syscall.ENOSPC
)
