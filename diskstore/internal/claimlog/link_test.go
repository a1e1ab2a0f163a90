package claimlog

import (
	"testing"

	"github.com/punctualmq/punctual/diskstore/internal/record"
)

// TestLink: frames that are appended after the instant of a copy do not belong to the copy, and no
// segment can be replaced while the copy is made.
func TestLink(t *testing.T) {
	l, fs := openLog(t)
	if err := l.AppendLeases([]record.Lease{someLease}); err != nil {
		t.Fatal(err)
	}
	if err := fs.MkdirAll("copy", 0o700); err != nil {
		t.Fatal(err)
	}
	parts, err := l.Link(fs, "copy", func(now func()) error {
		now()
		if l.replacing.TryLock() {
			t.Error("a segment may be replaced meanwhile")
			l.replacing.Unlock()
		}
		return l.AppendEnded([]record.Lease{someLease})
	})
	if err != nil || len(parts) != 1 {
		t.Fatalf("%v, %v", parts, err)
	}
	info, err := fs.Stat(fs.PathJoin("copy", parts[0].Name))
	if err != nil {
		t.Fatal(err)
	}
	if parts[0].Size == 0 || info.Size() <= parts[0].Size {
		t.Errorf("%d bytes belong to the copy, of %d in the file", parts[0].Size, info.Size())
	}
	// The old segment is kept under its second name when the log goes on without it.
	if err := l.Replace(func() []record.Lease { return nil }, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := fs.Stat(fs.PathJoin("copy", parts[0].Name)); err != nil {
		t.Error(err)
	}
}
