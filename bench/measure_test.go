package main

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
)

func mustCompile(s string) *regexp.Regexp { return regexp.MustCompile(s) }

// near tells whether a and b differ by no more than the histograms' 0.1 %.
func near(a, b float64) bool { return math.Abs(a-b) <= 0.001*max(math.Abs(a), math.Abs(b)) }

func TestQuantiles(t *testing.T) {
	rec := newRecorder()
	var wg sync.WaitGroup
	for g := range 4 { // 1 to 10,000 µs, each once, from several goroutines
		wg.Go(func() {
			for us := g + 1; us <= 10_000; us += 4 {
				rec.record(time.Duration(us) * time.Microsecond)
			}
		})
	}
	wg.Wait()
	out := &Result{Values: map[string]float64{}}
	out.setQuantiles("x", rec.merged())
	for name, want := range map[string]float64{"x_p50_ms": 5, "x_p99_ms": 9.9, "x_p999_ms": 9.99, "x_max_ms": 10} {
		if got := out.Values[name]; !near(got, want) {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
}

func TestQuantilesOfExtremes(t *testing.T) {
	rec := newRecorder()
	rec.record(-time.Second)
	rec.record(48 * time.Hour)
	h := rec.merged()
	if n := h.TotalCount(); n != 2 {
		t.Fatalf("%d of 2 durations are counted", n)
	}
	if got := time.Duration(h.Max()) * time.Microsecond; !near(got.Seconds(), time.Hour.Seconds()) {
		t.Errorf("two days count as %v, want an hour", got)
	}
}

// The limit appends and syncs batch by batch, so at each sync the file is one batch longer than at
// the one before.
func TestLimit(t *testing.T) {
	const n, size = 10, 34
	dir := t.TempDir()
	var lengths []int64
	l := newLimit()
	l.sync = func(f *os.File) error {
		st, err := f.Stat()
		lengths = append(lengths, st.Size())
		return errors.Join(err, fdatasync(f))
	}
	if err := l.measure(dir, n, size, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if len(lengths) == 0 || l.items != n*len(lengths) || l.syncs.TotalCount() != int64(len(lengths)) {
		t.Errorf("%d items and %d times noted after %d syncs of %d items", l.items, l.syncs.TotalCount(), len(lengths), n)
	}
	for i, length := range lengths {
		if length != int64((i+1)*n*size) {
			t.Fatalf("at sync %d the file has %d bytes, want %d", i+1, length, (i+1)*n*size)
		}
	}
	if want := float64(l.items) / l.took.Seconds(); l.took < time.Millisecond || l.rate() != want {
		t.Errorf("rate %v over %v, want %v", l.rate(), l.took, want)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	l.sync = func(*os.File) error { return os.ErrInvalid }
	if err := l.measure(dir, n, size, time.Millisecond); !errors.Is(err, os.ErrInvalid) {
		t.Errorf("a failed sync gives error %v", err)
	}
}

func TestAgainst(t *testing.T) {
	e := &env{kept: t.TempDir(), sizes: tinySizes(), out: &Result{Values: map[string]float64{}}}
	if err := e.against(5, 8, func() (float64, error) { return 1000, nil }); err != nil {
		t.Fatal(err)
	}
	v := e.out.Values
	if v["rate"] != 1000 || v["limit"] <= 0 || v["ratio"] != 1000/v["limit"] {
		t.Errorf("noted %v", v)
	}
	if err := e.against(5, 8, func() (float64, error) { return 0, os.ErrInvalid }); !errors.Is(err, os.ErrInvalid) {
		t.Errorf("the error of what is measured becomes %v", err)
	}
}

func TestFlatOut(t *testing.T) {
	var calls atomic.Int64
	got, err := flatOut(t.Context(), 3, time.Hour, func(context.Context, int) (int, error) {
		if calls.Add(1) > 10 {
			return 0, nil // nothing left
		}
		return 7, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.items.Load() != 70 || got.calls.merged().TotalCount() != 10 {
		t.Errorf("%d items in %d calls, want 70 in 10", got.items.Load(), got.calls.merged().TotalCount())
	}
	_, err = flatOut(t.Context(), 3, time.Hour, func(context.Context, int) (int, error) { return 1, os.ErrInvalid })
	if !errors.Is(err, os.ErrInvalid) {
		t.Errorf("an error ends it with %v", err)
	}
}

func TestAwaitCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var arrived, pushed atomic.Int64
		pushed.Store(5)
		go func() {
			for range 5 { // in all they take longer than settleTime, but one of them arrives before each settleTime is over
				time.Sleep(settleTime - time.Second)
				arrived.Add(1)
			}
		}()
		if err := awaitCount(t.Context(), &arrived, &pushed); err != nil {
			t.Errorf("messages that arrive slowly: %v", err)
		}
		pushed.Store(6)
		if err := awaitCount(t.Context(), &arrived, &pushed); err == nil {
			t.Error("a message that never arrives gives no error (P1)")
		}
	})
}

// The producers keep the rate over the whole window although each push takes 35 ms. The time is
// virtual.
func TestProducerKeepsTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowStore{takes: 35 * time.Millisecond}
		l := &load{rate: 10_000, queue: punctual.NewQueue(store, nil), pushes: newRecorder(), to: time.Now().Add(10 * time.Second)}
		if err := l.produce(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := l.pushed.Load(); n < 99_000 || n > 100_000 {
			t.Errorf("%d messages pushed in 10 s at %d/s to a store that takes %v for each batch", n, l.rate, store.takes)
		}
		if n := store.pushed.Load(); n != l.pushed.Load() {
			t.Errorf("%d messages counted and %d pushed", l.pushed.Load(), n)
		}
	})
}

// slowStore takes as long as takes says for each push, and keeps only the number of messages.
type slowStore struct {
	punctual.Store
	takes  time.Duration
	pushed atomic.Int64
}

func (s *slowStore) Push(_ context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	time.Sleep(s.takes)
	s.pushed.Add(int64(len(ms)))
	return make([]punctual.PushResult, len(ms)), nil
}

func TestWorstCurve(t *testing.T) {
	var w worstCurve
	w.add(10*time.Millisecond, 3*time.Millisecond)
	w.add(90*time.Millisecond, 2*time.Millisecond)
	w.add(250*time.Millisecond, 7*time.Millisecond)
	out := &Result{}
	w.note(out, "c")
	want := []point{{0, 3}, {0.1, 0}, {0.2, 7}}
	for i, p := range out.Series["c"] {
		if len(out.Series["c"]) != len(want) || p != want[i] {
			t.Fatalf("curve is %v, want %v", out.Series["c"], want)
		}
	}
}

func TestSample(t *testing.T) {
	kept := t.TempDir()
	s := &sample{every: 10}
	for i := range 100 {
		s.add([]punctual.PushResult{{ID: string(rune('A' + i/10))}})
	}
	if err := s.save(kept); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, n := range []int{4, 3, 9} {
		ids, err := takeIDs(kept, n)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			if seen[id] {
				t.Errorf("ID %s is handed out twice", id)
			}
			seen[id] = true
		}
	}
	if len(seen) != 10 {
		t.Errorf("%d IDs of 10 were handed out", len(seen))
	}
}

