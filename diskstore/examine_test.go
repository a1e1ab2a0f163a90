package diskstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/claimlog"
	"github.com/punctualmq/punctual/diskstore/internal/directory"
	"github.com/punctualmq/punctual/diskstore/internal/examine"
	"github.com/punctualmq/punctual/storekit"
)

// examined returns what Examine finds of a directory.
func examined(t *testing.T, dir string, o *Options) []storekit.Finding {
	t.Helper()
	fs, err := Examine(t.Context(), dir, o)
	if err != nil {
		t.Fatalf("examine: %v", err)
	}
	mustBeComplete(t, fs)
	return fs
}

// mustBeComplete checks what holds for every finding.
func mustBeComplete(t *testing.T, fs []storekit.Finding) {
	t.Helper()
	for _, f := range fs {
		if f.Name == "" || f.Value == "" || strings.Contains(f.Value, "\n") || f.Severity < storekit.SeverityGood || f.Severity > storekit.SeverityBad ||
			(f.Remedy == "") != (f.Severity == storekit.SeverityGood) {
			t.Errorf("finding %+v: want a name, one line of value, a severity, and a remedy unless it is good", f)
		}
	}
}

// mustFind fails the test unless there is a finding of this name and severity whose value has text.
func mustFind(t *testing.T, fs []storekit.Finding, name string, severity storekit.Severity, text string) {
	t.Helper()
	for _, f := range fs {
		if f.Name == name && f.Severity == severity && strings.Contains(f.Value, text) {
			return
		}
	}
	t.Errorf("no finding %q of severity %s with %q among\n%+v", name, severity, text, fs)
}

// storeIn makes a store with one live and one dead message, and closes it.
func storeIn(t *testing.T, dir string, o *Options) {
	t.Helper()
	s, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	push(t, s, punctual.NewMessage{Topic: "o", ID: "dead", Due: time.UnixMilli(1)})
	if err := settle(t, s, claim(t, s, "o", 1)[0], punctual.SettleDiscard); err != nil {
		t.Fatal(err)
	}
	push(t, s, punctual.NewMessage{Topic: "o", ID: "live", Delay: time.Hour})
	closeStore(t, s)
}

// contentsOf returns the content of every file of a directory, by its path.
func contentsOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		files[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestExamineASoundStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	storeIn(t, dir, nil)
	before := contentsOf(t, dir)
	fs := examined(t, dir, &Options{ReserveBytes: 1})
	for _, want := range []struct{ name, text string }{
		{"directory", dir},
		{"in use", "no"},
		{"store", "format 2, 1 topic, 1 message, 1 dead message"},
		{"damage", "none"},
		{"writable", "yes"},
		{"fsync", "the median of 5"},
		{"free space", "kept in reserve"},
		{"store's clock", "not ahead"},
	} {
		mustFind(t, fs, want.name, storekit.SeverityGood, want.text)
	}
	after := contentsOf(t, dir)
	if len(after) != len(before) {
		t.Errorf("the examination left %d files of %d", len(after), len(before))
	}
	for name, data := range before {
		if after[name] != data {
			t.Errorf("the examination changed %s", name)
		}
	}
	openAt(t, dir, nil)
}

