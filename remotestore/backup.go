package remotestore

import (
	"context"
	"fmt"
	"io"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/archive"
	"github.com/punctualmq/punctual/internal/wire"
)

// Backup implements storekit.Backuper. The server sends the copy, for which the caller needs the
// rights to administer and inspect all topics, and Backup writes it to dir on this machine. It
// fails with ErrUnsupported when the store behind the server is no storekit.Backuper. The embedded
// store is one.
func (s *Store) Backup(ctx context.Context, dir string, progress func(written, total int64)) error {
	return archive.Backup(ctx, s, dir, progress)
}

// Archive implements storekit.Backuper.
func (s *Store) Archive(ctx context.Context, w io.Writer, size func(total int64)) error {
	if err := s.calls.Begin(ctx); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	defer s.calls.End()
	asking, end := context.WithCancel(ctx)
	defer end()
	var failed error // of copying the archive: of writing it on this machine, or of reading it from the server
	r := read(wire.PathBackup)
	r.onBody = func(body io.Reader, length int64) error {
		if size != nil {
			size(length)
		}
		in := &answerBody{in: body}
		n, err := io.Copy(w, in)
		switch {
		case in.err != nil:
			failed = fmt.Errorf("%w after %d of %d bytes; back up again: %w", punctual.ErrUnreachable, n, length, in.err)
		case err != nil:
			failed = err
		case n != length:
			failed = fmt.Errorf("%w: the server has sent %d of %d bytes; back up again", punctual.ErrUnreachable, n, length)
		}
		if failed != nil {
			end() // so that no second copy is asked for, which could not be appended to the part that w has already
		}
		return failed
	}
	_, err := s.do(asking, r)
	switch {
	case failed == nil || ctx.Err() != nil: // err says why
	case s.closing.Err() != nil:
		err = s.calls.ErrClosed()
	default:
		err = failed
	}
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	return nil
}

// answerBody reads the body of an answer and keeps the error of that, so that it can be told from
// an error of the writer to which the body is copied.
type answerBody struct {
	in  io.Reader
	err error // of in, but for io.EOF
}

// Read implements io.Reader.
func (b *answerBody) Read(p []byte) (int, error) {
	n, err := b.in.Read(p)
	if err != io.EOF {
		b.err = err
	}
	return n, err
}
