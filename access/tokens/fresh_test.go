package tokens

import (
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/punctualmq/punctual"
)

// TestRevokedOnAnIdleServer: requests come at once, long after the last one, and one of them reads the file. The others do not go by
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
		f.reading <- struct{}{} // the first of the requests is about to read
		entered := make(chan error, 10)
		for range cap(entered) {
			go func() { entered <- enter() }()
		}
		synctest.Wait()
		if n := len(entered); n > 0 {
			t.Errorf("%d requests were answered by the file as it was a minute ago, the first with %v", n, <-entered)
		}
		<-f.reading
		synctest.Wait()
		for range len(entered) {
			if err := <-entered; !errors.Is(err, punctual.ErrUnauthenticated) {
				t.Errorf("a token that was revoked a minute ago: %v", err)
			}
		}
	})
}

// TestErrorThatPasses: a file that could not be read for a while, say for want of file descriptors, and did not change, is read again.
func TestErrorThatPasses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	given(t, path)
	synctest.Test(t, func(t *testing.T) {
		f, err := Open(path, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		failed := *f.state.Load()
		failed.entries, failed.err = nil, errors.New("too many open files")
		f.state.Store(&failed)
		if _, err := f.Entries(); !errors.Is(err, punctual.ErrUnauthenticated) {
			t.Fatalf("right after the error: %v; want nobody to be let in", err)
		}
		time.Sleep(look)
		if es, err := f.Entries(); err != nil || len(es.All()) == 0 {
			t.Errorf("once the file can be read again: %v", err)
		}
	})
}
