//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package directory

import (
	"log/slog"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual/diskstore/internal/failstop"
)

// TestALockIsGivenBackDuringAFork: a process that is being forked has a copy of every open file
// until it runs its program. A directory that is given back at that moment is free at once all the
// same. A second descriptor of the directory stands for that copy.
func TestALockIsGivenBackDuringAFork(t *testing.T) {
	dir := t.TempDir()
	own := func() *Dir {
		d := New(vfs.Default, dir, 0, failstop.New(dir, slog.Default(), time.Minute), slog.Default())
		if _, err := d.Own(0); err != nil {
			t.Fatal(err)
		}
		return d
	}
	first := own()
	forked, err := syscall.Dup(int(first.lock.(*dirLock).dir.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	first.Release()
	own().Release()
	if err := syscall.Close(forked); err != nil {
		t.Error(err)
	}
}
