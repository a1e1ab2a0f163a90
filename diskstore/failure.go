package diskstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/punctualmq/punctual"
)

// A store fails once and for good. After a failed write or fsync nobody knows what
// the disk holds; an fsync that is tried again may report success for data that the
// kernel has dropped (fsyncgate, PostgreSQL 2018). So the first failure is kept, every call
// under way gets it, and the store has to be opened again.

// fail records the first failure and wakes everyone who waits. It does not block.
func (s *Store) fail(err error) {
	s.failOnce.Do(func() {
		s.failErr = err
		s.log.Error("store has failed; reopen it after mending the medium", "dir", s.dir, "error", err)
		s.gate.close(nil) // what is left of the database does not go on
		close(s.failed)
	})
}

// failure is the error of a call that was not begun because the store has failed.
func (s *Store) failure() error {
	if errors.Is(s.failErr, punctual.ErrCorrupt) {
		return fmt.Errorf("%w: %w", punctual.ErrStoreFailed, s.failErr)
	}
	return fmt.Errorf("%w and must be reopened: %v", punctual.ErrStoreFailed, s.failErr)
}

// cutShort is the error of a call that the failure caught under way.
func (s *Store) cutShort() error {
	return fmt.Errorf("%w: %w", punctual.ErrIndeterminate, s.failure())
}

// hasFailed tells whether fail was called.
func (s *Store) hasFailed() bool {
	select {
	case <-s.failed:
		return true
	default:
		return false
	}
}

func corruptf(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), punctual.ErrCorrupt)
}

// ended is the error of a context that has ended: its own, with the cause if that is another.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// halfDone is the error of a call that has changed something before it failed.
func halfDone(err error) error {
	if errors.Is(err, punctual.ErrIndeterminate) {
		return err
	}
	return fmt.Errorf("%w: %w", punctual.ErrIndeterminate, err)
}

// bounded runs a change of files in a goroutine of its own, because the disk may hang, and
// ends the store when it does not return in time or fails for another reason than space.
func (s *Store) bounded(doing string, change func() error) error {
	done := make(chan error, 1)
	go func() { done <- change() }()
	timer := time.NewTimer(s.opt.CommitTimeout)
	defer timer.Stop()
	select {
	case err := <-done:
		if err = classify(doing, err); err == nil || errors.Is(err, punctual.ErrNoSpace) {
			return err
		}
		s.fail(err)
	case <-timer.C:
		s.fail(s.hung(doing))
	case <-s.failed:
	}
	return s.cutShort()
}

func (s *Store) hung(doing string) error {
	return fmt.Errorf("%s: the disk did not answer for %v", doing, s.opt.CommitTimeout)
}

// readError gives an error of the database its kind, and ends the store when it is damage.
func (s *Store) readError(doing string, err error) error {
	err = classify(doing, err)
	if errors.Is(err, punctual.ErrCorrupt) {
		s.fail(err)
	}
	return err
}

// classify gives an error of files or database its kind.
func classify(doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, punctual.ErrCorrupt):
		return fmt.Errorf("%s: %w", doing, err)
	case pebble.IsCorruptionError(err):
		return fmt.Errorf("%s: %w: %v", doing, punctual.ErrCorrupt, err)
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%s: %w: %v", doing, punctual.ErrNoSpace, err)
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%s: %w (the store needs a directory that it may write to)", doing, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// mediumRefused tells errors that the operating system gave, as opposed to damage found.
func mediumRefused(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno) && errno != syscall.ENOENT
}

// engineLog hears what the database has to say. Its Fatalf is called after failures
// that the database cannot go on from; were it to return, a write whose fsync failed would be
// reported as done, and to exit would end the program of our user. So it records the
// failure and stops the calling goroutine; those who wait for it wait for failed too.
type engineLog struct{ s *Store }

func (l engineLog) Infof(string, ...any) {}

func (l engineLog) Errorf(format string, args ...any) {
	l.s.log.Error(fmt.Sprintf(format, args...), "dir", l.s.dir)
}

func (l engineLog) Fatalf(format string, args ...any) {
	l.s.fail(fmt.Errorf(format, args...))
	stopHere()
}

// stopHere keeps a goroutine of a failed database from going on. It does not end it:
// the deferred calls of a goroutine that is in the middle of something would unlock what is not
// locked, and with it end the program. The goroutine and what it holds are lost until the
// process ends, which is the price of going on without the store.
func stopHere() { select {} }
