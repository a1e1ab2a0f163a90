package remotestore_test

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/wire"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/remotestore"
)

// breaking is a server that sends the first half of a backup, and then does what then does.
type breaking struct {
	http.Handler
	backups atomic.Int32
	then    func(r *http.Request)
}

const half = 64 << 10

func (b *breaking) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != wire.PathBackup {
		b.Handler.ServeHTTP(w, r)
		return
	}
	b.backups.Add(1)
	w.Header().Set("Content-Type", wire.TypeTar)
	w.Header().Set("Content-Length", "131072") // twice half
	_, _ = io.WriteString(w, strings.Repeat("x", half))
	_ = http.NewResponseController(w).Flush()
	b.then(r)
	panic(http.ErrAbortHandler) // the connection ends in the middle
}

func newBreaking(t *testing.T) (b *breaking, url string) {
	b = &breaking{Handler: handler(t, closing(t, memstore.New(nil), nil)), then: func(*http.Request) {}}
	hs := newHTTPServer(b, true, true)
	t.Cleanup(hs.Close)
	return b, hs.URL
}

// TestBackupThatBreaks: the connection breaks in the middle of a backup. Archive says that the
// server was not reached, and asks for no second copy, because the first half of one was written
// already.
func TestBackupThatBreaks(t *testing.T) {
	b, url := newBreaking(t)
	s := connect(t, nil, url)
	var got counted
	err := s.Archive(t.Context(), &got, nil)
	if got != half || b.backups.Load() == 0 {
		t.Fatalf("this shows nothing: %d bytes came of %d backups", got, b.backups.Load())
	}
	if !errors.Is(err, punctual.ErrUnreachable) || !punctual.Definite(err) || !strings.Contains(err.Error(), "after 65536 of 131072 bytes") {
		t.Errorf("P13: archive: %v; want ErrUnreachable", err)
	}
	if n := b.backups.Load(); n != 1 {
		t.Errorf("the server was asked for %d backups; want 1", n)
	}
}

// TestBackupThatCannotBeWritten: Archive returns the error of its writer, and asks for no second
// copy.
func TestBackupThatCannotBeWritten(t *testing.T) {
	b, url := newBreaking(t)
	s := connect(t, nil, url)
	err := s.Archive(t.Context(), full{}, nil)
	if !errors.Is(err, errFull) || errors.Is(err, punctual.ErrUnreachable) || b.backups.Load() != 1 {
		t.Errorf("archive: %v after %d backups; want the error of the writer after 1", err, b.backups.Load())
	}
}

// TestBackupOfAClosedStore: Close ends a backup, with ErrClosed.
func TestBackupOfAClosedStore(t *testing.T) {
	b, url := newBreaking(t)
	b.then = func(r *http.Request) { <-r.Context().Done() }
	s, err := remotestore.Open(t.Context(), []string{url}, &remotestore.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	begun, ended := make(begun, 1), make(chan error, 1)
	go func() { ended <- s.Archive(t.Context(), begun, nil) }()
	<-begun
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, punctual.ErrClosed) {
		t.Errorf("archive: %v; want ErrClosed", err)
	}
}

// counted counts the bytes written to it.
type counted int64

func (c *counted) Write(p []byte) (int, error) {
	*c += counted(len(p))
	return len(p), nil
}

// begun is an io.Writer that has a value when something was written.
type begun chan struct{}

func (b begun) Write(p []byte) (int, error) {
	select {
	case b <- struct{}{}:
	default:
	}
	return len(p), nil
}

var errFull = errors.New("the disk is full")

// full is an io.Writer that fails.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }
