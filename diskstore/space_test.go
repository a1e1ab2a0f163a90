package diskstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
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
		due := time.Now().Add(time.Hour)
		if id == "ack" {
			due = testStart.AddDate(-1, 0, 0)
		}
		push(t, s, punctual.NewMessage{Topic: "o", ID: id, Due: due})
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
