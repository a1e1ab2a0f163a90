package diskstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/errkind"
)

// deepError is like the errors of the database: its text has several lines, and a stack when
// package fmt formats it.
type deepError struct{}

func (deepError) Error() string { return "an error of the database\n<corruption detail carrier>" }

func (e deepError) Format(f fmt.State, _ rune) {
	io.WriteString(f, e.Error()+"\n(1) attached stack trace\n  | main.main\n  | \t/src/main.go:12")
}

// TestFailureTextsAreOneLine: an error of a failed store says what to do, in one line, and each
// line of its log is plain, too. Neither has the stacks of the database, which are for the
// database's authors.
func TestFailureTextsAreOneLine(t *testing.T) { alone(t, failureTextsAreOneLine) }

func failureTextsAreOneLine(t *testing.T) {
	deep := deepError{}
	failing := func(s *Store) { s.state.Fail(errkind.Classify("read", deep)) }
	noTables := func(r *rig) func(s *Store) {
		return func(s *Store) {
			if err := s.db.Flush(); err != nil {
				t.Error(err)
			}
			names, err := r.mem.List("store")
			if err != nil {
				t.Error(err)
			}
			for _, n := range names {
				if strings.HasSuffix(n, ".sst") {
					if err := r.mem.Remove("store/" + n); err != nil {
						t.Error(err)
					}
				}
			}
		}
	}
	for _, c := range []struct {
		name   string
		wreck  func(r *rig) func(s *Store)
		remedy string
	}{
		{"an error with stacks", func(*rig) func(*Store) { return failing }, "reopened when the disk works again"},
		{"a fatal complaint with stacks", func(*rig) func(*Store) {
			return func(s *Store) { s.state.Fail(fmt.Errorf("pebble: fatal: %+v", deep)) }
		}, "reopened when the disk works again"},
		{"damage that the database reports", func(*rig) func(*Store) {
			return func(s *Store) { s.state.Fail(errkind.Corruptf("file 000007.sst: %+v", deep)) }
		}, "restore it from a backup"},
		{"a failing fsync", func(r *rig) func(*Store) {
			return func(*Store) { r.faults.set(func(int, fsOp) error { return errIO }) }
		}, "reopened when the disk works again"},
		{"tables that are gone", noTables, "restore it from a backup"},
	} {
		r, logged := newRig(t), &bytes.Buffer{}
		r.opt.Logger = slog.New(slog.NewTextHandler(logged, nil))
		s, err := Open("store", &r.opt)
		if err != nil {
			t.Fatal(err)
		}
		push(t, s, onePush...)
		c.wreck(r)(s)
		var first, later error
		within(t, c.name, func() { _, first = s.Push(t.Context(), append(unnamed(1), onePush...)) })
		within(t, c.name, func() {
			_, later = s.Push(t.Context(), []punctual.NewMessage{{Topic: "o", Delay: time.Hour}})
		})
		closed := errors.New("close hangs")
		within(t, c.name+": close", func() { closed = s.Close() })
		if first == nil || later == nil || closed == nil {
			t.Errorf("%s: the store did not fail: %v, %v, %v", c.name, first, later, closed)
			continue
		}
		for what, err := range map[string]error{"the call that met it": first, "a later call": later, "close": closed} {
			if !errors.Is(err, punctual.ErrStoreFailed) || !strings.Contains(err.Error(), c.remedy) {
				t.Errorf("P13: %s, %s: %v; want ErrStoreFailed and %q", c.name, what, err, c.remedy)
			}
			mustBePlain(t, c.name+", "+what, err.Error())
		}
		for _, line := range strings.Split(strings.TrimSpace(logged.String()), "\n") {
			mustBePlain(t, c.name+", the log", line)
		}
		if !strings.Contains(logged.String(), "store has failed") {
			t.Errorf("%s: the log does not say that the store has failed: %s", c.name, logged)
		}
	}
}

func mustBePlain(t *testing.T, what, text string) {
	t.Helper()
	for _, stack := range []string{"\n", `\n`, ".go:", "goroutine ", "attached stack trace", "<corruption detail"} {
		if strings.Contains(text, stack) {
			t.Errorf("%s: the text of an error contains %q: %.300s", what, stack, text)
		}
	}
	if len(text) > 700 {
		t.Errorf("%s: the text of an error has %d bytes: %.300s", what, len(text), text)
	}
}

