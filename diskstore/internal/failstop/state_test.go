package failstop

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/errkind"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func newState() *State { return New("store", quiet, time.Minute) }

func mustHaveEnded(t *testing.T, s *State, want error) {
	t.Helper()
	select {
	case <-s.Ended():
	default:
		t.Error("the end was not told")
	}
	if err := s.Enter(); !errors.Is(err, want) {
		t.Errorf("enter: %v, want %v", err, want)
	}
	if err := s.Check(t.Context()); !errors.Is(err, want) {
		t.Errorf("check: %v, want %v", err, want)
	}
}

func TestTheFirstFailureStays(t *testing.T) {
	s := newState()
	first := errors.New("the first")
	s.Fail(first)
	s.Fail(errors.New("the second"))
	if !errors.Is(s.Cause(), first) {
		t.Errorf("the cause is %v, want %v", s.Cause(), first)
	}
	mustHaveEnded(t, s, punctual.ErrStoreFailed)
	if err := s.EnterFailed(); err != nil {
		t.Errorf("a call that a failed store takes: %v", err)
	}
}

func TestCloseLetsNobodyIn(t *testing.T) {
	s := newState()
	if !s.BeginClose() || s.BeginClose() {
		t.Error("only the first close begins")
	}
	mustHaveEnded(t, s, punctual.ErrClosed)
	if err := s.EnterFailed(); !errors.Is(err, punctual.ErrClosed) {
		t.Errorf("a call that a failed store takes: %v, want ErrClosed", err)
	}
}

// A store that has failed and was then closed answers ErrClosed and not ErrStoreFailed, each time
// it is asked.
func TestClosedComesBeforeFailed(t *testing.T) {
	s := newState()
	s.Fail(errors.New("a failure"))
	s.BeginClose()
	for range 100 {
		mustHaveEnded(t, s, punctual.ErrClosed)
	}
}

func TestCloseWaitsForCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newState()
		if err := s.Enter(); err != nil {
			t.Fatal(err)
		}
		s.BeginClose()
		done := make(chan struct{})
		go func() { s.WaitCalls(); close(done) }()
		synctest.Wait()
		select {
		case <-done:
			t.Error("the close did not wait for a call under way")
		default:
		}
		s.Leave()
		<-done
	})
}

func TestFailedChangesEndTheStore(t *testing.T) {
	full := newState()
	if err := full.Do("write", func() error { return syscall.ENOSPC }); !errors.Is(err, punctual.ErrNoSpace) || full.HasFailed() {
		t.Errorf("a full disk: %v, failed %t; want ErrNoSpace alone", err, full.HasFailed())
	}
	broken := newState()
	if err := broken.Do("write", func() error { return syscall.EIO }); !errors.Is(err, punctual.ErrIndeterminate) {
		t.Errorf("a broken disk: %v, want ErrIndeterminate", err)
	}
	mustHaveEnded(t, broken, punctual.ErrStoreFailed)
}

func TestHangingChangesEndTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, release := newState(), make(chan struct{})
		begun := time.Now()
		err := s.Do("write", func() error { <-release; return nil })
		if waited := time.Since(begun); !errors.Is(err, punctual.ErrIndeterminate) || waited != time.Minute {
			t.Errorf("a hanging disk: %v after %v, want ErrIndeterminate after a minute", err, waited)
		}
		mustHaveEnded(t, s, punctual.ErrStoreFailed)
		close(release)
	})
}

func TestChangesThatAreRefused(t *testing.T) {
	mem, s := vfs.NewMem(), newState()
	fs := NewFS(mem, s, func() error { return nil }, Store)
	if _, err := fs.Create("before", vfs.WriteCategoryUnspecified); err != nil {
		t.Fatal(err)
	}
	released := false
	s.RefuseChanges(func() { released = true })
	if _, err := fs.Create("after", vfs.WriteCategoryUnspecified); !errors.Is(err, punctual.ErrClosed) {
		t.Errorf("a change after the end: %v, want ErrClosed", err)
	}
	if !released || !s.Still() {
		t.Errorf("with no change under way: released %t, still %t; want both", released, s.Still())
	}
	if _, err := (ReadOnly{FS: mem}).Create("x", vfs.WriteCategoryUnspecified); !errors.Is(err, syscall.EROFS) {
		t.Errorf("a change of a file system that is only read: %v, want EROFS", err)
	}
}

// TestNoFileLeftForGood: when no file can be opened for half of the time that the disk may take,
// the attempts end, and Classify says which limit is too low.
func TestNoFileLeftForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := New("store", slog.New(slog.DiscardHandler), time.Minute)
		tried := 0
		fs := NewFS(refusing{vfs.NewMem(), &tried}, state, func() error { return nil }, Store)
		began := time.Now()
		_, err := fs.Create("store/file", vfs.WriteCategoryUnspecified)
		if !errors.Is(err, syscall.EMFILE) || tried < 2 || time.Since(began) < 30*time.Second {
			t.Errorf("create, tried %d times in %v: %v", tried, time.Since(began), err)
		}
		if text := errkind.Classify("make a file", err).Error(); !strings.Contains(text, "RLIMIT_NOFILE") {
			t.Errorf("the error is %q, want the limit that is too low", text)
		}
	})
}

// refusing is a file system that makes no file, because the process may open no more.
type refusing struct {
	vfs.FS
	tried *int
}

func (f refusing) Create(name string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	*f.tried++
	return nil, &os.PathError{Op: "open", Path: name, Err: syscall.EMFILE}
}

// TestOwnerIsAskedAgainAfterTheWait: an owner that loses its directory while it waits for a file to
// be closed makes no file there any more.
func TestOwnerIsAskedAgainAfterTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, state, tried := vfs.NewMem(), newState(), 0
		lost := errors.New("somebody else has the directory")
		owned := func() error {
			if tried > 0 {
				return lost
			}
			return nil
		}
		fs := NewFS(leaving{refusing{mem, &tried}, 3}, state, owned, Store)
		if _, err := fs.Create("file", vfs.WriteCategoryUnspecified); !errors.Is(err, lost) {
			t.Errorf("create: %v, want that the directory was lost", err)
		}
		if tried == 0 {
			t.Error("this test shows nothing: a file was left at the first attempt")
		}
		if _, err := mem.Stat("file"); err == nil {
			t.Error("the file of one who had lost the directory was made")
		}
		if !errors.Is(state.Cause(), lost) {
			t.Errorf("the cause of the failure is %v, want %v", state.Cause(), lost)
		}
	})
}

// leaving is a file system that makes files after so many attempts.
type leaving struct {
	refusing
	attempts int
}

func (f leaving) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if *f.tried < f.attempts {
		return f.refusing.Create(name, c)
	}
	return f.FS.Create(name, c)
}
