package diskstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
)

// scaleFS says how much space is free instead of its disk.
type scaleFS struct {
	vfs.FS
	free *uint64
}

func (f scaleFS) Unwrap() vfs.FS { return f.FS }

func (f scaleFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: *f.free, TotalBytes: 1 << 40, UsedBytes: 1<<40 - *f.free}, nil
}

// forget makes the guard ask again at the next push.
func (g *spaceGuard) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.looked = time.Time{}
}

func TestLittleSpaceRefusesPushesAlone(t *testing.T) {
	free := uint64(1 << 30)
	s := openAt(t, t.TempDir(), &Options{fs: scaleFS{vfs.Default, &free}, ReserveBytes: 100 << 20})
	for _, id := range []string{"ack", "cancel", "move"} {
		delay := time.Hour
		if id == "ack" {
			delay = 0
		}
		push(t, s, punctual.NewMessage{Topic: "o", ID: id, Delay: delay})
	}
	free = 99 << 20
	s.space.forget()
	_, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "o", ID: "late"}})
	if !errors.Is(err, punctual.ErrNoSpace) || !punctual.Definite(err) || !strings.Contains(err.Error(), "99 MiB") {
		t.Errorf("push with too little space: %v, want ErrNoSpace with what is left", err)
	}
	ds := claim(t, s, "o", 10)
	if len(ds) != 1 || ds[0].ID != "ack" {
		t.Fatalf("claimed %+v, want ack alone: the refused push must leave nothing", ds)
	}
	if err := settle(t, s, ds[0], punctual.SettleAck); err != nil {
		t.Errorf("ack with too little space: %v", err)
	}
	os, err := s.Amend(t.Context(), []punctual.Amendment{
		{Change: punctual.ChangeCancel, Topic: "o", ID: "cancel"},
		{Change: punctual.ChangeReschedule, Topic: "o", ID: "move", Delay: time.Minute},
	})
	if err != nil || os[0].Status != punctual.Cancelled || os[1].Status != punctual.Rescheduled {
		t.Errorf("cancel and reschedule with too little space: %v, %v", os, err)
	}
	free = 200 << 20
	s.space.forget()
	push(t, s, punctual.NewMessage{Topic: "o", ID: "late", Delay: time.Hour})
	if r := mustBeSound(t, s); r.Live != 2 {
		t.Errorf("%d live messages, want move and late", r.Live)
	}
}

// mountSmall mounts a file system in memory, or skips where that is not allowed.
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

// TestFullDisk pushes to a real, small file system until the guard refuses, fills the reserve up to a
// rest, and sees that what frees space still works and nothing acknowledged is lost.
func TestFullDisk(t *testing.T) {
	mount := mountSmall(t, "size=64m")
	dir := filepath.Join(mount, "store")
	s, err := Open(dir, &Options{ReserveBytes: 24 << 20, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	l := newLedger()
	w := &workload{store: s, prefix: "m", emit: l.add}
	rng := rand.New(rand.NewPCG(1, 1))
	refused := false
	for range 2000 {
		s.space.forget()
		if err = w.pushMuch(t.Context(), rng); err != nil {
			refused = errors.Is(err, punctual.ErrNoSpace) && punctual.Definite(err)
			break
		}
	}
	if !refused {
		t.Fatalf("pushes until the disk is full: %v, want a definite ErrNoSpace", err)
	}
	ballast := bytesLeft(t, mount) - 8<<20
	if err := os.WriteFile(filepath.Join(mount, "ballast"), make([]byte, ballast), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		for _, f := range []func(context.Context, *rand.Rand) error{w.claim, w.amendOnly} {
			within(t, "a call on a nearly full disk", func() { err = f(t.Context(), rng) })
			if err != nil {
				t.Fatalf("acks, cancels and reschedules on a nearly full disk: %v", err)
			}
		}
	}
	closeStore(t, s)
	if err := os.Remove(filepath.Join(mount, "ballast")); err != nil {
		t.Fatal(err)
	}
	l.crash(false)
	if err := l.judge(dir, Options{Logger: quiet}); err != nil {
		t.Error(err)
	}
	for _, p := range l.problems {
		t.Error(p)
	}
	t.Log(l)
}

// amendOnly is amend without the push that it makes when it knows no message.
func (w *workload) amendOnly(ctx context.Context, r *rand.Rand) error {
	w.mu.Lock()
	known := len(w.pool)
	w.mu.Unlock()
	if known < 3 {
		return nil
	}
	return w.amend(ctx, r)
}

func bytesLeft(t *testing.T, dir string) int {
	t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return int(st.Bavail) * int(st.Bsize)
}

// TestReadOnlyDirectory opens a store on a medium that takes no writes: the error says so, and
// damages nothing.
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
			t.Errorf("open %s on a read-only medium: %v; want an error that says read-only and what is needed", what, err)
		}
	}
	remount(0)
	s = openAt(t, dir, &Options{ReserveBytes: 1})
	if ds := claim(t, s, "o", 1); len(ds) != 1 || ds[0].ID != "kept" {
		t.Errorf("P1 no loss: after the medium was read-only for a while: %+v", ds)
	}
}

// TestNoPermission says the same where no file system can be mounted.
func TestNoPermission(t *testing.T) {
	for _, cause := range []error{syscall.EROFS, syscall.EACCES} {
		f := faults{}
		f.set(func(int, fsOp) error { return cause })
		_, err := Open("store", &Options{fs: hookFS{vfs.NewMem(), f.hook}, Logger: quiet})
		if !errors.Is(err, cause) && !errors.Is(err, fs.ErrPermission) || !strings.Contains(fmt.Sprint(err), "may write") {
			t.Errorf("open where every change ends with %v: %v", cause, err)
		}
	}
}
