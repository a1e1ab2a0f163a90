package diskstore

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// scaleFS is a file system that says that so much space is free, whatever its disk has.
type scaleFS struct {
	vfs.FS
	free *uint64 // read and written atomically while a store is open, because its goroutines read the number
}

func (f scaleFS) Unwrap() vfs.FS { return f.FS }

func (f scaleFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	free := atomic.LoadUint64(f.free)
	return vfs.DiskUsage{AvailBytes: free, TotalBytes: 1 << 40, UsedBytes: 1<<40 - free}, nil
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
	atomic.StoreUint64(&free, 99<<20)
	s.owned.ForgetSpace()
	if room, err := s.Space(t.Context()); err != nil || room != (storekit.Space{Free: 99 << 20, Total: 1 << 40, Reserve: 100 << 20}) {
		t.Errorf("space %+v, %v; want 99 MiB of 1 TiB, 100 MiB in reserve", room, err)
	}
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
	if err != nil || os[0].Err != nil || os[1].Err != nil {
		t.Errorf("cancel and reschedule with too little space: %v, %v", os, err)
	}
	atomic.StoreUint64(&free, 200<<20)
	s.owned.ForgetSpace()
	push(t, s, punctual.NewMessage{Topic: "o", ID: "late", Delay: time.Hour})
	if r := mustBeSound(t, s); r.Live != 2 {
		t.Errorf("%d live messages, want move and late", r.Live)
	}
}

// TestPushNeedsSpaceTwice: a push is refused when the reserve would be used up by what the database
// has only in its log yet, because that is written once more. The push is taken when the database
// has written its log into tables.
func TestPushNeedsSpaceTwice(t *testing.T) {
	const reserve, body = 100 << 20, 4 << 20
	free := uint64(reserve + 3*body)
	s := openAt(t, t.TempDir(), &Options{fs: scaleFS{vfs.Default, &free}, ReserveBytes: reserve, MaxBody: body})
	pushOne := func(id string) error {
		_, err := s.Push(t.Context(), []punctual.NewMessage{{Topic: "o", ID: id, Body: noise(1, body), Delay: time.Hour}})
		return err
	}
	s.owned.ForgetSpace()
	if err := pushOne("first"); err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"before the disk is asked again", "after that"} {
		if err := pushOne("second"); !errors.Is(err, punctual.ErrNoSpace) || !punctual.Definite(err) {
			t.Errorf("second push %s: %v, want ErrNoSpace, because the first message is written once more", when, err)
		}
		s.owned.ForgetSpace()
	}
	if n := s.db.Unwritten(); n < body {
		t.Errorf("%d bytes are unwritten, of a message of %d", n, body)
	}
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	s.db.CountUnwritten()
	s.owned.ForgetSpace()
	if err := pushOne("second"); err != nil {
		t.Errorf("second push when the first message is in a table: %v", err)
	}
}

// TestNoPermission is TestReadOnlyDirectory without a mount: the error says what a store needs when
// every change of a file is refused.
func TestNoPermission(t *testing.T) {
	for _, cause := range []error{syscall.EROFS, syscall.EACCES} {
		f := faults{}
		f.set(func(int, fsOp) error { return cause })
		_, err := Open("store", &Options{fs: hookFS{vfs.NewMem(), f.hook}, Logger: quiet})
		if _, hits, _ := f.state(); hits == 0 {
			t.Errorf("open made no change that could end with %v", cause)
		}
		if !errors.Is(err, cause) && !errors.Is(err, fs.ErrPermission) || !strings.Contains(fmt.Sprint(err), "may write") {
			t.Errorf("open where every change ends with %v: %v", cause, err)
		}
	}
}
