//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package tokens

import (
	"os"
	"syscall"
)

// lock takes the lock of the directory, and waits while somebody else who changes a file in it has
// the lock. Closing dir ends it.
func lock(dir *os.File) error {
	for {
		if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX); err != syscall.EINTR {
			return err
		}
	}
}
