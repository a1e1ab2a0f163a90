package tokens

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/refresh"
)

// File is a file of entries that is read again when it changes. Its methods are safe for concurrent
// use.
type File struct {
	path    string
	log     *slog.Logger
	content *refresh.Value[content]
}

// content is what the file held when it was read last.
type content struct {
	entries *Entries
	err     error // why there are no entries
	stamp   stamp
}

// stamp tells whether a file is still the one that was read.
type stamp struct {
	modified time.Time
	size     int64
	mode     fs.FileMode
	file     fs.FileInfo // for os.SameFile; nil when there was none
}

func (s stamp) same(t stamp) bool {
	return s.modified.Equal(t.modified) && s.size == t.size && s.mode == t.mode && (s.file == nil) == (t.file == nil) && (s.file == nil || os.SameFile(s.file, t.file))
}

// checkInterval is how old what File has read may be. File checks whether its file has changed when
// Entries is called and that time has passed since the last check.
const checkInterval = 100 * time.Millisecond

// Open reads a file of entries. It fails when the file is missing or malformed, and except on
// Windows when it is open to others than its owner.
func Open(path string, log *slog.Logger) (*File, error) {
	f := &File{path: path, log: log}
	first := f.read()
	if errors.Is(first.err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: make it with 'punctual token new --tokens %s'", first.err, path)
	}
	if first.err != nil {
		return nil, first.err
	}
	f.content = refresh.New(checkInterval, first, f.readIfChanged)
	return f, nil
}

// Entries returns the entries of the file as it is now, or was at most a tenth of a second ago.
// While the file cannot be read, Entries returns an error that wraps punctual.ErrUnauthenticated:
// then nobody gets in, because it cannot be known which tokens were revoked.
func (f *File) Entries() (*Entries, error) {
	c := f.content.Get()
	if c.err != nil {
		return nil, fmt.Errorf("%w: %w", c.err, punctual.ErrUnauthenticated)
	}
	return c.entries, nil
}

// readIfChanged reads the file again if it is not the one that was read before, or could not be
// read then.
func (f *File) readIfChanged(before content) content {
	if now, err := stampOf(f.path); err == nil && now.same(before.stamp) && before.err == nil {
		return before
	}
	next := f.read()
	f.report(next.err, before.err)
	return next
}

// report logs a change of the file, and each problem once.
func (f *File) report(now, before error) {
	switch {
	case now != nil && (before == nil || before.Error() != now.Error()):
		f.log.Error("nobody is let in until the file of tokens can be read again", "err", now)
	case now == nil:
		f.log.Info("the file of tokens was read again", "path", f.path)
	}
}

func (f *File) read() (c content) {
	c.stamp, c.err = stampOf(f.path) // before the text, so that what changes in between is read again
	var text []byte
	if c.err == nil {
		text, c.err = readPrivate(f.path)
	}
	if c.err == nil {
		c.entries, c.err = Parse(text)
	}
	if c.err != nil {
		c.err = fmt.Errorf("%s: %w", f.path, c.err)
	}
	return c
}

func stampOf(path string) (stamp, error) {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}, err
	}
	return stamp{modified: info.ModTime(), size: info.Size(), mode: info.Mode(), file: info}, nil
}

// readPrivate reads a file. Except on Windows, it refuses one that others than its owner may use.
func readPrivate(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // nothing was written
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); runtime.GOOS != "windows" && mode&0o077 != 0 {
		return nil, fmt.Errorf("others than its owner may use it (mode %04o): run chmod 600 %s: %w", mode, path, punctual.ErrInvalid)
	}
	return io.ReadAll(f)
}

// Change lets change make the new list of entries from the old one, and replaces the file in one
// step: readers see the old list or the new one, also after a power cut. A file that does not exist
// counts as one without entries. Changes of several processes go one after the other where the
// system has flock; elsewhere, as on Windows, one of two changes at the same time can be lost.
func Change(path string, change func([]Entry) ([]Entry, error)) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("change the file of tokens: %w", err)
	}
	defer dir.Close() // ends the lock, too
	if err := lock(dir); err != nil {
		return fmt.Errorf("change the file of tokens: lock %s: %w", dir.Name(), err)
	}
	entries := &Entries{}
	text, err := readPrivate(path)
	if err == nil {
		entries, err = Parse(text)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	list, err := change(entries.All())
	if err != nil {
		return err
	}
	if entries, err = newEntries(list); err != nil {
		return err
	}
	if text, err = entries.text(); err != nil {
		return fmt.Errorf("write the entries: %w", err)
	}
	if err := replace(path, text, dir); err != nil {
		return fmt.Errorf("change %s: %w", path, err)
	}
	return nil
}

// replace puts text in the place of a file in one step, which a power cut does not undo, except on
// Windows.
func replace(path string, text []byte, dir *os.File) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	if runtime.GOOS == "windows" {
		return nil // a directory cannot be synced there
	}
	return dir.Sync()
}
