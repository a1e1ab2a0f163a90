package diskstore

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/punctualmq/punctual"
)

// safeFS is the file system that the database sees. It adds two things.
//
// A marker names the current MANIFEST. It must not reach the disk before the directory
// entry of the file it names does, or the database does not open after a power cut
// (cockroachdb/pebble issue 5825, not yet in v2.1.7): so the directory is synced before a
// marker is created.
//
// When the sync of a directory fails the database panics and would take our user's
// program with it: so the store fails first and the goroutine ends.
type safeFS struct {
	vfs.FS
	fail func(error)
}

func (f safeFS) Unwrap() vfs.FS { return f.FS }

func (f safeFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasPrefix(f.PathBase(name), "marker.") {
		if err := syncDir(f.FS, f.PathDir(name)); err != nil {
			return nil, err
		}
	}
	return f.FS.Create(name, c)
}

func (f safeFS) OpenDir(name string) (vfs.File, error) {
	dir, err := f.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return safeDir{dir, f.fail}, nil
}

type safeDir struct {
	vfs.File
	fail func(error)
}

func (d safeDir) Sync() error {
	err := d.File.Sync()
	if err != nil {
		d.fail(fmt.Errorf("sync of the directory: %w", err))
		runtime.Goexit()
	}
	return nil
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
func lockDir(fs vfs.FS, dir string) (*pebble.Lock, error) {
	lock, err := pebble.LockDirectory(dir, fs)
	if err != nil {
		if h, herr := readHolder(fs, dir); herr == nil {
			return nil, fmt.Errorf("directory %s: %w by %v; one process owns a directory at a time", dir, punctual.ErrLocked, h)
		}
		return nil, lockError(dir, err)
	}
	if err := writeHolder(fs, dir); err != nil {
		return nil, fmt.Errorf("write %s: %w", fs.PathJoin(dir, "HOLDER"), joinClose(err, lock))
	}
	return lock, nil
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
