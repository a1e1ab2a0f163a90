// Package failstop knows whether a store is open, closing or failed, and has the file system that
// obeys it.
//
// A store fails once and for good. After a failed write or fsync nobody knows what the disk holds.
// An fsync that is tried again may report success for data that the kernel has dropped (fsyncgate,
// PostgreSQL 2018). So the first failure is kept, every call under way gets it, and the store has
// to be opened again.
package failstop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/errkind"
)

// State is whether a store is open, closing or failed, with the calls and the changes of files
// under way. It is safe for concurrent use. Its locks are the innermost, except that what
// RefuseChanges is given runs with one of them held.
type State struct {
	dir     string
	log     *slog.Logger
	timeout time.Duration // how long a change of files may wait for the disk

	changes changeCounter
	seldom  seldom

	mu     sync.Mutex
	closed bool           // guarded by mu
	calls  sync.WaitGroup // grows only with mu held and while not closed, or by a call that is under way
	// scans are the reads that may last long and look at no context meanwhile. It grows only within
	// a call.
	scans sync.WaitGroup

	failing sync.Once
	cause   error // written before failed is closed
	failed  chan struct{}
	closing chan struct{}
	open    context.Context // ends after failed or closing is closed
	end     context.CancelFunc
}

// New returns the state of a store that is open, in the directory dir. A disk that does not answer
// for timeout is taken for failed.
func New(dir string, log *slog.Logger, timeout time.Duration) *State {
	s := &State{dir: dir, log: log, timeout: timeout, failed: make(chan struct{}), closing: make(chan struct{})}
	s.seldom.last, s.seldom.left = make(map[string]time.Time), make(map[string]int)
	s.open, s.end = context.WithCancel(context.Background())
	return s
}

// seldom holds back the lines that a log has had within logPause.
type seldom struct {
	mu   sync.Mutex
	last map[string]time.Time // guarded by mu: when each text was logged last
	left map[string]int       // guarded by mu: how often each was left out since
}

// logPause is the time between two lines with the same text that LogSeldom writes.
const logPause = time.Minute

// LogSeldom logs a failure that may come many times a second, at most once a minute for each text.
// The next line says how many were left out.
func (s *State) LogSeldom(level slog.Level, text string, args ...any) {
	s.seldom.mu.Lock()
	last, again := s.seldom.last[text]
	if again && time.Since(last) < logPause {
		s.seldom.left[text]++
		s.seldom.mu.Unlock()
		return
	}
	left := s.seldom.left[text]
	s.seldom.last[text], s.seldom.left[text] = time.Now(), 0
	s.seldom.mu.Unlock()
	args = append([]any{"dir", s.dir}, args...)
	if left > 0 {
		args = append(args, "not_logged", left)
	}
	s.log.Log(context.Background(), level, text, args...)
}

// Enter counts a call in, or says why the store takes none. Each success needs its Leave.
func (s *State) Enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.Usable(); err != nil {
		return err
	}
	if s.closed {
		return s.errClosed()
	}
	s.calls.Add(1)
	return nil
}

// Leave counts a call out.
func (s *State) Leave() { s.calls.Done() }

// EnterScan is Enter for a read that the closing of the store ends by refusing the reads of the
// database. Each success needs its LeaveScan.
func (s *State) EnterScan() error {
	if err := s.Enter(); err != nil {
		return err
	}
	defer s.Leave()
	s.scans.Add(1)
	return nil
}

// LeaveScan counts a read out that EnterScan has counted in.
func (s *State) LeaveScan() { s.scans.Done() }

// EnterFailed is Enter for a call that a failed store takes, too.
func (s *State) EnterFailed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.errClosed()
	}
	s.calls.Add(1)
	return nil
}

// Go runs a step of a call in a goroutine that counts as a call of its own. The caller is within a
// call.
func (s *State) Go(step func()) { s.calls.Go(step) }

// Usable returns why the store takes no calls, or nil. A store that has failed and is closed is a
// closed one.
func (s *State) Usable() error {
	select {
	case <-s.closing:
		return s.errClosed()
	default:
	}
	select {
	case <-s.failed:
		return s.Failure()
	default:
		return nil
	}
}

func (s *State) errClosed() error { return fmt.Errorf("store %s: %w", s.dir, punctual.ErrClosed) }

// Check returns why a call is not to go on: its context or the store has ended. Else it returns
// nil.
func (s *State) Check(ctx context.Context) error {
	if ctx.Err() != nil {
		return errkind.Ended(ctx)
	}
	return s.Usable()
}

// Context returns a context that ends when the store closes or fails.
func (s *State) Context() context.Context { return s.open }

// Ended returns a channel that is closed when the store closes or fails. Usable tells which.
func (s *State) Ended() <-chan struct{} { return s.open.Done() }

// Failed returns a channel that is closed when the store fails.
func (s *State) Failed() <-chan struct{} { return s.failed }

