package diskstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/punctualmq/punctual"
)

// slowReads is a disk whose reads of tables take as long as each does, while armed is set.
type slowReads struct {
	vfs.FS
	each  func() // called at each read of a table
	armed *atomic.Bool
}

func (f slowReads) Unwrap() vfs.FS { return f.FS }

func (f slowReads) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.Open(name, opts...)
	if err != nil || !strings.HasSuffix(name, ".sst") {
		return file, err
	}
	return slowFile{file, f}, nil
}

type slowFile struct {
	vfs.File
	fs slowReads
}

func (f slowFile) ReadAt(b []byte, off int64) (int, error) {
	if f.fs.armed.Load() {
		f.fs.each()
	}
	return f.File.ReadAt(b, off)
}

// slowStore opens a store with 2000 messages in two tables. No block of these is in the cache yet,
// so its first read is one of the slow disk.
func slowStore(t *testing.T, each func()) (*Store, *Options, *atomic.Bool) {
	t.Helper()
	armed := &atomic.Bool{}
	o := &Options{fs: slowReads{vfs.NewMem(), each, armed}, Logger: quiet, CacheBytes: 1, MemoryBytes: 1, CommitTimeout: 4 * time.Second}
	s, err := Open("store", o)
	if err != nil {
		t.Fatal(err)
	}
	for part := range 2 {
		var ms []punctual.NewMessage
		for i := range 1000 {
			ms = append(ms, punctual.NewMessage{Topic: "o", ID: fmt.Sprint(i*2 + part), Body: make([]byte, 4<<10), Due: testStart.Add(time.Duration(i*2+part) * time.Hour)})
		}
		push(t, s, ms...)
		if err := s.db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	return s, o, armed
}

// mustCloseSoundly fails the test unless Close succeeds and the store still holds everything.
func mustCloseSoundly(t *testing.T, s *Store, o *Options, armed *atomic.Bool) {
	t.Helper()
	within(t, "close", func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	armed.Store(false)
	again, err := Open("store", o)
	if err != nil {
		t.Fatal(err)
	}
	if r := mustBeSound(t, again); r.Live != 2000 {
		t.Errorf("P1 no loss: %d messages, want 2000", r.Live)
	}
	closeStore(t, again)
}

// TestSlowCloseEndsACheck closes a store while a check reads, on a disk so slow that the check
// would take far longer than CommitTimeout. Close ends the check, and does not take the disk for
// hanging.
func TestSlowCloseEndsACheck(t *testing.T) { alone(t, closeEndsACheck) }

func closeEndsACheck(t *testing.T) {
	reading := make(chan struct{}, 1)
	s, o, armed := slowStore(t, func() {
		select {
		case reading <- struct{}{}:
		default:
		}
		time.Sleep(20 * time.Millisecond) // the disk is slow
	})
	armed.Store(true)
	checked := make(chan error, 1)
	go func() {
		_, err := s.Check(t.Context(), nil)
		checked <- err
	}()
	<-reading
	mustCloseSoundly(t, s, o, armed)
	if err := <-checked; !errors.Is(err, punctual.ErrClosed) {
		t.Errorf("the check that Close ended: %v, want ErrClosed", err)
	}
}

// TestSlowCloseEndsACompaction is the same for a compaction: Close gives it some time, ends it, and
// does not take the disk for hanging.
func TestSlowCloseEndsACompaction(t *testing.T) { alone(t, closeEndsACompaction) }

func closeEndsACompaction(t *testing.T) {
	reading := make(chan struct{}, 1)
	s, o, armed := slowStore(t, func() {
		select {
		case reading <- struct{}{}:
		default:
		}
		time.Sleep(100 * time.Millisecond) // the disk is slow
	})
	armed.Store(true)
	ctx, stop := context.WithCancel(t.Context())
	compacted := make(chan error, 1)
	go func() { compacted <- s.db.Compact(ctx) }()
	<-reading
	stop()
	if err := <-compacted; !errors.Is(err, context.Canceled) {
		t.Fatalf("the compaction is not under way: %v", err)
	}
	if n := s.db.Stats().Compacting; n != 1 {
		t.Errorf("%d compactions are under way when the store is closed, want 1", n)
	}
	mustCloseSoundly(t, s, o, armed)
}

// TestSlowCheckEndsWithItsContext: a check ends when its context ends, also while the database
// compares its levels, which looks at no context.
func TestSlowCheckEndsWithItsContext(t *testing.T) {
	reading, release := make(chan struct{}, 1), make(chan struct{})
	s, o, armed := slowStore(t, func() {
		select {
		case reading <- struct{}{}:
		default:
		}
		<-release
	})
	armed.Store(true)
	ctx, stop := context.WithCancel(t.Context())
	checked := make(chan error, 1)
	go func() {
		_, err := s.Check(ctx, nil)
		checked <- err
	}()
	<-reading
	stop()
	within(t, "the check", func() {
		if err := <-checked; !errors.Is(err, context.Canceled) {
			t.Errorf("check: %v, want the error of its context", err)
		}
	})
	close(release)
	mustCloseSoundly(t, s, o, armed)
}
