// Package unixsocket makes and connects sockets in a directory, through which the processes of one
// user talk to each other. A socket has mode 0600, and on Linux each side checks which user the
// other side runs as. The path may have any length on Linux; see shorten.
package unixsocket

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/punctualmq/punctual"
)

// maxPath is the most bytes of a socket's path. The kernel has room for 108 bytes on Linux and 104
// on BSD, and the last one is zero.
const maxPath = 103

// Listen makes the socket path and listens on it. It replaces a socket that is there, so the caller
// has to know that the process which made that one has ended. On Linux a connection of another user
// than this process's and root is closed before anything is read from it.
//
// Closing the listener does not remove the file, because another process may have replaced it. The
// caller removes it while it knows that none has.
func Listen(path string) (net.Listener, error) {
	short, release, err := shorten(path)
	if err != nil {
		return nil, fmt.Errorf("listen on socket %s: %w", path, err)
	}
	defer release()
	// The socket is made under another name first, so that nobody can connect before the mode is
	// set, and then renamed, which replaces the old socket in one step.
	made := filepath.Join(filepath.Dir(short), "s."+rand.Text()[:8])
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: made, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on socket %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false)
	err = os.Chmod(made, 0o600)
	if err == nil {
		err = os.Rename(made, short)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen on socket %s: %w", path, err), l.Close(), os.Remove(made))
	}
	return listener{l}, nil
}

type listener struct{ *net.UnixListener }

// Accept implements net.Listener. On Linux it waits for a connection of this process's user or of
// root, and closes all others.
func (l listener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if checkPeer(c, nobody) == nil {
			return c, nil
		}
		if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			return nil, err
		}
	}
}

// Dial connects to the socket path and on Linux makes sure that the process at the other end runs
// as the same user or as root. If this process runs as root, the other one may also run as the user
// who owns the socket's directory, because root may read the directory anyway.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	short, release, err := shorten(path)
	if err != nil {
		return nil, fmt.Errorf("connect to socket %s: %w", path, err)
	}
	defer release()
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", short)
	if err != nil {
		return nil, fmt.Errorf("connect to socket %s: %w", path, err)
	}
	owner := nobody
	if os.Geteuid() == 0 {
		owner = ownerOf(filepath.Dir(short))
	}
	if err := checkPeer(c.(*net.UnixConn), owner); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to socket %s: %w", path, err), c.Close())
	}
	return c, nil
}

// shorten returns a path to the same file that is short enough for the kernel if the name of the
// file is short. It can be used until release is called. On other systems than Linux a path that is
// too long is an ErrUnsupported.
func shorten(path string) (short string, release func(), err error) {
	if len(path)+len("s.12345678") <= maxPath {
		return path, func() {}, nil
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	release = func() { _ = dir.Close() } // its error does not matter, because nothing was written
	name, ok := throughDescriptor(dir)
	if !ok {
		release()
		return "", nil, fmt.Errorf("the path has %d bytes and this system allows %d: %w; use a shorter one", len(path), maxPath, punctual.ErrUnsupported)
	}
	return filepath.Join(name, filepath.Base(path)), release, nil
}

// nobody is a number that no user has.
const nobody int64 = -1

// foreign returns an error if uid is another user than this process's, root and owner.
func foreign(uid uint32, owner int64) error {
	if uid == 0 || int64(uid) == owner || int64(uid) == int64(os.Geteuid()) {
		return nil
	}
	return fmt.Errorf("its other end runs as user %d: %w", uid, punctual.ErrForbidden)
}