func TestProcess(t *testing.T) {
	if got, err := statusKiB("Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t  1024 kB\n", "VmRSS:"); err != nil || got != 1<<20 {
		t.Errorf("VmRSS of 1024 kB is read as %v bytes, %v", got, err)
	}
	if _, err := statusKiB("Name:\tx\n", "VmRSS:"); err == nil {
		t.Error("a status without VmRSS gives no error")
	}
	before, err := takeUsage()
	if err != nil {
		t.Fatal(err)
	}
	burn()
	r := &Result{Values: map[string]float64{}}
	if err := r.setOthers(before); err != nil {
		t.Fatal(err)
	}
	if now, peak, err := memory(); err != nil || now <= 0 || peak < now {
		t.Errorf("memory is %v, at most %v, %v", now, peak, err)
	}
	if m := describeMachine(t.TempDir(), tinySizes()); m.Cores < 1 || m.CPU == "unknown" || m.Kernel == "unknown" || m.FileSystem == "unknown" || m.MemoryGiB < 1 {
		t.Errorf("the machine is described as %+v", m)
	}
}

func TestDiskUse(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	before, err := diskUse(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "sub", "f"), randomBytes(100_000), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(dir, "sub", "f"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil { // a file system may allocate blocks only when it writes the bytes to the disk
		t.Fatal(err)
	}
	if after, err := diskUse(dir); err != nil || after-before < 100_000 || after-before > 200_000 {
		t.Errorf("a file of 100,000 bytes takes %d, %v", after-before, err)
	}
}

// unreadable is a file whose size cannot be read.
type unreadable struct {
	fs.DirEntry
	err error
}

func (u unreadable) Name() string               { return "x" }
func (u unreadable) Info() (fs.FileInfo, error) { return nil, u.err }

// A file that has vanished takes no room; one whose size cannot be read is an error.
func TestFileUse(t *testing.T) {
	for err, want := range map[error]error{fs.ErrNotExist: nil, fs.ErrPermission: fs.ErrPermission} {
		if n, got := fileUse(unreadable{err: err}); n != 0 || !errors.Is(got, want) {
			t.Errorf("a file whose Info returns %v takes %d bytes, %v; want 0, %v", err, n, got, want)
		}
	}
}

// pushedStore keeps the messages that are pushed to it.
type pushedStore struct {
	punctual.Store
	pushed []punctual.NewMessage
}

func (s *pushedStore) Push(_ context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	s.pushed = append(s.pushed, ms...)
	return make([]punctual.PushResult, len(ms)), nil
}

// With chosen IDs every message has another ID, as long as those that the store makes. Without them
// messages have no ID, so that the store makes one.
func TestChosenIDs(t *testing.T) {
	for _, chosen := range []bool{true, false} {
		store := new(pushedStore)
		sys := &punctualSystem{queue: punctual.NewQueue(store, nil), chosen: chosen}
		for _, n := range []int{1, 50} {
			if err := sys.push(t.Context(), 0, farLetters(n, new(atomic.Uint32))); err != nil {
				t.Fatal(err)
			}
		}
		ids := map[string]bool{}
		for _, m := range store.pushed {
			ids[m.ID] = true
			if chosen && len(m.ID) != idBytes || !chosen && m.ID != "" {
				t.Fatalf("chosen is %v and a message has the ID %q", chosen, m.ID)
			}
		}
		if want := 51; len(store.pushed) != want || chosen && len(ids) != want {
			t.Errorf("chosen is %v: %d messages have %d IDs, want %d", chosen, len(store.pushed), len(ids), want)
		}
	}
}
