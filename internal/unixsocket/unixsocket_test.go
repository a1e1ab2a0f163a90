package unixsocket_test

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/punctualmq/punctual/internal/unixsocket"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// greet accepts one connection and says hello on it.
func greet(t *testing.T, l net.Listener) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			t.Errorf("accept: %v", err)
			return
		}
		if _, err := io.WriteString(c, "hello"); err != nil {
			t.Errorf("write: %v", err)
		}
		c.Close()
	}()
	t.Cleanup(func() { <-done })
}

func dial(t *testing.T, path string) {
	t.Helper()
	c, err := unixsocket.Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if text, err := io.ReadAll(c); err != nil || string(text) != "hello" {
		t.Fatalf("read %q, %v; want hello", text, err)
	}
}

func listen(t *testing.T, path string) net.Listener {
	t.Helper()
	l, err := unixsocket.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func TestSocket(t *testing.T) {
	dir := t.TempDir()
	for name, path := range map[string]string{
		"short": filepath.Join(dir, "s"),
		"long":  filepath.Join(dir, strings.Repeat("d", 200), "s"),
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			first := listen(t, path)
			info, err := os.Lstat(path)
			if err != nil || info.Mode() != os.ModeSocket|0o600 {
				t.Errorf("mode %v, %v; want a socket with 0600", info.Mode(), err)
			}
			greet(t, first)
			dial(t, path)
			first.Close()
			if _, err := unixsocket.Dial(t.Context(), path); err == nil {
				t.Error("connected to a socket on which nobody listens")
			}
			greet(t, listen(t, path)) // takes the place of the one that is left
			dial(t, path)
			if names, err := os.ReadDir(filepath.Dir(path)); err != nil || len(names) > 2 {
				t.Errorf("the directory holds %v, %v", names, err)
			}
		})
	}
}

func TestNoSocket(t *testing.T) {
	if _, err := unixsocket.Dial(t.Context(), filepath.Join(t.TempDir(), "s")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("connecting to no socket: %v", err)
	}
	if _, err := unixsocket.Listen(filepath.Join(t.TempDir(), "missing", "s")); err == nil {
		t.Error("listening in no directory succeeded")
	}
}
