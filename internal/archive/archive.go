// Package archive writes the copy of a store's directory as a tar archive of plain files, and
// unpacks it into another directory, perhaps in another process or on another machine. The order of
// the files matters: a directory counts as a store only when the last file is there, so a copy that
// was cut short is never taken for a store.
package archive

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// LastPrefix is how the name of the last file of an archive begins.
const LastPrefix = "marker.manifest"

// File is one file to be written to an archive.
type File struct {
	Name string
	// Size is how many of the file's bytes belong to the copy. The file may have more bytes,
	// because it is still written.
	Size int64
	Open func() (io.ReadCloser, error)
}

// Write writes the files to w in the order given. Before that it calls size, unless size is nil,
// with the length of the whole archive in bytes. Write calls alive before each part of a file, and
// ends with an error that wraps the one of alive, for instance because the store was closed.
func Write(w io.Writer, files []File, size func(total int64), alive func() error) error {
	total := int64(2 * block) // two empty blocks end the archive
	for _, f := range files {
		total += block + (f.Size+block-1)/block*block
	}
	if size != nil {
		size(total)
	}
	t := tar.NewWriter(w)
	for _, f := range files {
		if err := writeFile(t, f, alive); err != nil {
			return fmt.Errorf("copy %s: %w", f.Name, err)
		}
	}
	return t.Close()
}

func writeFile(t *tar.Writer, f File, alive func() error) (err error) {
	if err := alive(); err != nil {
		return err
	}
	if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.Name, Size: f.Size, Mode: 0o600, Format: tar.FormatUSTAR}); err != nil {
		return err
	}
	in, err := f.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	for left := f.Size; left > 0; left -= step {
		if err := alive(); err != nil {
			return err
		}
		if _, err := io.CopyN(t, in, min(step, left)); err != nil {
			return err
		}
	}
	return nil
}

// block is the unit of a tar archive. A file has one block for its header, and whole blocks for its
// content.
const block = 512

// step is how many bytes are written between two calls of alive at most.
const step = 1 << 20

// Backup has a store archive itself and unpacks the archive into dir. It keeps the promises of
// storekit.Backuper.Backup.
func Backup(ctx context.Context, from storekit.Backuper, dir string, progress func(written, total int64)) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("backup: copy into %s: %w", dir, kind(err))
		}
	}()
	to, err := begin(dir)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, to.undo())
		}
	}()
	ctx, end := context.WithCancel(ctx)
	defer end()
	r, w := io.Pipe()
	to.progress = progress
	archived := make(chan error, 1)
	go func() {
		err := from.Archive(ctx, w, func(n int64) { to.total.Store(n) })
		_ = w.CloseWithError(err) // always returns nil
		archived <- err
	}()
	err = to.unpack(counted{r, to})
	if err != nil {
		end()
	}
	_ = r.CloseWithError(err) // always returns nil
	if cause := <-archived; cause != nil && (err == nil || errors.Is(err, cause)) {
		err = cause
	}
	return err
}

// CheckOutside returns an ErrInvalid when dir lies in the directory of the store that is to be
// copied, by whatever path.
func CheckOutside(store, dir string) error {
	from, err := real(store)
	if err != nil {
		return fmt.Errorf("backup: copy from %s: %w", store, err)
	}
	to, err := real(dir)
	if err != nil {
		return fmt.Errorf("backup: copy into %s: %w", dir, err)
	}
	if inside, err := filepath.Rel(from, to); err == nil && filepath.IsLocal(inside) {
		return fmt.Errorf("backup: copy into %s: the directory lies in that of the store; name another one, best on another disk: %w", dir, punctual.ErrInvalid)
	}
	return nil
}

// real returns the absolute path of a directory without symbolic links. The directory, and
// directories above it, may not exist yet.
func real(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	full, err := filepath.EvalSymlinks(dir)
	if parent := filepath.Dir(dir); errors.Is(err, fs.ErrNotExist) && parent != dir {
		full, err = real(parent)
		full = filepath.Join(full, filepath.Base(dir))
	}
	return full, err
}

