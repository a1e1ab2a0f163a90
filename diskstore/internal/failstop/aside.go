package failstop

import (
	"os"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Aside is the file system of a database that may also write into directories where a copy of it is
// prepared. A change there that fails is an error of the copy, not of the store: the caller gets
// the error, and the store goes on.
type Aside struct {
	vfs.FS // the database's side of an FS
	// Plain is the file system without the rules of an FS.
	Plain vfs.FS
	// Prefix begins the path of every directory of that kind.
	Prefix string
}

// Unwrap implements vfs.FS.
func (f Aside) Unwrap() vfs.FS { return f.FS }

// of is the file system for a path.
func (f Aside) of(path string) vfs.FS {
	if strings.HasPrefix(path, f.Prefix) {
		return f.Plain
	}
	return f.FS
}

// Create implements vfs.FS.
func (f Aside) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.of(name).Create(name, c)
}

// OpenReadWrite implements vfs.FS.
func (f Aside) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.of(name).OpenReadWrite(name, c, opts...)
}

// OpenDir implements vfs.FS.
func (f Aside) OpenDir(name string) (vfs.File, error) { return f.of(name).OpenDir(name) }

// Link implements vfs.FS.
func (f Aside) Link(oldname, newname string) error { return f.of(newname).Link(oldname, newname) }

// Remove implements vfs.FS.
func (f Aside) Remove(name string) error { return f.of(name).Remove(name) }

// RemoveAll implements vfs.FS.
func (f Aside) RemoveAll(name string) error { return f.of(name).RemoveAll(name) }

// Rename implements vfs.FS.
func (f Aside) Rename(oldname, newname string) error { return f.of(newname).Rename(oldname, newname) }

// MkdirAll implements vfs.FS.
func (f Aside) MkdirAll(dir string, perm os.FileMode) error { return f.of(dir).MkdirAll(dir, perm) }
