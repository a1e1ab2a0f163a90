// Package directory makes one process the owner of a directory at a time. Two things see to it;
// docs/decisions/0015 says why two.
//
// Three locks keep others out. The kernel's lock of the directory itself is not lost by opening and
// closing a file. A lock of the file LOCK is seen by other machines. A list of the directories that
// are open in this process does the rest. All of them mean the directory, not its name.
//
// The mark finds out when a lock did not hold, or when the path does not lead to the directory any
// more. See Dir.
//
// The package also knows what may be in the directory, and how much space is free.
package directory

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/errkind"
	"github.com/punctualmq/punctual/diskstore/internal/failstop"
)

// Make makes a directory that survives a power cut, unless it exists, and returns its path. Where
// the file system is the machine's, the path is absolute and without links. So it leads to the same
// directory after the process has changed its working directory, or somebody a link.
func Make(fs vfs.FS, dir string) (string, error) {
	missing, err := missingDirs(fs, dir)
	if err == nil && len(missing) > 0 {
		err = fs.MkdirAll(dir, 0o700)
	}
	for _, d := range missing {
		if err == nil {
			err = failstop.SyncDir(fs, fs.PathDir(d))
		}
	}
	if err != nil {
		return "", errkind.Classify("make the directory", err)
	}
	full, err := resolve(fs, dir)
	return full, errkind.Classify("find the directory", err)
}

// missingDirs are those of a directory and the ones above it that do not exist, innermost first.
func missingDirs(fs vfs.FS, dir string) (missing []string, err error) {
	for {
		_, err := fs.Stat(dir)
		parent := fs.PathDir(dir)
		switch {
		case err == nil || parent == dir:
			return missing, nil
		case !errors.Is(err, os.ErrNotExist):
			return nil, err
		}
		missing = append(missing, dir)
		dir = parent
	}
}

// resolve returns the absolute path of a directory without links; on a file system that is not the
// machine's, the path as it is.
func resolve(fs vfs.FS, dir string) (string, error) {
	if vfs.Root(fs) != vfs.Default {
		return dir, nil
	}
	full, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(full)
}

// HoldsStore tells from the names in a directory whether it holds a store. A store that a newer
// program wrote is an error. In a directory without a store foreign files are an error, and tables
// of a database are damage. A lost+found, and the files that are left when the making of a store
// was cut short, are neither.
func HoldsStore(names []string) (bool, error) {
	if err := checkFormats(names); err != nil {
		return false, err
	}
	for _, n := range names {
		if strings.HasPrefix(n, manifestMarker) {
			return true, nil
		}
	}
	for _, n := range names {
		switch {
		case n == "LOCK" || n == CopyFile || isMark(n) || strings.HasPrefix(n, formatPrefix) || strings.HasPrefix(n, "marker.") || strings.HasPrefix(n, "MANIFEST-") ||
			strings.HasPrefix(n, "OPTIONS-") || strings.HasPrefix(n, StagingPrefix) || strings.HasSuffix(n, ".log") || strings.HasPrefix(n, "temporary."):
		case strings.HasSuffix(n, ".sst"):
			return false, errkind.Corruptf("the directory holds %s but no %s", n, manifestMarker)
		case n == "lost+found":
		default:
			return false, fmt.Errorf("the directory is not empty (it holds %s) and not a store: %w; name another one", n, punctual.ErrInvalid)
		}
	}
	return false, nil
}

// The names of two files tell which program may read the directory, before the program writes
// anything. FORMAT-N is ours and is made before the database is; the other one is the database's. A
// directory without the first has format 1.
const (
	formatPrefix   = "FORMAT-"
	databaseMarker = "marker.format-version."
)

