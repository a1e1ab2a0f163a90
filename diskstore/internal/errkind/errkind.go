// Package errkind gives the errors of files and of the database the kinds that callers know, and
// texts of one line. It has no state.
package errkind

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/punctualmq/punctual"
)

// plainError is an error of the database in one line. The database adds stacks and internal notes
// to its texts, which do not help an operator who has to repair a disk.
type plainError struct{ err error }

// Plain returns err with a text of one line.
func Plain(err error) error {
	if err == nil {
		return nil
	}
	return plainError{err}
}

// Error returns the first line of the error's text.
func (e plainError) Error() string { return FirstLine(e.err.Error()) }

func (e plainError) Unwrap() error { return e.err }

// FirstLine is the first line of a text, without space around it.
func FirstLine(text string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(first)
}

// Corruptf makes an ErrCorrupt with a text of one line.
func Corruptf(format string, args ...any) error {
	return fmt.Errorf("%s: %w", FirstLine(fmt.Sprintf(format, args...)), punctual.ErrCorrupt)
}

// Ended returns the error of a context that has ended: the cause of the end if that wraps ctx.Err,
// else an error that wraps both.
func Ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// HalfDone returns the error of a call that has changed something before it failed: err, which is
// made an ErrIndeterminate if it is none.
func HalfDone(err error) error {
	if errors.Is(err, punctual.ErrIndeterminate) {
		return err
	}
	return fmt.Errorf("%w: %w", punctual.ErrIndeterminate, err)
}

// Classify gives an error of files or database its kind, and says what was being done.
func Classify(doing string, err error) error {
	err = Plain(err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, punctual.ErrCorrupt):
		return fmt.Errorf("%s: %w", doing, err)
	case pebble.IsCorruptionError(err):
		return fmt.Errorf("%s: %w: %v", doing, punctual.ErrCorrupt, err)
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%s: %w: %v", doing, punctual.ErrNoSpace, err)
	case NoFileLeft(err):
		return fmt.Errorf("%s: %w (the process may have %d files open: raise RLIMIT_NOFILE, with ulimit -n or with LimitNOFILE of systemd)", doing, err, FileLimit())
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%s: %w (the store needs a directory that it may write to)", doing, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// NoFileLeft tells whether a file could not be opened because the process, or the machine, has as
// many files open as it may have. Nothing was changed then.
func NoFileLeft(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// RefusedBySystem tells whether an error came from the operating system, as opposed to damage that
// was found. A file that does not exist (ENOENT) counts as damage, because the database opens only
// files that it has made.
func RefusedBySystem(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno) && errno != syscall.ENOENT
}

// JoinClose closes c and returns err, or the error of closing when err is nil.
func JoinClose(err error, c io.Closer) error {
	if cerr := c.Close(); err == nil {
		return cerr
	}
	return err
}
