package main

import (
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// This file counts what the embedded store writes to the disk. The body of a message may be written
// more than once: to the log, by a flush, and by compactions. So the bytes written for a message
// are several times its body.

// diskWrites counts the bytes that were written to files, and the syncs.
type diskWrites struct{ bytes, syncs atomic.Int64 }

// countDiskWrites makes every store that this process opens from now on write through a file system
// that counts. It replaces the default file system of the database for the whole process, because
// the store has no option for it. That harms nothing, because a round has a process of its own. A
// round calls it once, before it opens its store.
func countDiskWrites() *diskWrites {
	w := new(diskWrites)
	vfs.Default = countingFS{vfs.Default, w}
	return w
}

// diskWritten is what diskWrites had counted at one moment.
type diskWritten struct{ bytes, syncs int64 }

func (w *diskWrites) now() diskWritten { return diskWritten{w.bytes.Load(), w.syncs.Load()} }

// note notes what was written and synced for each of n messages since from.
func (w *diskWrites) note(out *Result, from diskWritten, n int64) {
	to := w.now()
	written := float64(to.bytes-from.bytes) / float64(n)
	out.set("disk_bytes_per_life", written)
	out.set("disk_bytes_per_body_byte", written/bodyBytes)
	out.set("syncs_per_life", float64(to.syncs-from.syncs)/float64(n))
}

// countingFS counts what is written to the files that it opens.
type countingFS struct {
	vfs.FS
	writes *diskWrites
}

// Unwrap returns the file system that does the work.
func (f countingFS) Unwrap() vfs.FS { return f.FS }

func (f countingFS) counted(file vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return countingFile{file, f.writes}, nil
}

// Create creates a file whose writes are counted.
func (f countingFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.counted(f.FS.Create(name, c))
}

// OpenReadWrite opens a file to be changed in place.
func (f countingFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	return f.counted(f.FS.OpenReadWrite(name, c, o...))
}

// ReuseForWrite gives an old file, for example a log, a new name and opens it to be written over.
func (f countingFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.counted(f.FS.ReuseForWrite(oldname, newname, c))
}

// OpenDir opens a folder, because syncing its entries counts like syncing a file.
func (f countingFS) OpenDir(name string) (vfs.File, error) { return f.counted(f.FS.OpenDir(name)) }

// countingFile is an open file of a countingFS.
type countingFile struct {
	vfs.File
	writes *diskWrites
}

// Write appends to the file.
func (f countingFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	f.writes.bytes.Add(int64(n))
	return n, err
}

// WriteAt writes to a place of the file.
func (f countingFile) WriteAt(b []byte, at int64) (int, error) {
	n, err := f.File.WriteAt(b, at)
	f.writes.bytes.Add(int64(n))
	return n, err
}

// Sync is an fsync.
func (f countingFile) Sync() error {
	f.writes.syncs.Add(1)
	return f.File.Sync()
}

// SyncData is an fdatasync.
func (f countingFile) SyncData() error {
	f.writes.syncs.Add(1)
	return f.File.SyncData()
}

// SyncTo counts as a sync only where the file system made a full sync of it. Otherwise it only asks
// the kernel to begin writing, and the caller does not wait for the disk.
func (f countingFile) SyncTo(length int64) (fullSync bool, err error) {
	fullSync, err = f.File.SyncTo(length)
	if fullSync {
		f.writes.syncs.Add(1)
	}
	return fullSync, err
}
