package diskstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/claimlog"
	"github.com/punctualmq/punctual/diskstore/internal/directory"
	"github.com/punctualmq/punctual/diskstore/internal/errkind"
	"github.com/punctualmq/punctual/diskstore/internal/writer"
	"github.com/punctualmq/punctual/internal/archive"
)

// A copy is of one instant. The write lock is held while the database makes a checkpoint, and the
// size of the claim log is read under the same lock. No transaction can come between the two. So a
// message that a handler pushed before it acked another one is in the copy whenever the ack is.
// Claims, extensions, and acks that need no transaction go on meanwhile. What they append to the
// claim log lies after the size that was read. The checkpoint is made of second names (hard links)
// of the tables, and of copies of the small other files, in a directory below the store's. So the
// lock is held for about as long as links take, and not for as long as copying all tables takes.
// What is copied afterwards cannot change.

// Backup implements storekit.Backuper. dir must not lie in the store's own directory. The copy is
// always written to the file system of the machine.
func (s *Store) Backup(ctx context.Context, dir string, progress func(written, total int64)) error {
	if err := archive.CheckOutside(s.dir, dir); err != nil {
		return err
	}
	return archive.Backup(ctx, s, dir, progress)
}

// Archive implements storekit.Backuper. Until it returns, the files of the copy take room on the
// store's disk that the database would otherwise give back.
func (s *Store) Archive(ctx context.Context, w io.Writer, size func(total int64)) (err error) {
	if err := s.state.Enter(); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	defer s.state.Leave()
	if !s.archiving.TryLock() {
		return fmt.Errorf("backup: another one is under way: %w", punctual.ErrOverloaded)
	}
	defer s.archiving.Unlock()
	dir := s.opt.fs.PathJoin(s.dir, fmt.Sprintf("%s%016x", directory.StagingPrefix, rand.Uint64()))
	defer func() {
		if rerr := s.opt.fs.RemoveAll(dir); rerr != nil {
			err = errors.Join(err, errkind.Classify("backup: remove "+dir, rerr))
		}
	}()
	files, err := s.stage(ctx, dir)
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	if err := archive.Write(w, files, size, func() error { return s.state.Check(ctx) }); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	return nil
}

// stage prepares a copy in the directory dir and lists its files in the order in which they are to
// be copied.
func (s *Store) stage(ctx context.Context, dir string) ([]archive.File, error) {
	if err := s.flushBefore(ctx); err != nil {
		return nil, err
	}
	segments, err := s.claims.Link(s.opt.fs, dir, func(now func()) error {
		return s.writer.Locked(ctx, func(*writer.Tx) error {
			now()
			return s.checkpoint(dir)
		})
	})
	if err != nil {
		return nil, errkind.Classify("prepare the copy", err)
	}
	return s.staged(dir, segments)
}

// flushBefore writes the database's buffer into tables, so that little is left in the log, which
// has to be copied with the write lock held.
func (s *Store) flushBefore(ctx context.Context) error {
	flushed, err := s.db.StartFlush()
	if err != nil {
		return err
	}
	select {
	case <-flushed:
		return nil
	case <-ctx.Done():
		return errkind.Ended(ctx)
	case <-s.state.Ended():
		return s.state.Usable()
	}
}

// checkpoint makes the database's part of a copy. Called with the write lock held. It runs in a
// goroutine that counts as a call, because the disk may hang or the store fail meanwhile.
func (s *Store) checkpoint(dir string) error {
	done := make(chan error, 1)
	s.state.Go(func() { done <- s.db.Checkpoint(dir) })
	timer := time.NewTimer(s.opt.CommitTimeout)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		s.state.FailHung("make a copy of the database")
	case <-s.state.Failed():
	}
	return s.state.Failure()
}

// staged lists the files of a copy. The one by which a directory counts as a store comes last.
func (s *Store) staged(dir string, segments []claimlog.Part) ([]archive.File, error) {
	fs := s.opt.fs
	names, err := fs.List(dir)
	if err != nil {
		return nil, err
	}
	// The segments of the claim log grow under their other names, so their sizes were read at the
	// instant of the copy.
	size := make(map[string]int64, len(segments))
	for _, p := range segments {
		size[p.Name] = p.Size
	}
	slices.SortFunc(names, func(a, b string) int {
		last := func(name string) int {
			if strings.HasPrefix(name, archive.LastPrefix) {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(last(a), last(b)), cmp.Compare(a, b))
	})
	empty := func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("")), nil }
	files := []archive.File{{Name: directory.CopyFile, Open: empty}, {Name: directory.FormatFile(), Open: empty}}
	for _, name := range names {
		path := fs.PathJoin(dir, name)
		n, known := size[name]
		if !known {
			info, err := fs.Stat(path)
			if err != nil {
				return nil, err
			}
			n = info.Size()
		}
		files = append(files, archive.File{Name: name, Size: n, Open: func() (io.ReadCloser, error) { return fs.Open(path) }})
	}
	return files, nil
}