func TestExamineWhereNoStoreIs(t *testing.T) {
	parent := t.TempDir()
	file := filepath.Join(parent, "file")
	foreign := filepath.Join(parent, "foreign")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Mkdir(foreign, 0o700), os.WriteFile(foreign+"/letter.txt", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(parent, "a", "b")
	for _, c := range []struct {
		what, dir, name, text string
		severity              storekit.Severity
		probed                bool
	}{
		{"no such directory", missing, "store", "none", storekit.SeverityWarning, true},
		{"an empty directory", t.TempDir(), "store", "none", storekit.SeverityWarning, true},
		{"a file", file, "directory", "a file", storekit.SeverityBad, false},
		{"a directory below a file", filepath.Join(file, "x"), "directory", "a file", storekit.SeverityBad, false},
		{"a directory with other files", foreign, "store", "letter.txt", storekit.SeverityBad, false},
	} {
		fs := examined(t, c.dir, nil)
		mustFind(t, fs, c.name, c.severity, c.text)
		if c.probed {
			mustFind(t, fs, "writable", storekit.SeverityGood, "yes")
		}
	}
	if _, err := os.Stat(filepath.Dir(missing)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the examination made a directory: %v", err)
	}
	if left := contentsOf(t, parent); len(left) != 2 {
		t.Errorf("the examination left %d files of 2", len(left))
	}
}

func TestExamineAStoreInUse(t *testing.T) {
	dir := t.TempDir()
	s := openAt(t, dir, nil)
	fs := examined(t, dir, nil)
	mustFind(t, fs, "in use", storekit.SeverityWarning, fmt.Sprintf("process %d ", os.Getpid()))
	for _, f := range fs {
		if f.Name == "damage" || f.Name == "store" {
			t.Errorf("%+v was found in a store that another process may be changing", f)
		}
	}
	if _, err := Open(dir, nil); !errors.Is(err, punctual.ErrLocked) {
		t.Errorf("the examination took the lock away: a second opener gets %v", err)
	}
	push(t, s, punctual.NewMessage{Topic: "o", ID: "a"})
	fs, err := s.Examine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mustBeComplete(t, fs)
	mustFind(t, fs, "in use", storekit.SeverityGood, "this process")
	mustFind(t, fs, "store", storekit.SeverityGood, "format 2")
	mustFind(t, fs, "fsync", storekit.SeverityGood, "median")
}

func TestExamineAClosedStore(t *testing.T) {
	s, err := Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	if _, err := s.Examine(t.Context()); !errors.Is(err, punctual.ErrClosed) {
		t.Errorf("examine after close: %v, want ErrClosed", err)
	}
}

func TestExamineDamage(t *testing.T) {
	for _, c := range []struct {
		what     string
		damage   func(t *testing.T, dir string)
		severity storekit.Severity
		text     string
	}{
		{"a table is missing", func(t *testing.T, dir string) { removeAll(t, dir, "*.sst") }, storekit.SeverityBad, "sstable"},
		{"the manifest is missing", func(t *testing.T, dir string) { removeAll(t, dir, "MANIFEST-*") }, storekit.SeverityBad, "MANIFEST"},
		{"the marker is missing", func(t *testing.T, dir string) { removeAll(t, dir, "marker.manifest*") }, storekit.SeverityBad, "marker.manifest"},
		{"the claim log is damaged", func(t *testing.T, dir string) {
			closeStore(t, openAt(t, dir, nil)) // so that the segment is not number 1, of which no damage is reported
			segments, err := filepath.Glob(filepath.Join(dir, claimlog.Prefix+"*"))
			if err != nil || len(segments) != 1 {
				t.Fatalf("segments %v, %v; want one", segments, err)
			}
			data, err := os.ReadFile(segments[0])
			if err != nil {
				t.Fatal(err)
			}
			data[12] ^= 1
			if err := os.WriteFile(segments[0], data, 0o600); err != nil {
				t.Fatal(err)
			}
		}, storekit.SeverityWarning, claimlog.Prefix},
	} {
		t.Run(c.what, func(t *testing.T) {
			dir := t.TempDir()
			storeIn(t, dir, nil)
			c.damage(t, dir)
			before := contentsOf(t, dir)
			mustFind(t, examined(t, dir, nil), "damage", c.severity, c.text)
			if after := contentsOf(t, dir); len(after) != len(before) {
				t.Errorf("the examination left %d files of %d", len(after), len(before))
			}
			s, err := Open(dir, &Options{Logger: quiet})
			if refused := errors.Is(err, punctual.ErrCorrupt); refused != (c.severity == storekit.SeverityBad) {
				t.Errorf("open says %v, the examination %s", err, c.severity)
			}
			if err == nil {
				closeStore(t, s)
				mustFind(t, examined(t, dir, nil), "earlier damage", storekit.SeverityWarning, claimlog.DamagedSuffix)
			}
		})
	}
}

func removeAll(t *testing.T, dir, pattern string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(names) == 0 {
		t.Fatalf("no %s in %s: %v", pattern, dir, err)
	}
	for _, n := range names {
		if err := os.Remove(n); err != nil {
			t.Fatal(err)
		}
	}
}

func TestExamineANewerFormat(t *testing.T) {
	dir := t.TempDir()
	closeStore(t, openAt(t, dir, nil))
	setMeta(t, vfs.Default, dir, map[string]uint64{"version": directory.FormatVersion + 1})
	mustFind(t, examined(t, dir, nil), "store", storekit.SeverityBad, fmt.Sprintf("format %d", directory.FormatVersion+1))
}

// TestExamineWithoutPermission has the file system refuse instead of a mode of the directory,
// because a mode does not keep root out.
func TestExamineWithoutPermission(t *testing.T) {
	for _, cause := range []error{syscall.EROFS, syscall.EACCES} {
		mem := vfs.NewMem()
		storeIn(t, "store", &Options{fs: mem})
		f := faults{}
		f.set(func(_ int, op fsOp) error {
			if op.kind == "opendir" {
				return nil
			}
			return cause
		})
		fs := examined(t, "store", &Options{fs: hookFS{mem, f.hook}})
		mustFind(t, fs, "writable", storekit.SeverityBad, cause.Error())
		mustFind(t, fs, "store", storekit.SeverityGood, "format 2")
	}
	mem := vfs.NewMem()
	fs := examined(t, "store", &Options{fs: unreadable{mem}})
	mustFind(t, fs, "directory", storekit.SeverityBad, "permission denied")
}

// unreadable is a file system that refuses every Stat.
type unreadable struct{ vfs.FS }

func (f unreadable) Unwrap() vfs.FS { return f.FS }

func (unreadable) Stat(name string) (vfs.FileInfo, error) {
	return nil, &os.PathError{Op: "stat", Path: name, Err: syscall.EACCES}
}

func TestExamineAFailingDisk(t *testing.T) {
	mem := vfs.NewMem()
	storeIn(t, "store", &Options{fs: mem})
	f := faults{}
	f.set(func(_ int, op fsOp) error {
		if op.kind == "sync" {
			return errIO
		}
		return nil
	})
	mustFind(t, examined(t, "store", &Options{fs: hookFS{mem, f.hook}}), "fsync", storekit.SeverityBad, errIO.Error())
}

func TestExamineAFailedStore(t *testing.T) { alone(t, examineAFailedStore) }

func examineAFailedStore(t *testing.T) {
	mem := vfs.NewMem()
	s, err := Open("store", &Options{fs: mem, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	s.state.Fail(errIO)
	fs, err := s.Examine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mustFind(t, fs, "store", storekit.SeverityBad, errIO.Error())
	if err := s.Close(); !errors.Is(err, punctual.ErrStoreFailed) {
		t.Errorf("close of the failed store: %v", err)
	}
}

// TestExamineAHangingDisk: a disk that does not answer is a finding, and a caller whose context
// ends gets what was found until then.
func TestExamineAHangingDisk(t *testing.T) {
	mem := vfs.NewMem()
	storeIn(t, "store", &Options{fs: mem})
	f, release := faults{}, make(chan struct{})
	asked, goOn := make(chan struct{}, 2*examine.Fsyncs), make(chan struct{}, 2)
	f.hang(func(op fsOp) chan struct{} {
		switch op.kind {
		case "sync":
			asked <- struct{}{}
			return release
		case "remove":
			goOn <- struct{}{}
		}
		return nil
	})
	hung := hookFS{mem, f.hook}
	mustFind(t, examined(t, "store", &Options{fs: hung, CommitTimeout: 200 * time.Millisecond}), "disk", storekit.SeverityBad, "no answer")
	<-asked
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	fs, err := Examine(ctx, "store", &Options{fs: hung})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("examine with a context that ended: %v", err)
	}
	mustFind(t, fs, "store", storekit.SeverityGood, "format 2")
	close(release)
	<-goOn // now that the disk answers, both goroutines remove their files
	<-goOn
}

func TestExamineTheSpace(t *testing.T) {
	dir := t.TempDir()
	storeIn(t, dir, nil)
	for free, want := range map[uint64]storekit.Severity{99 << 20: storekit.SeverityBad, 150 << 20: storekit.SeverityWarning, 200 << 20: storekit.SeverityGood} {
		fs := examined(t, dir, &Options{fs: scaleFS{vfs.Default, &free}, ReserveBytes: 100 << 20})
		mustFind(t, fs, "free space", want, fmt.Sprintf("%d MiB, of which 100 MiB", free>>20))
	}
}

func TestExamineTheClock(t *testing.T) {
	dir, clock := t.TempDir(), storekit.NewManualClock(testStart)
	storeIn(t, dir, &Options{Clock: clock})
	clock.Advance(-time.Hour)
	fs := examined(t, dir, &Options{Clock: clock})
	mustFind(t, fs, "store's clock", storekit.SeverityWarning, "1h0m0s ahead")
}
