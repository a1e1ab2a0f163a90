package claimlog

import (
	"errors"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual/diskstore/internal/failstop"
	"github.com/punctualmq/punctual/diskstore/internal/record"
)

// openLog returns a log on a file system in memory, with its first segment begun.
func openLog(t *testing.T) (*Log, vfs.FS) {
	t.Helper()
	mem := vfs.NewMem()
	if err := mem.MkdirAll("store", 0o700); err != nil {
		t.Fatal(err)
	}
	state := failstop.New("store", slog.New(slog.NewTextHandler(io.Discard, nil)), time.Minute)
	l := New(&Contents{}, Options{FS: mem, Dir: "store", State: state, Limit: 1 << 20, Clock: func() int64 { return 1 }, Behind: func() {}})
	if err := l.Replace(func() []record.Lease { return nil }, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l, mem
}

func contentsOf(t *testing.T, fs vfs.FS) *Contents {
	t.Helper()
	c, err := Read(fs, "store", func(u Unreadable) error {
		t.Errorf("%s has %d bytes that cannot be read", u.Name, u.Bytes)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var someLease = record.Lease{Topic: 1, At: record.Position{Ms: 2, Seq: 3}, Token: 4, Attempt: 1, Until: 5}

// slowFS lets others run before it makes a file, and notes the names.
type slowFS struct {
	vfs.FS
	mu   sync.Mutex
	made []string // guarded by mu
}

func (f *slowFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	for range 1000 {
		runtime.Gosched()
	}
	f.mu.Lock()
	f.made = append(f.made, name)
	f.mu.Unlock()
	return f.FS.Create(name, c)
}

// TestReplacementsAtOnce: of several concurrent replacements each begins a segment of its own, and
// the lease stays.
func TestReplacementsAtOnce(t *testing.T) {
	l, mem := openLog(t)
	slow := &slowFS{FS: mem}
	l.FS = slow
	if err := l.AppendLeases([]record.Lease{someLease}); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := l.Replace(func() []record.Lease { return []record.Lease{someLease} }, func() error { return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	slices.Sort(slow.made)
	if n := len(slices.Compact(slow.made)); n != 8 {
		t.Errorf("8 replacements began %d segments", n)
	}
	if n := len(contentsOf(t, mem).leases); n != 1 {
		t.Errorf("P6: %d leases are left, want 1", n)
	}
	if segments, err := Segments(mem, "store"); err != nil || len(segments) != 1 || segments[0] != 9 {
		t.Errorf("segments %v, %v; want the ninth alone", segments, err)
	}
}

// TestReplaceKeepsWhatTheBarrierDoesNotCover: when the barrier fails the older segments stay, and a
// lease that is appended meanwhile is kept, too. When the barrier succeeds only the leases that
// there are stay.
func TestReplaceKeepsWhatTheBarrierDoesNotCover(t *testing.T) {
	l, mem := openLog(t)
	other := someLease
	other.At.Seq, other.Token = 9, 10
	if err := l.AppendLeases([]record.Lease{someLease}); err != nil {
		t.Fatal(err)
	}
	refused := errors.New("the barrier does not hold")
	err := l.Replace(func() []record.Lease { return nil }, func() error {
		if err := l.AppendLeases([]record.Lease{other}); err != nil {
			t.Error(err)
		}
		return refused
	})
	if !errors.Is(err, refused) {
		t.Errorf("replace: %v, want the error of the barrier", err)
	}
	if n := len(contentsOf(t, mem).leases); n != 2 {
		t.Errorf("P6: %d leases are left, want both", n)
	}
	if err := l.Replace(func() []record.Lease { return []record.Lease{other} }, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if c := contentsOf(t, mem); len(c.leases) != 1 || c.leases[9].Token != 10 {
		t.Errorf("leases %v are left, want the one that there is", c.leases)
	}
}

// TestEachSegmentHasTheClock: a new segment has the clock, also within the millisecond in which the
// old one got it. The old one is deleted, and after a kill the clock starts again at what is left
// (P8).
func TestEachSegmentHasTheClock(t *testing.T) {
	l, mem := openLog(t)
	before := l.ClockLogged()
	if err := l.Replace(func() []record.Lease { return nil }, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if now := l.Clock(); now != before {
		t.Fatalf("this test shows nothing: the clock says %d, and %d was written before", now, before)
	}
	if segments, err := Segments(mem, "store"); err != nil || len(segments) != 1 || segments[0] != 2 {
		t.Fatalf("segments %v, %v; want the second alone", segments, err)
	}
	if c := contentsOf(t, mem); !c.Timed || c.Clock != before {
		t.Errorf("P8: the clock in the log is %d, known: %v; want %d", c.Clock, c.Timed, before)
	}
	// A clock that a transaction made durable at a later time stays as well.
	l.MarkDurable(1, before+50)
	if err := l.Replace(func() []record.Lease { return nil }, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if c := contentsOf(t, mem); c.Clock != before+50 {
		t.Errorf("P8: the clock in the log is %d, want %d", c.Clock, before+50)
	}
}

// killedFS is a file system whose process is killed after it has removed so many files.
type killedFS struct {
	vfs.FS
	left int
}

var errKilled = errors.New("the process is killed")

func (f *killedFS) Remove(name string) error {
	if f.left == 0 {
		return errKilled
	}
	f.left--
	return f.FS.Remove(name)
}

// TestReplaceDeletesTheNewestFirst: a replacement that failed leaves a segment which was never
// synced behind one that was. A kill while both are deleted must not leave the former alone in
// front of the new segment, because there it would look damaged.
func TestReplaceDeletesTheNewestFirst(t *testing.T) {
	l, mem := openLog(t)
	none := func() []record.Lease { return nil }
	if err := l.Replace(none, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := l.start(3); err != nil { // as a replacement does that cannot write to a full disk then
		t.Fatal(err)
	}
	l.FS = &killedFS{FS: mem, left: 1}
	if err := l.Replace(none, func() error { return nil }); err == nil || !strings.Contains(err.Error(), errKilled.Error()) {
		t.Fatalf("this test shows nothing: replace: %v", err)
	}
	l.FS = mem
	if segments, err := Segments(mem, "store"); err != nil || len(segments) != 2 {
		t.Fatalf("segments %v, %v; want the new one and one that was not deleted", segments, err)
	}
	contentsOf(t, mem)
}
