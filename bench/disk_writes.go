package main

import (
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// What the embedded store writes. Its bodies are written more than once: to the log, by a flush and by each compaction. So
// the bytes written for a message are several times its body, and they are what a busy disk runs out of first.

// diskWrites counts the bytes that were written to files, and how often a caller waited for the disk.
type diskWrites struct{ bytes, syncs atomic.Int64 }

// countDiskWrites has every store that this process opens from now on write through a file system that counts. It replaces
// the one that is the database's default, because the store has no option for it. A round calls it once, before it opens its
// store, and has its process to itself.
func countDiskWrites() *diskWrites {
	w := new(diskWrites)
	vfs.Default = countingFS{vfs.Default, w}
	return w
}

// diskWritten is what diskWrites had counted at one moment.
type diskWritten struct{ bytes, syncs int64 }

func (w *diskWrites) now() diskWritten { return diskWritten{w.bytes.Load(), w.syncs.Load()} }

// note writes down what n messages have cost the disk since from.
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

// Create makes a file.
func (f countingFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.counted(f.FS.Create(name, c))
}

// OpenReadWrite opens a file that is changed in place.
func (f countingFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	return f.counted(f.FS.OpenReadWrite(name, c, o...))
}

// ReuseForWrite gives an old log a new name and writes over it.
func (f countingFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.counted(f.FS.ReuseForWrite(oldname, newname, c))
}

// OpenDir opens a folder, whose entries are synced like a file's content.
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

// SyncTo only counts where the system made a whole sync of it. Else it asks the kernel to begin writing, and nobody waits.
func (f countingFile) SyncTo(length int64) (fullSync bool, err error) {
	fullSync, err = f.File.SyncTo(length)
	if fullSync {
		f.writes.syncs.Add(1)
	}
	return fullSync, err
}
