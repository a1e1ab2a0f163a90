// Package unixsocket is a socket in a directory through which processes of one user talk to each other. It is
// made with mode 0600, and each side looks which user the other one is. Its path may have any length.
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

// maxPath is how long the path of a socket may be. The kernel has 108 bytes on Linux and 104 on BSD, with a zero at
// the end.
const maxPath = 103

// Listen makes the socket path and listens on it. One that is there is replaced: the caller knows that whoever made
// it has ended. A connection from another user but root is closed unheard.
//
// Closing the listener leaves the file: the caller removes it while nobody else can have replaced it.
func Listen(path string) (net.Listener, error) {
	short, release, err := shorten(path)
	if err != nil {
		return nil, fmt.Errorf("listen on socket %s: %w", path, err)
	}
	defer release()
	// Under another name first, so that nobody connects before the mode is set, and the old one is replaced in one step.
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

// Accept implements net.Listener. It waits for a connection of the own user or root.
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

// Dial connects to the socket path and makes sure that its other end runs as the same user or root. Root, who may read the directory
// anyway, talks to the user whose the socket's directory is, too.
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

// shorten returns a path to the same file that is short enough for the kernel until release is called.
func shorten(path string) (short string, release func(), err error) {
	if len(path)+len("s.12345678") <= maxPath {
		return path, func() {}, nil
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	release = func() { _ = dir.Close() } // it was only read
	name, ok := throughDescriptor(dir)
	if !ok {
		release()
		return "", nil, fmt.Errorf("the path has %d bytes and this system allows %d: %w; use a shorter one", len(path), maxPath, punctual.ErrUnsupported)
	}
	return filepath.Join(name, filepath.Base(path)), release, nil
}

// nobody is no user's number.
const nobody int64 = -1

// foreign is the error for a peer that runs as another user, who is neither root nor owner.
func foreign(uid uint32, owner int64) error {
	if uid == 0 || int64(uid) == owner || int64(uid) == int64(os.Geteuid()) {
		return nil
	}
	return fmt.Errorf("its other end runs as user %d: %w", uid, punctual.ErrForbidden)
}
