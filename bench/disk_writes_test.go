package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A countingFS counts each write and each sync once, however the file was opened, and the bytes
// reach the file.
func TestCountingFS(t *testing.T) {
	var w diskWrites
	fs := countingFS{vfs.Default, &w}
	dir := t.TempDir()
	path, next := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	file := func(f vfs.File, err error) vfs.File {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	do := func(_ int, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	expect := func(what string, bytes, syncs int64) {
		t.Helper()
		if got := w.now(); got != (diskWritten{bytes, syncs}) {
			t.Fatalf("after %s %d bytes and %d syncs are counted, want %d and %d", what, got.bytes, got.syncs, bytes, syncs)
		}
	}
	f := file(fs.Create(path, vfs.WriteCategoryUnspecified))
	do(f.Write(make([]byte, 100)))
	do(0, f.SyncData())
	do(0, f.Close())
	expect("a new file", 100, 1)
	f = file(fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified))
	do(f.WriteAt(make([]byte, 7), 50))
	do(0, f.Sync())
	do(0, f.Close())
	expect("a change in place", 107, 2)
	f = file(fs.ReuseForWrite(path, next, vfs.WriteCategoryUnspecified))
	do(f.Write(make([]byte, 30)))
	full, err := f.SyncTo(30)
	if err != nil {
		t.Fatal(err)
	}
	syncs := int64(2)
	if full {
		syncs++
	}
	do(0, f.Close())
	expect("a file that is used again", 137, syncs)
	f = file(fs.OpenDir(dir))
	do(0, f.Sync())
	do(0, f.Close())
	expect("a folder", 137, syncs+1)
	if text := readFile(t, next); len(text) != 100 {
		t.Errorf("the file has %d bytes, want 100", len(text))
	}
	out := &Result{Values: map[string]float64{}}
	w.note(out, diskWritten{37, syncs - 1}, 2)
	if v := out.Values; v["disk_bytes_per_life"] != 50 || v["disk_bytes_per_body_byte"] != 50.0/bodyBytes || v["syncs_per_life"] != 1 {
		t.Errorf("100 bytes and 2 syncs for 2 lives are noted as %v", v)
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