// checkFormats refuses a directory with a newer format than this program reads.
func checkFormats(names []string) error {
	for _, n := range names {
		if v, ok := strings.CutPrefix(n, formatPrefix); ok {
			if err := checkFormat(v, FormatVersion, FormatVersion, "the store has format %d and this program reads %d"); err != nil {
				return err
			}
		}
		if strings.HasPrefix(n, databaseMarker) {
			v := n[strings.LastIndexByte(n, '.')+1:]
			if err := checkFormat(v, 0, uint64(pebble.FormatNewest), "the store's database has Pebble's format %d and this program reads up to %d"); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkFormat(version string, oldest, newest uint64, format string) error {
	v, err := strconv.ParseUint(version, 10, 64)
	remedy := "use the release that wrote it"
	switch {
	case err != nil, oldest <= v && v <= newest:
		return nil // a version that is no number is not judged here; the database checks its own marker
	case v > newest:
		remedy += ", or a newer one"
	}
	return fmt.Errorf(format+": %w; nothing is damaged: %s", v, newest, punctual.ErrUnsupported, remedy)
}

// writeFormat makes the file that tells the format, before anything is written in that format.
func writeFormat(fs vfs.FS, dir string, names []string) error {
	name := FormatFile()
	if slices.Contains(names, name) {
		return nil
	}
	f, err := fs.Create(fs.PathJoin(dir, name), vfs.WriteCategoryUnspecified)
	if err == nil {
		err = f.Close()
	}
	if err == nil {
		err = failstop.SyncDir(fs, dir)
	}
	return errkind.Classify("write "+name, err)
}

// FormatFile returns the name of the file that says in which format this program writes: FORMAT-2.
func FormatFile() string { return fmt.Sprintf("%s%d", formatPrefix, FormatVersion) }

// StagingPrefix begins the names of directories in the store's own in which a copy of it is
// prepared.
const StagingPrefix = "BACKUP-"

// removeStaging removes the directories of copies whose process ended before the copies were
// complete.
func removeStaging(fs vfs.FS, dir string, names []string) error {
	for _, n := range names {
		if !strings.HasPrefix(n, StagingPrefix) {
			continue
		}
		if err := fs.RemoveAll(fs.PathJoin(dir, n)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return errkind.Classify("remove what an unfinished backup has left", err)
		}
	}
	return nil
}

// openDirs are the directories that have an owner in this process. The list is needed because not
// every system and file system has the kernel's lock, and because a second lock of the file LOCK
// within one process, by another path to it, would succeed. Its end would then give the first lock
// away.
var openDirs struct {
	sync.Mutex
	infos []fs.FileInfo // guarded by Mutex
}

// dirLock has the three locks of one owner.
type dirLock struct {
	dir  *os.File    // the open directory, with the kernel's lock where there is one
	info fs.FileInfo // the entry in openDirs
	file io.Closer   // ends the lock of the file LOCK; nil if the file is not there and must not be made
}

// lockPause is the pause between two attempts to become the owner of a directory. There is one
// because no lock notifies those who wait for it.
const lockPause = 20 * time.Millisecond

// lockDir makes the caller the one owner of a directory. If the directory still has another owner
// after wait, the error names it.
func lockDir(fs vfs.FS, dir string, wait time.Duration) (io.Closer, error) {
	until := time.Now().Add(wait)
	lock, err := TryLock(fs, dir, true)
	for err != nil && errors.Is(LockError(dir, err), punctual.ErrLocked) && time.Now().Before(until) {
		time.Sleep(min(lockPause, time.Until(until)))
		lock, err = TryLock(fs, dir, true)
	}
	if err == nil {
		return lock, nil
	}
	known := LockError(dir, err)
	if o, oerr := ReadOwner(fs, dir); oerr == nil && errors.Is(known, punctual.ErrLocked) {
		return nil, fmt.Errorf("directory %s: %w by %v; one process owns a directory at a time", dir, punctual.ErrLocked, o)
	}
	return nil, known
}

// TryLock takes the locks of a directory, that of the file LOCK only if the file is there or may be
// made. On a file system that is not the machine's there is no other lock.
func TryLock(fs vfs.FS, dir string, mayMake bool) (io.Closer, error) {
	withFile := mayMake
	if !mayMake {
		_, err := fs.Stat(fs.PathJoin(dir, "LOCK"))
		withFile = !errors.Is(err, os.ErrNotExist)
	}
	if vfs.Root(fs) != vfs.Default {
		if !withFile {
			return io.NopCloser(nil), nil
		}
		return fs.Lock(fs.PathJoin(dir, "LOCK"))
	}
	full, err := resolve(fs, dir)
	if err != nil {
		return nil, err
	}
	l := &dirLock{}
	if err := l.take(fs, full, withFile); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// errOwned tells that a directory has an owner.
var errOwned = errors.New("it has an owner")

func (l *dirLock) take(fs vfs.FS, dir string, withFile bool) (err error) {
	if l.dir, err = os.Open(dir); err != nil {
		return err
	}
	info, err := l.dir.Stat()
	if err != nil {
		return err
	}
	if err := l.enlist(info); err != nil {
		return err
	}
	if err := lockOpenDir(l.dir); err != nil {
		return err
	}
	if withFile {
		l.file, err = fs.Lock(fs.PathJoin(dir, "LOCK"))
	}
	return err
}

// enlist notes the directory as open in this process. It returns errOwned if the directory is open
// already.
func (l *dirLock) enlist(info fs.FileInfo) error {
	openDirs.Lock()
	defer openDirs.Unlock()
	for _, other := range openDirs.infos {
		if os.SameFile(info, other) {
			return errOwned
		}
	}
	openDirs.infos = append(openDirs.infos, info)
	l.info = info
	return nil
}

// Close gives the locks back that were taken.
func (l *dirLock) Close() (err error) {
	if l.file != nil {
		err = l.file.Close()
	}
	if l.dir != nil {
		err = errors.Join(err, unlockOpenDir(l.dir), l.dir.Close())
	}
	openDirs.Lock()
	defer openDirs.Unlock()
	openDirs.infos = slices.DeleteFunc(openDirs.infos, func(i fs.FileInfo) bool { return i == l.info })
	return err
}

// LockError gives an error of locking a directory its kind.
func LockError(dir string, err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) || errkind.NoFileLeft(err) {
		return errkind.Classify("lock directory "+dir, err)
	}
	return fmt.Errorf("lock directory %s: %w: %v", dir, punctual.ErrLocked, err)
}

// Owner is the content of the file OWNER-*: who opened the directory last.
type Owner struct {
	PID     int       `json:"pid"`
	Host    string    `json:"host"`
	Program string    `json:"program"`
	Since   time.Time `json:"since"`
}

// String names the owner in an error.
func (o Owner) String() string {
	return fmt.Sprintf("process %d (%s) on %s since %s", o.PID, o.Program, o.Host, o.Since.Format(time.RFC3339))
}

const ownerPrefix = "OWNER-"

// isMark tells whether a file is the mark of an owner.
func isMark(name string) bool { return strings.HasPrefix(name, ownerPrefix) }

// ReadOwner reads who opened a directory last.
func ReadOwner(fs vfs.FS, dir string) (last Owner, err error) {
	names, err := fs.List(dir)
	if err != nil {
		return last, err
	}
	err = fmt.Errorf("%s has no file %s*: %w", dir, ownerPrefix, os.ErrNotExist)
	for _, n := range names {
		if !strings.HasPrefix(n, ownerPrefix) {
			continue
		}
		data, rerr := failstop.ReadFile(fs, fs.PathJoin(dir, n))
		var o Owner
		if rerr == nil {
			rerr = json.Unmarshal(data, &o)
		}
		if rerr == nil && !o.Since.Before(last.Since) {
			last, err = o, nil
		}
	}
	return last, err
}

// Dir is the directory of a store, with the right to change it. Its mark shows that right: a file
// OWNER-* with a random number in its name, which the owner makes when it opens the directory.
// Whoever opens the directory removes the marks of all others before it reads any file of the
// store. So an owner that finds its mark by its path is the owner still, and the path still leads
// to its directory. An owner that misses its mark fails.
//
// What follows from that depends on when the owner looks for its mark:
//
//   - After each fsync, and after each write of the claim log, before anyone learns that it
//     succeeded. If the mark is there then, a successor has not yet begun to read, and will read
//     what was written. If it is not, nothing is reported. So what either of them reports, both
//     know.
//   - Before a file is made, renamed or removed. Owner and successor number their files alike, so a
//     file that one makes may replace a file of the other. What makes a file superfluous was
//     written before the file is removed. So with the mark still there the successor reads that
//     first and does not need the file.
//
// A file can still be made in the time between the check and the making. That is an instant, unless
// the making has to wait until another file is closed (failstop.FS). For that a lock must fail and
// another process open the whole store in that time. The locks are the first protection, the mark
// is the second. The mark is not synced, because a power cut ends every process that could
// encounter it.
type Dir struct {
	fs    vfs.FS
	path  string
	state *failstop.State
	log   *slog.Logger
	space spaceGuard
	lock  io.Closer // let go by Release
	mark  string    // path of the mark; empty until it is made, set before any other goroutine runs
}

// New returns a directory that has no owner yet. CheckSpace refuses pushes that would leave less
// than reserve bytes free.
func New(fs vfs.FS, path string, reserve uint64, state *failstop.State, log *slog.Logger) *Dir {
	return &Dir{fs: fs, path: path, state: state, log: log, space: spaceGuard{dir: path, reserve: reserve}}
}

// Own makes the store the owner of its directory. fresh tells that the directory holds no store
// yet. Own waits up to wait for an earlier owner to end. In a directory that holds something else,
// or what a newer program wrote, it changes nothing. Each success needs its Release.
func (d *Dir) Own(wait time.Duration) (fresh bool, err error) {
	if _, _, err := d.contents(); err != nil {
		return false, err
	}
	if d.lock, err = lockDir(d.fs, d.path, wait); err != nil {
		return false, err
	}
	if fresh, err = d.takeOver(); err != nil {
		d.Release()
	}
	return fresh, err
}

// takeOver makes the mark, and makes the directory ready for a store. Called with the locks held.
func (d *Dir) takeOver() (fresh bool, err error) {
	if err := d.takeCopy(); err != nil {
		return false, err
	}
	if err := d.makeMark(); err != nil {
		return false, err
	}
	// What was read before the mark was made may have changed, so the directory is listed again.
	names, there, err := d.contents()
	if err != nil {
		return false, err
	}
	own := failstop.NewFS(d.fs, d.state, d.Verify, failstop.Store)
	if err := removeStaging(own, d.path, names); err != nil {
		return false, err
	}
	return !there, writeFormat(own, d.path, names)
}

// CopyFile is the name of a file that every backup has, and that the first Open of the backup
// removes. Beside the mark of an owner the file shows that somebody has copied a backup over a
// store.
const CopyFile = "COPY"

// takeCopy makes a store of a backup. Called with the locks held, before the mark is made.
func (d *Dir) takeCopy() error {
	names, err := d.fs.List(d.path)
	if err != nil {
		return errkind.Classify("read the directory", err)
	}
	if !slices.Contains(names, CopyFile) {
		return nil
	}
	if at := slices.IndexFunc(names, isMark); at >= 0 {
		return fmt.Errorf("the directory holds %s and %s, so a backup was copied over a store, and which messages are left nobody can tell: %w; copy the backup into an empty directory",
			CopyFile, names[at], punctual.ErrInvalid)
	}
	err = d.fs.Remove(d.fs.PathJoin(d.path, CopyFile))
	if err == nil {
		err = failstop.SyncDir(d.fs, d.path)
	}
	return errkind.Classify("remove "+CopyFile, err)
}

// contents lists the directory and tells whether it holds a store.
func (d *Dir) contents() (names []string, there bool, err error) {
	if names, err = d.fs.List(d.path); err != nil {
		return nil, false, errkind.Classify("read the directory", err)
	}
	there, err = HoldsStore(names)
	return names, there, err
}

// Release gives the directory back as soon as no change of a file is under way, and waits up to 100
// ms for that. It refuses all further changes.
func (d *Dir) Release() {
	released := make(chan struct{})
	d.state.RefuseChanges(func() {
		if err := d.lock.Close(); err != nil {
			d.log.Warn("giving back the lock of a store", "dir", d.path, "error", err)
		}
		close(released)
	})
	timer := time.NewTimer(100 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-released:
	case <-timer.C: // the disk hangs
	}
}

// Unlock gives back the locks alone, so that the store goes on as if the locks had failed to hold.
// Tests use it.
func (d *Dir) Unlock() error {
	lock := d.lock
	d.lock = io.NopCloser(nil)
	return lock.Close()
}

// ForgetSpace makes the next CheckSpace ask the disk again. Tests use it.
func (d *Dir) ForgetSpace() {
	d.space.mu.Lock()
	defer d.space.mu.Unlock()
	d.space.looked = time.Time{}
}

// makeMark makes the mark and removes all others. Called with the locks held.
func (d *Dir) makeMark() error {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	text, err := json.Marshal(Owner{os.Getpid(), host, filepath.Base(os.Args[0]), time.Now().UTC().Truncate(time.Second)})
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%s%016x", ownerPrefix, rand.Uint64())
	path := d.fs.PathJoin(d.path, name)
	f, err := d.fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return errkind.Classify("write "+name, err)
	}
	_, err = f.Write(append(text, '\n'))
	if err = errkind.JoinClose(err, f); err != nil {
		return errkind.Classify("write "+name, err)
	}
	names, err := d.fs.List(d.path)
	if err != nil {
		return errkind.Classify("read the directory", err)
	}
	for _, n := range names {
		if isMark(n) && n != name {
			if err := d.fs.Remove(d.fs.PathJoin(d.path, n)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return errkind.Classify("remove the mark of an earlier owner", err)
			}
		}
	}
	d.mark = path
	return nil
}

// Verify returns why the directory is not the store's any more, or why that could not be found out,
// or nil. Before the mark is made it returns nil.
func (d *Dir) Verify() error {
	if d.mark == "" {
		return nil
	}
	_, err := d.fs.Stat(d.mark)
	switch {
	case err == nil:
		return nil
	case !IsMissing(err):
		return fmt.Errorf("ask whether directory %s is still the one that was opened: %w", d.path, err)
	}
	if other, err := ReadOwner(d.fs, d.path); err == nil {
		return fmt.Errorf("directory %s was opened by %v while this store had it open: what was reported as stored is kept, but only one of the two can go on; find out why the lock did not hold (a network file system?), and let one process own the directory",
			d.path, other)
	}
	return fmt.Errorf("directory %s was moved, replaced or removed while the store had it open, or its file %s was: nothing more is written; put it back, then open the store again",
		d.path, d.fs.PathBase(d.mark))
}

// Exists tells whether a directory of this machine holds a store. It changes nothing.
func Exists(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), manifestMarker) {
			return true, nil
		}
	}
	return false, errkind.Classify("look for a store", err)
}

// FormatVersion is the format of what a store writes. A change that an older program would misread
// raises it.
const FormatVersion = 2

// manifestMarker begins the name of a file that every database has from its making on, so that a
// directory with such a file holds a store.
const manifestMarker = "marker.manifest"

// IsMissing tells whether an error says that a path does not exist, or that a part of the way to it
// is no directory.
func IsMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}
