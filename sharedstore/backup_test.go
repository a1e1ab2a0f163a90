package sharedstore_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore"
	"github.com/punctualmq/punctual/storekit"
)

// The owner and another process each make a copy with all messages. Both refuse to make it in a
// directory that exists, or within that of the store.
func TestBackup(t *testing.T) {
	dir := t.TempDir()
	owner, other := open(t, dir), open(t, dir)
	push(t, owner, "1", "2", "3")
	for name, s := range map[string]storekit.Backuper{"owner": owner, "other": other} {
		target := filepath.Join(t.TempDir(), "copy")
		var written, total int64
		if err := s.Backup(t.Context(), target, func(n, of int64) { written, total = n, of }); err != nil {
			t.Fatalf("the %s: %v", name, err)
		}
		if written == 0 || written != total {
			t.Errorf("the %s: %d of %d bytes", name, written, total)
		}
		r, err := diskstore.Open(target, nil)
		if err != nil {
			t.Fatal(err)
		}
		if ts, err := r.Stats(t.Context(), "t"); err != nil || ts.Live() != 3 {
			t.Errorf("the %s: the copy holds %+v, %v", name, ts, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if err := s.Backup(t.Context(), target, nil); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("the %s, into what is there: %v", name, err)
		}
		if err := s.Backup(t.Context(), filepath.Join(dir, "copy"), nil); !errors.Is(err, punctual.ErrInvalid) {
			t.Errorf("the %s, into the store's directory: %v", name, err)
		}
	}
}
