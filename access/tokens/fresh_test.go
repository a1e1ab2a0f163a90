package tokens

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/refresh"
)

// TestRevokedOnAnIdleServer: of requests that come at once, long after the last one, none goes by
// the file as it was then.
func TestRevokedOnAnIdleServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	token := given(t, path)["good"]
	synctest.Test(t, func(t *testing.T) {
		f, err := Open(path, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		enter := func() error {
			es, err := f.Entries()
			if err == nil {
				_, err = es.Token(token, time.Now())
			}
			return err
		}
		if err := enter(); err != nil {
			t.Fatalf("at first: %v", err)
		}
		err = Change(path, func(es []Entry) ([]Entry, error) {
			for i := range es {
				es[i].Revoked = time.Now()
			}
			return es, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // idle
		entered := make(chan error, 10)
		for range cap(entered) {
			go func() { entered <- enter() }()
		}
		synctest.Wait()
		for range cap(entered) {
			if err := <-entered; !errors.Is(err, punctual.ErrUnauthenticated) {
				t.Errorf("a token that was revoked a minute ago: %v", err)
			}
		}
	})
}

// TestChangedInPlace: a file that an editor or a copy has overwritten is read again, also if its
// time is the one of before.
func TestChangedInPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	token := given(t, path)["good"]
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		f, err := Open(path, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(`{"entries": []}`), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
			t.Fatal(err)
		}
		if now, err := os.Stat(path); err != nil || !now.ModTime().Equal(info.ModTime()) || !os.SameFile(now, info) {
			t.Fatalf("this test shows nothing: %v, %v", now, err)
		}
		time.Sleep(time.Second)
		es, err := f.Entries()
		if err != nil {
			t.Fatal(err)
		}
		if e, err := es.Token(token, time.Now()); err == nil {
			t.Errorf("%+v is let in, although its entry is not in the file any more", e)
		}
	})
}

// TestErrorThatPasses: a file that could not be read for a while, say for want of file descriptors,
// and did not change, is read again.
func TestErrorThatPasses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	given(t, path)
	synctest.Test(t, func(t *testing.T) {
		f, err := Open(path, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		failed := f.content.Get()
		failed.entries, failed.err = nil, errors.New("too many open files")
		f.content = refresh.New(checkInterval, failed, f.readIfChanged)
		if _, err := f.Entries(); !errors.Is(err, punctual.ErrUnauthenticated) {
			t.Fatalf("right after the error: %v; want nobody to be let in", err)
		}
		time.Sleep(checkInterval)
		if es, err := f.Entries(); err != nil || len(es.All()) == 0 {
			t.Errorf("once the file can be read again: %v", err)
		}
	})
}
