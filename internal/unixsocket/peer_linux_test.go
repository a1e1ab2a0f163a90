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

// TestForeignClient: the mode of the socket keeps other users out. When the mode is opened, the
// listener still closes the connections of other users.
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
	greet(t, l) // says hello to the connection that l accepts next
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

// TestForeignServer: a socket of another user is refused with ErrForbidden.
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

// TestRoot: root may connect to another user's socket in a directory of that user, and not to
// another user's socket in a directory of root.
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
