package diskstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storetest/ledger"
)

// mountSmall mounts a file system in memory until the end of the test, or skips the test where that
// is not allowed.
func mountSmall(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options)
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
		t.Skipf("mounting a small file system is not permitted here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

// outcomes hands the lines of a history on to a ledger, and counts on the way what settlements and
// amendments have done.
type outcomes struct {
	l *ledger.Ledger

	mu     sync.Mutex
	asked  map[int64][]ledger.Fact // guarded by mu
	counts map[string]int          // verb or change, and outcome; guarded by mu while calls are made
}

// begin starts to count; before it add only hands lines on.
func (o *outcomes) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked, o.counts = make(map[int64][]ledger.Fact), make(map[string]int)
}

func (o *outcomes) add(line ledger.Line) {
	o.l.Add(line)
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.counts == nil:
	case !line.Answer:
		o.asked[line.N] = line.Facts
	case line.Call == ledger.CallSettle:
		for i, f := range line.Facts {
			o.counts[fmt.Sprint(o.asked[line.N][i].Verb, " ", f.Status)]++
		}
	case line.Call == ledger.CallAmend:
		for i, f := range line.Facts {
			o.counts[fmt.Sprint(o.asked[line.N][i].Change, " ", f.Status)]++
		}
	}
}

// TestSlowFullDisk pushes to a small file system until pushes are refused, and fills a third of the
// reserve with another file. Then acks, cancels and reschedules still work, and nothing
// acknowledged is lost.
func TestSlowFullDisk(t *testing.T) {
	mount := mountSmall(t, "size=64m")
	dir := filepath.Join(mount, "store")
	s, err := Open(dir, &Options{ReserveBytes: 24 << 20, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	l := newLedger()
	l.Expected = append(l.Expected, "no_space")
	happened := outcomes{l: l}
	w := (&ledger.Workload{Store: s, Process: 1, Emit: happened.add}).Begin()
	rng := rand.New(rand.NewPCG(1, 1))
	refused := false
	for range 2000 {
		s.owned.ForgetSpace()
		if err = w.PushMany(rng, 800); err != nil {
			refused = errors.Is(err, punctual.ErrNoSpace) && punctual.Definite(err)
			break
		}
	}
	if !refused {
		t.Fatalf("pushes until the disk is full: %v, want a definite ErrNoSpace", err)
	}
	ballast := bytesLeft(t, mount) - 16<<20
	if err := os.WriteFile(filepath.Join(mount, "ballast"), make([]byte, ballast), 0o600); err != nil {
		t.Fatal(err)
	}
	s.owned.ForgetSpace()
	if err := w.PushMany(rng, 1); !errors.Is(err, punctual.ErrNoSpace) {
		t.Fatalf("push with a third of the reserve gone: %v, want ErrNoSpace", err)
	}
	happened.begin()
	for range 50 {
		for _, f := range []func(context.Context, *rand.Rand) error{w.Claim, w.Amend} {
			within(t, "a call on a nearly full disk", func() { err = f(t.Context(), rng) })
			if err != nil {
				t.Fatalf("acks, cancels and reschedules on a nearly full disk: %v", err)
			}
		}
	}
	for _, want := range []string{"ack ok", "cancel cancelled", "reschedule rescheduled"} {
		if happened.counts[want] == 0 {
			t.Errorf("there was no %q on a nearly full disk, but %v", want, happened.counts)
		}
	}
	closeStore(t, s)
	if err := os.Remove(filepath.Join(mount, "ballast")); err != nil {
		t.Fatal(err)
	}
	l.End(time.Now().UnixMilli())
	audit(t, l, dir, Options{})
	t.Log(l, happened.counts)
}

// TestSlowFullDiskEmpties: a store that refuses pushes because its disk is full takes them again
// after all messages were acked, or all but the first cancelled, without anybody removing other
// files.
func TestSlowFullDiskEmpties(t *testing.T) {
	t.Run("acked", func(t *testing.T) {
		fullDiskEmpties(t, 0, func(s *Store, n int) { finish(t, s, "o", n, punctual.SettleAck) })
	})
	t.Run("cancelled", func(t *testing.T) {
		fullDiskEmpties(t, 1, func(s *Store, n int) {
			var as []punctual.Amendment
			for i := 1; i < n; i++ {
				as = append(as, punctual.Amendment{Change: punctual.ChangeCancel, Topic: "o", ID: fmt.Sprint(i)})
			}
			if _, err := s.Amend(t.Context(), as); err != nil {
				t.Fatal(err)
			}
		})
	})
}

// fullDiskEmpties fills a disk with messages until one is refused, and has empty remove all of them
// but left.
func fullDiskEmpties(t *testing.T, left int64, empty func(s *Store, n int)) {
	t.Helper()
	mount := mountSmall(t, "size=1000m")
	s := openAt(t, filepath.Join(mount, "store"), &Options{Logger: quiet})
	body := noise(1, 1<<20)
	pushOne := func(i int) error {
		_, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "o", ID: fmt.Sprint(i), Body: body, Due: time.UnixMilli(int64(i + 1))}})
		return err
	}
	n := 0
	for ; ; n++ {
		err := pushOne(n)
		if errors.Is(err, punctual.ErrNoSpace) {
			break
		}
		if err != nil || n == 2000 {
			t.Fatalf("push %d: %v, want ErrNoSpace some time", n, err)
		}
	}
	empty(s, n)
	within(t, "the disk, of which half must be free after nearly everything has gone,", func() {
		for bytesLeft(t, mount) < 500<<20 {
			time.Sleep(50 * time.Millisecond)
		}
	})
	if err := pushOne(n); err != nil {
		t.Errorf("push after nearly everything has gone: %v", err)
	}
	if r := mustBeSound(t, s); r.Live != left+1 {
		t.Errorf("%d live messages, want %d", r.Live, left+1)
	}
}

