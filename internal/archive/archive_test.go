package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/punctualmq/punctual"
)

// sender is a store whose archive is data, and which returns err after having sent it.
type sender struct {
	data []byte
	err  error
}

func (sender) Backup(context.Context, string, func(int64, int64)) error { return nil }

func (s sender) Archive(_ context.Context, w io.Writer, size func(int64)) error {
	size(int64(len(s.data)))
	_, err := w.Write(s.data)
	return errors.Join(err, s.err)
}

// packed returns an archive of files with these names.
func packed(t *testing.T, names ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	var files []File
	for _, n := range names {
		files = append(files, File{Name: n, Size: 3, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("abcdef")), nil }})
	}
	var said int64
	if err := Write(&b, files, func(n int64) { said = n }, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if said != int64(b.Len()) {
		t.Errorf("the archive has %d bytes and was said to have %d", b.Len(), said)
	}
	return b.Bytes()
}

func TestBackup(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	data := packed(t, "FORMAT-1", "000001.sst", LastPrefix+".1")
	if err := Backup(t.Context(), sender{data: data}, dir, nil); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "000001.sst")); err != nil || string(text) != "abc" {
		t.Errorf("%q, %v: want the bytes that belong to the copy alone", text, err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// An archive that is not a whole copy, or that names a file outside of the directory, leaves
// nothing behind, neither in the directory nor beside it.
func TestBackupOfNoCopy(t *testing.T) {
	whole := packed(t, "FORMAT-1", LastPrefix+".1")
	broken := errors.New("the disk broke")
	var link bytes.Buffer
	w := tar.NewWriter(&link)
	if err := errors.Join(w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "x", Linkname: "/etc"}), w.Close()); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		from sender
		want error
	}{
		"without its last file":  {sender{data: packed(t, "FORMAT-1")}, punctual.ErrUnreachable},
		"nothing":                {sender{}, punctual.ErrUnreachable},
		"cut within a file":      {sender{data: whole[:3*block+1]}, io.ErrUnexpectedEOF},
		"an error":               {sender{data: whole[:1024], err: broken}, broken},
		"a path upwards":         {sender{data: packed(t, "../x", LastPrefix)}, punctual.ErrInvalid},
		"a path":                 {sender{data: packed(t, "x/y", LastPrefix)}, punctual.ErrInvalid},
		"an absolute path":       {sender{data: packed(t, "/tmp/punctual-archive-test", LastPrefix)}, punctual.ErrInvalid},
		"a link":                 {sender{data: link.Bytes()}, punctual.ErrInvalid},
		"more than its last one": {sender{data: packed(t, LastPrefix, "x")}, punctual.ErrInvalid},
		"the same name twice":    {sender{data: packed(t, "x", "x", LastPrefix)}, os.ErrExist},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			err := Backup(t.Context(), c.from, filepath.Join(base, "a", "b"), nil)
			if !errors.Is(err, c.want) {
				t.Errorf("%v; want %v", err, c.want)
			}
			if entries, err := os.ReadDir(base); err != nil || len(entries) > 0 {
				t.Errorf("left: %v, %v", entries, err)
			}
		})
	}
}
