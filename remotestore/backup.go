package remotestore

import (
	"context"
	"fmt"
	"io"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/archive"
	"github.com/punctualmq/punctual/internal/wire"
)

// Backup implements punctual.Backuper. The server sends the copy, for which the caller needs the rights to administer and inspect all
// topics, and Backup writes it to dir on this machine. It fails with ErrUnsupported when the store behind the server is not the
// embedded one.
func (s *Store) Backup(ctx context.Context, dir string, progress func(written, total int64)) error {
	return archive.Backup(ctx, s, dir, progress)
}

// Archive implements punctual.Backuper.
func (s *Store) Archive(ctx context.Context, w io.Writer, size func(total int64)) error {
	if err := s.calls.Begin(ctx); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	defer s.calls.End()
	begun := false
	var failed error // of writing the copy on this machine, which is no failure of the server
	r := read(wire.PathBackup)
	r.onBody = func(body io.Reader, length int64) error {
		if begun {
			return failed // w has a part of an earlier copy, so nothing can be appended to it
		}
		begun = true
		if size != nil {
			size(length)
		}
		var n int64
		n, failed = io.Copy(w, body)
		if failed == nil && n != length {
			failed = fmt.Errorf("the server has sent %d of %d bytes: %w", n, length, punctual.ErrUnreachable)
		}
		return failed
	}
	_, err := s.do(ctx, r)
	if failed != nil && ctx.Err() == nil {
		err = failed
	}
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	return nil
}