// HasFailed tells whether the store has failed.
func (s *State) HasFailed() bool {
	select {
	case <-s.failed:
		return true
	default:
		return false
	}
}

// Fail records the first failure and wakes everyone who waits. It does not wait for the disk.
func (s *State) Fail(err error) {
	s.failing.Do(func() {
		s.cause = errkind.Plain(err)
		s.log.Error("store has failed; reopen it when the disk works again", "dir", s.dir, "error", s.cause)
		s.log.Debug("all that is known of the failure", "dir", s.dir, "error", fmt.Sprintf("%+v", err))
		s.changes.close(nil) // from now on neither the store nor its database begins a change of a file
		close(s.failed)
		s.end()
	})
}

// Cause is the first failure of a store that has failed.
func (s *State) Cause() error { return s.cause }

// Failure is the error of a call that has changed nothing because the store has failed.
func (s *State) Failure() error {
	if errors.Is(s.cause, punctual.ErrCorrupt) {
		return fmt.Errorf("%w: %w; keep a copy of the directory, then restore it from a backup", punctual.ErrStoreFailed, s.cause)
	}
	return fmt.Errorf("%w and must be reopened when the disk works again: %v", punctual.ErrStoreFailed, s.cause)
}

// Indeterminate is the error of a call that was under way when the store failed, and whose change
// may have happened.
func (s *State) Indeterminate() error {
	return fmt.Errorf("%w: %w", punctual.ErrIndeterminate, s.Failure())
}

// Do runs a change of files in a goroutine of its own, because the disk may hang. It fails the
// store when the change does not return in time, or fails for another reason than space.
func (s *State) Do(doing string, change func() error) error {
	done := make(chan error, 1)
	go func() { done <- change() }()
	timer := time.NewTimer(s.timeout)
	defer timer.Stop()
	select {
	case err := <-done:
		if err == nil {
			return nil
		}
		if err = errkind.Classify(doing, err); errors.Is(err, punctual.ErrNoSpace) {
			return err
		}
		s.Fail(err)
	case <-timer.C:
		s.FailHung(doing)
	case <-s.failed:
	}
	return s.Indeterminate()
}

// FailHung fails the store because the disk hangs.
func (s *State) FailHung(doing string) {
	s.Fail(fmt.Errorf("%s: the disk did not answer for %v", doing, s.timeout))
}

// ReadError gives an error of the database its kind, and fails the store when it is damage.
func (s *State) ReadError(doing string, err error) error {
	err = errkind.Classify(doing, err)
	if errors.Is(err, punctual.ErrCorrupt) {
		s.Fail(err)
	}
	return err
}

// BeginClose lets no further calls in and ends what waits. It is false when the store was being
// closed before.
func (s *State) BeginClose() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.closed = true
	close(s.closing)
	s.end()
	return true
}

// WaitCalls waits for the calls under way, and then for the scans, which it ends.
func (s *State) WaitCalls() {
	s.calls.Wait()
	s.changes.noReads.Store(true)
	s.scans.Wait()
	s.changes.noReads.Store(false)
}

// RefuseReads refuses the database's reads from now on, so that a long read ends.
func (s *State) RefuseReads() { s.changes.noReads.Store(true) }

// StopReads has each goroutine of a failed database stop at its next read that fails. No call may
// be under way.
func (s *State) StopReads() { s.changes.stopReads.Store(true) }

// AwaitProgress returns what it receives from done, the result of a step that changes many files.
// It fails the store when no change of a file has ended for as long as the disk may take.
func (s *State) AwaitProgress(doing string, done <-chan error) error {
	timer := time.NewTimer(s.timeout)
	defer timer.Stop()
	for seen := s.changes.progress(); ; timer.Reset(s.timeout) {
		select {
		case err := <-done:
			return err
		case <-s.failed:
			return s.Failure()
		case <-timer.C:
		}
		now := s.changes.progress()
		if now == seen {
			s.FailHung(doing)
			return s.Failure()
		}
		seen = now
	}
}

// RefuseChanges refuses all further changes of files. It calls after, if not nil, as soon as none
// is under way: at once, or when the last change under way returns, which a disk that hangs may put
// off for ever. after must not change a file by an FS of this State.
func (s *State) RefuseChanges(after func()) { s.changes.close(after) }

// Still tells whether changes are refused and none is under way. Tests use it.
func (s *State) Still() bool {
	s.changes.mu.Lock()
	defer s.changes.mu.Unlock()
	return s.changes.shut && s.changes.underWay == 0
}

// BlockForever stops the calling goroutine, one in the database of a failed or closed store, where
// it is. It does not end the goroutine, because the deferred calls of a goroutine that is in the
// middle of something would unlock what is not locked, and so end the program. The goroutine and
// what it holds are lost until the process ends, which is the price of going on without the store.
func BlockForever() { select {} }