// kind returns err wrapped in punctual.ErrNoSpace if the disk is full or a quota is used up, and
// any other err as it is.
func kind(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", punctual.ErrNoSpace, err)
	}
	return err
}

// begin makes the directory for a copy. A directory that exists has to be empty; a lost+found in it
// does not count.
func begin(dir string) (*target, error) {
	full, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	t := &target{dir: full}
	entries, err := os.ReadDir(full)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return t, t.make()
	case errors.Is(err, syscall.ENOTDIR):
		return nil, fmt.Errorf("it is no directory; name one that does not exist or is empty: %w", punctual.ErrInvalid)
	case err != nil:
		return nil, err
	}
	for _, e := range entries {
		if e.Name() != "lost+found" { // the root of a file system has that from the start
			return nil, fmt.Errorf("the directory is not empty (it holds %s); name one that does not exist or is empty: %w", e.Name(), punctual.ErrInvalid)
		}
	}
	return t, nil
}

// target is the directory into which a copy is written.
type target struct {
	dir      string
	made     []string // directories that were not there, outermost first
	written  []string // paths of files
	done     int64
	total    atomic.Int64
	progress func(written, total int64)
}

// make makes the directory and the missing directories above it, and makes their names durable.
func (t *target) make() error {
	var missing []string
	for d := t.dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(d); err == nil {
			break
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		missing = append(missing, d)
	}
	for i := len(missing) - 1; i >= 0; i-- {
		if err := os.Mkdir(missing[i], 0o700); err != nil {
			return errors.Join(err, t.undo())
		}
		t.made = append(t.made, missing[i])
		if err := syncDir(filepath.Dir(missing[i])); err != nil {
			return errors.Join(err, t.undo())
		}
	}
	return nil
}

// undo removes the files and directories that were made.
func (t *target) undo() (err error) {
	for _, path := range t.written {
		err = errors.Join(err, ignoreMissing(os.Remove(path)))
	}
	for i := len(t.made) - 1; i >= 0; i-- {
		err = errors.Join(err, ignoreMissing(os.Remove(t.made[i])))
	}
	return err
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// unpack writes and syncs every file of an archive. The last file is written when all others are
// durable.
func (t *target) unpack(r io.Reader) error {
	in := tar.NewReader(r)
	complete := false
	for {
		h, err := in.Next()
		switch {
		case errors.Is(err, io.EOF) && !complete:
			return fmt.Errorf("the copy ends before its last file: %w; the log of the process that owns the store says why", punctual.ErrUnreachable)
		case errors.Is(err, io.EOF):
			return syncDir(t.dir)
		case err != nil:
			return err
		case complete, h.Typeflag != tar.TypeReg, !filepath.IsLocal(h.Name), h.Name != filepath.Base(h.Name):
			return fmt.Errorf("the copy holds %q, which no store's does: %w", h.Name, punctual.ErrInvalid)
		}
		if complete = strings.HasPrefix(h.Name, LastPrefix); complete {
			if err := syncDir(t.dir); err != nil {
				return err
			}
		}
		if err := t.write(h.Name, in); err != nil {
			return err
		}
	}
}

// write makes one file and syncs it.
func (t *target) write(name string, in io.Reader) (err error) {
	path := filepath.Join(t.dir, name)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	t.written = append(t.written, path)
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := io.Copy(f, in); err != nil {
		return err
	}
	return f.Sync()
}

// counted is the reader of an archive. It reports the progress of the copy.
type counted struct {
	io.Reader
	to *target
}

// Read implements io.Reader.
func (c counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.to.done += int64(n)
	if c.to.progress != nil {
		c.to.progress(c.to.done, c.to.total.Load())
	}
	return n, err
}

// syncDir makes the names of the files in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	return errors.Join(err, d.Close())
}
