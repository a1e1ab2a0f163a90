package unixsocket_test

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/unixsocket"
)

// nobody is another user.
const nobody = 65534

// asNobody runs f on a thread that runs as another user, and ends that thread.
func asNobody(t *testing.T, f func() error) error {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root can become another user")
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, nobody, nobody, nobody); errno != 0 {
			done <- errno
			return
		}
		done <- f()
	}()
	return <-done
}

// TestForeignClient: the socket's mode is opened, and its owner still hears nobody but its own user.
func TestForeignClient(t *testing.T) {
	dir, err := os.MkdirTemp("", "p")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l := listen(t, path)
	if err := asNobody(t, func() error { _, err := net.Dial("unix", path); return err }); !errors.Is(err, os.ErrPermission) {
		t.Errorf("another user connects: %v; want it refused by the mode", err)
	}
	if err := errors.Join(os.Chmod(dir, 0o777), os.Chmod(path, 0o777)); err != nil {
		t.Fatal(err)
	}
	greet(t, l) // whom the next one accepted
	var foreign net.Conn
	err = asNobody(t, func() (err error) {
		foreign, err = net.Dial("unix", path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	dial(t, path)
	if text, err := io.ReadAll(foreign); len(text) > 0 {
		t.Errorf("another user read %q, %v", text, err)
	}
	foreign.Close()
}

// TestForeignServer: somebody else's socket is not talked to.
func TestForeignServer(t *testing.T) {
	dir, err := os.MkdirTemp("", "p")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	var l net.Listener
	err = asNobody(t, func() (err error) {
		l, err = net.Listen("unix", path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := unixsocket.Dial(t.Context(), path); !errors.Is(err, punctual.ErrForbidden) {
		t.Errorf("connecting to another user's socket: %v; want ErrForbidden", err)
	}
}

// TestRoot: root gets through to a server over a directory of another user, and not to who put a socket into somebody else's directory.
func TestRoot(t *testing.T) {
	dir, err := os.MkdirTemp("", "p")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	var l net.Listener
	err = asNobody(t, func() (err error) {
		l, err = unixsocket.Listen(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := unixsocket.Dial(t.Context(), path); !errors.Is(err, punctual.ErrForbidden) {
		t.Errorf("root to another user's socket in root's directory: %v; want ErrForbidden", err)
	}
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	c, err := unixsocket.Dial(t.Context(), path)
	if err != nil {
		t.Fatalf("root to another user's socket in that user's directory: %v", err)
	}
	c.Close()
}
