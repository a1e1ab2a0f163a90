package remotestore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/unixsocket"
	"github.com/punctualmq/punctual/remotestore"
	"github.com/punctualmq/punctual/server"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if command.dir != "" {
			os.RemoveAll(command.dir)
		}
		os.Exit(code)
	}))
}

// command is the program punctual, which is built when the first test needs it.
var command struct {
	once sync.Once
	dir  string
	err  error
}

// buildCommand returns the path of the program punctual.
func buildCommand(t *testing.T) string {
	t.Helper()
	command.once.Do(func() {
		if command.dir, command.err = os.MkdirTemp("", "punctual-"); command.err != nil {
			return
		}
		out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", command.dir, "../cmd/punctual").CombinedOutput()
		if err != nil {
			command.err = fmt.Errorf("build the command: %w\n%s", err, out)
		}
	})
	if command.err != nil {
		t.Fatal(command.err)
	}
	return filepath.Join(command.dir, "punctual")
}

// served is a server over a store.
type served struct {
	url  string
	stop func() // drains and waits
}

// serve serves a store, on addr or on a new port. The store stays open.
func serve(t testing.TB, s punctual.Store, addr string) *served {
	t.Helper()
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, s, nil, l, "http://"+l.Addr().String())
}

func serveUnix(t testing.TB, s punctual.Store, path string) *served {
	t.Helper()
	l, err := unixsocket.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, s, nil, l, "unix:"+path)
}

func serveOn(t testing.TB, s punctual.Store, o *server.ServeOptions, l net.Listener, url string) *served {
	t.Helper()
	srv, err := server.New(s, &server.Options{Limits: server.Limits{Rate: 1e6}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ctx, o, l) }()
	stop := sync.OnceFunc(func() {
		end()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(stop)
	return &served{url, stop}
}

// connect opens the store at urls.
func connect(t testing.TB, o *remotestore.Options, urls ...string) *remotestore.Store {
	t.Helper()
	s, err := remotestore.Open(t.Context(), urls, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// closing closes a store at the end of the test, after the servers and clients that are made later.
func closing[S punctual.Store](t testing.TB, s S, err error) S {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, punctual.ErrClosed) {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// tempDir returns a directory with a short path, because the path of a socket must be short.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "p")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
