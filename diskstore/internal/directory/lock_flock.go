//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package directory

import (
	"errors"
	"os"
	"syscall"
)

// lockOpenDir takes the kernel's lock of an open directory (flock). The lock belongs to the
// opening, not to the process or the name, and is held until unlockOpenDir. It refuses a second
// opening, by whatever path that came. On a file system that knows no such locks lockOpenDir
// succeeds without one, and only the other locks and the mark protect the directory.
func lockOpenDir(d *os.File) error {
	refused, err := flock(d, syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(refused, syscall.EWOULDBLOCK) {
		return errOwned
	}
	return err
}

// unlockOpenDir gives the lock back that lockOpenDir has taken. To close the file is not enough,
// because a process that is being forked at this moment has the file open, too, until it runs its
// program.
func unlockOpenDir(d *os.File) error {
	_, err := flock(d, syscall.LOCK_UN) // refused where there are no such locks
	return err
}

func flock(d *os.File, how int) (refused, err error) {
	conn, err := d.SyscallConn()
	if err != nil {
		return nil, err
	}
	err = conn.Control(func(fd uintptr) {
		for refused = syscall.EINTR; refused == syscall.EINTR; {
			refused = syscall.Flock(int(fd), how)
		}
	})
	return refused, err
}