func bytesLeft(t *testing.T, dir string) int {
	t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return int(st.Bavail) * int(st.Bsize)
}

// TestReadOnlyDirectory opens a store on a disk that takes no writes: the error says so, and
// the store is whole when the disk takes writes again.
func TestReadOnlyDirectory(t *testing.T) {
	mount := mountSmall(t, "size=16m")
	dir := filepath.Join(mount, "store")
	s, err := Open(dir, &Options{ReserveBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	push(t, s, punctual.NewMessage{Topic: "o", ID: "kept"})
	closeStore(t, s)
	remount := func(flags uintptr) {
		t.Helper()
		if err := syscall.Mount("tmpfs", mount, "tmpfs", syscall.MS_REMOUNT|flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	remount(syscall.MS_RDONLY)
	for what, d := range map[string]string{"a store": dir, "a new directory": filepath.Join(mount, "new")} {
		_, err = Open(d, nil)
		if err == nil || errors.Is(err, punctual.ErrCorrupt) || errors.Is(err, punctual.ErrLocked) ||
			!strings.Contains(err.Error(), "read-only") || !strings.Contains(err.Error(), "may write") {
			t.Errorf("open %s on a read-only disk: %v; want an error that says read-only and what is needed", what, err)
		}
	}
	found := examined(t, dir, nil)
	mustFind(t, found, "writable", storekit.SeverityBad, "read-only")
	mustFind(t, found, "in use", storekit.SeverityBad, "not known")
	remount(0)
	s = openAt(t, dir, &Options{ReserveBytes: 1})
	if ds := claim(t, s, "o", 1); len(ds) != 1 || ds[0].ID != "kept" {
		t.Errorf("P1 no loss: after the disk was read-only for a while: %+v", ds)
	}
}

// TestNoDescriptorsDoNotFlood: while the process may open no further file, the store pauses between
// its attempts to open one, and says so in one line. When files can be opened again, it goes on;
// when none can for long, it fails once. After Close it opens nothing more.
func TestNoDescriptorsDoNotFlood(t *testing.T) { alone(t, noDescriptors) }

func noDescriptors(t *testing.T) {
	for _, mended := range []bool{true, false} {
		logged, tried := &lines{}, &atomic.Int64{}
		fs := hookFS{vfs.Default, func(op fsOp) error {
			if op.kind == "create" {
				tried.Add(1)
			}
			return nil
		}}
		s, err := Open(t.TempDir(), &Options{fs: fs, Logger: slog.New(slog.NewTextHandler(logged, nil)), CommitTimeout: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		push(t, s, unnamed(10)...)
		var limit syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		none := limit
		none.Cur = 0 // what is open stays open
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Open(os.DevNull); !errors.Is(err, syscall.EMFILE) {
			t.Fatalf("this test shows nothing, because opening a file gives %v", err)
		}
		before, began := tried.Load(), time.Now()
		flushed := make(chan error, 1)
		go func() { flushed <- s.db.Flush() }() // a flush of a store that has failed does not return
		for tried.Load() < before+3 {
			if time.Since(began) > waitLimit {
				t.Fatal("the store opens no file")
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second) // to see that hardly anything happens
		if n, most := tried.Load()-before, 400+400*int64(time.Since(began)/time.Second); n > most {
			t.Errorf("the store tried %d times in %v to open a file, want %d at most", n, time.Since(began), most)
		}
		if mended {
			if err := errors.Join(syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit), <-flushed); err != nil {
				t.Errorf("a flush after files could be opened again: %v", err)
			}
			push(t, s, unnamed(1)...)
		} else {
			<-s.state.Ended()
			if _, err := s.Push(t.Context(), unnamed(1)); !errors.Is(err, punctual.ErrStoreFailed) || !strings.Contains(err.Error(), "RLIMIT_NOFILE") {
				t.Errorf("a push after no file could be opened for long: %v; want ErrStoreFailed and the limit", err)
			}
		}
		if err := s.Close(); (err == nil) != mended {
			t.Errorf("close, files can be opened (%v): %v", mended, err)
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		if n, all := strings.Count(logged.String(), "no further file"), strings.Count(logged.String(), "\n"); n != 1 || all > 6 {
			t.Errorf("%d lines of %d say that no file can be opened, want 1 of 6 at most:\n%s", n, all, logged)
		}
		before = tried.Load()
		time.Sleep(300 * time.Millisecond) // to see that nothing happens
		if n := tried.Load() - before; n > 0 {
			t.Errorf("after Close the store tried %d times to open a file", n)
		}
	}
}

// With too few file descriptors Open says so, and never that somebody has the directory, whatever
// file it comes to. Nothing stays locked, so Open succeeds once there are enough.
func TestOpenWithoutDescriptors(t *testing.T) { alone(t, openWithoutDescriptors) }

func openWithoutDescriptors(t *testing.T) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	few := limit
	few.Cur = 1000
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	for _, made := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "store")
		if made {
			s, err := Open(dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			push(t, s, unnamed(10)...)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		failed := 0
		for left := 0; ; left++ {
			taken := takeDescriptors(t, left)
			s, err := Open(dir, &Options{Logger: slog.New(slog.DiscardHandler), CommitTimeout: time.Second})
			for _, f := range taken {
				f.Close()
			}
			if err == nil {
				if err := s.Close(); err != nil {
					t.Errorf("made before %v, %d descriptors: close: %v", made, left, err)
				}
				break
			}
			failed++
			if errors.Is(err, punctual.ErrLocked) || !strings.Contains(err.Error(), "RLIMIT_NOFILE") {
				t.Errorf("made before %v, %d descriptors: %v; want an error that names the limit", made, left, err)
			}
			if left == 50 {
				t.Fatalf("made before %v: Open fails even with %d descriptors: %v", made, left, err)
			}
		}
		if failed < 3 {
			t.Fatalf("made before %v: this test shows nothing, because Open has failed %d times", made, failed)
		}
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
}

// takeDescriptors opens files until so many descriptors are left.
func takeDescriptors(t *testing.T, left int) (taken []*os.File) {
	t.Helper()
	for {
		f, err := os.Open(os.DevNull)
		if errors.Is(err, syscall.EMFILE) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		taken = append(taken, f)
	}
	if len(taken) < left {
		t.Fatalf("there are %d descriptors at all", len(taken))
	}
	for range left {
		taken[len(taken)-1].Close()
		taken = taken[:len(taken)-1]
	}
	return taken
}