// TestNoFileDescriptorLeft: the store waits while no file can be opened, and then goes on.
func TestNoFileDescriptorLeft(t *testing.T) {
	var refusals atomic.Int64 // how many more files cannot be opened
	var refused atomic.Int64
	hook := func(op fsOp) error {
		if op.kind == "create" && refusals.Add(-1) >= 0 {
			refused.Add(1)
			return syscall.EMFILE
		}
		return nil
	}
	s := openAt(t, "store", &Options{fs: hookFS{vfs.NewMem(), hook}, Logger: quiet, byHand: true})
	push(t, s, punctual.NewMessage{Topic: "o", ID: "a"})
	for what, open := range map[string]func() error{
		"a flush of the database":        s.db.Flush,
		"a replacement of the claim log": func() error { return s.replaceFullSegment(t.Context()) },
	} {
		before := refused.Load()
		refusals.Store(3)
		var err error
		if !within(t, what, func() { err = open() }) {
			return
		}
		if err != nil || refused.Load() != before+3 {
			t.Errorf("%s while 3 files could not be opened: %v; %d were refused", what, err, refused.Load()-before)
		}
	}
	if ds := claim(t, s, "o", 1); len(ds) != 1 {
		t.Errorf("P1 no loss: claimed %+v, want the message", ds)
	}
}

// TestUnreadableTableDoesNotFlood: a table that cannot be read the database tries to compact again
// and again. It tries some ten times a second, with one line in the log, and stops when the store
// is closed, whether the store has failed before or not.
func TestUnreadableTableDoesNotFlood(t *testing.T) { alone(t, unreadableTables) }

func unreadableTables(t *testing.T) {
	for _, failed := range []bool{false, true} {
		t.Run(fmt.Sprint("failed ", failed), func(t *testing.T) { unreadableTable(t, "(*DB).compact(", failed) })
	}
}

func unreadableTable(t *testing.T, what string, failed bool) {
	logged := &lines{}
	fs := &failingReads{FS: vfs.NewMem(), only: what}
	opt := Options{fs: fs, Logger: slog.New(slog.NewTextHandler(logged, nil)), byHand: true}
	s, err := Open("store", &opt)
	if err != nil {
		t.Fatal(err)
	}
	push(t, s, unnamed(10)...)
	closeStore(t, s)
	if s, err = Open("store", &opt); err != nil {
		t.Fatal(err)
	}
	fs.armed.Store(true) // not before, because Open shares the reading of a table with the goroutine whose readings fail
	for range 5 {        // so many that the tables are to be compacted
		push(t, s, unnamed(10)...)
		if err := s.db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	for giveUp := time.Now().Add(waitLimit); fs.failed.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(giveUp) {
			t.Fatal("no read of a table failed")
		}
	}
	began, before := time.Now(), fs.failed.Load()
	time.Sleep(time.Second) // to see that hardly anything happens
	if n, most := fs.failed.Load()-before, 20+20*int64(time.Since(began)/time.Second); n > most {
		t.Errorf("%d reads of the table failed in %v, want %d at most", n, time.Since(began), most)
	}
	if failed {
		s.state.Fail(errIO)
	}
	if err := s.Close(); (err != nil) != failed {
		t.Errorf("close of a store that has failed (%v): %v", failed, err)
	}
	if n := strings.Count(logged.String(), "in the background"); n != 1 {
		t.Errorf("%d lines in the log say that the database cannot work, want 1", n)
	}
	for giveUp, before := time.Now().Add(waitLimit), int64(-1); fs.failed.Load() != before; time.Sleep(300 * time.Millisecond) {
		if before = fs.failed.Load(); time.Now().After(giveUp) {
			t.Fatal("the database goes on after Close")
		}
	}
}

// lines is a log that several goroutines write.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestLockNotAllowed: a directory whose lock cannot be asked for, because another user made it or
// because no further file can be opened, is not one that is in use.
func TestLockNotAllowed(t *testing.T) {
	dir := t.TempDir()
	closeStore(t, openAt(t, dir, &Options{Logger: quiet})) // leaves the mark of an owner
	for _, cause := range []error{syscall.EACCES, syscall.EROFS, syscall.EMFILE} {
		_, err := Open(dir, &Options{fs: noLock{vfs.Default, cause}, Logger: quiet})
		if !errors.Is(err, cause) || errors.Is(err, punctual.ErrLocked) {
			t.Errorf("P13: open where the lock fails with %q: %v; want that error and not ErrLocked", cause, err)
		}
	}
}

// noLock is a file system whose locks fail.
type noLock struct {
	vfs.FS
	cause error
}

func (f noLock) Unwrap() vfs.FS { return f.FS }

func (f noLock) Lock(name string) (io.Closer, error) {
	return nil, &os.PathError{Op: "open", Path: name, Err: f.cause}
}
