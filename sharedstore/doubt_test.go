package sharedstore_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore"
	"github.com/punctualmq/punctual/internal/unixsocket"
	"github.com/punctualmq/punctual/server"
	"github.com/punctualmq/punctual/sharedstore"
)

// TestCloseDuringAPush: a push that the owner has carried out, and whose answer is cut off because the caller's store is closed, returns
// ErrIndeterminate (P13).
func TestCloseDuringAPush(t *testing.T) {
	dir := t.TempDir()
	d, err := diskstore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	h, err := server.New(d, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	carriedOut, goOn := make(chan struct{}), make(chan struct{})
	l, err := unixsocket.Listen(filepath.Join(dir, sharedstore.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	hs := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			h.ServeHTTP(w, r)
			return
		}
		h.ServeHTTP(httptest.NewRecorder(), r)
		close(carriedOut)
		<-goOn
	}))
	hs.Listener.Close()
	hs.Listener = l
	hs.Start()
	defer hs.Close()
	defer close(goOn)
	s, err := sharedstore.Open(t.Context(), dir, &sharedstore.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	pushed := make(chan error)
	go func() {
		_, err := s.Push(context.Background(), []punctual.NewMessage{{Topic: "t", ID: "a"}})
		pushed <- err
	}()
	<-carriedOut
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if _, err := d.Get(t.Context(), "t", "a"); err != nil {
		t.Fatalf("this test shows nothing: %v", err)
	}
	if err := <-pushed; !errors.Is(err, punctual.ErrIndeterminate) || punctual.Definite(err) {
		t.Errorf("P13: the push that the store's end cut off: %v; want ErrIndeterminate, since it happened", err)
	}
	if _, err := s.Now(context.Background()); !errors.Is(err, punctual.ErrClosed) {
		t.Errorf("a call behind the end: %v", err)
	}
}
