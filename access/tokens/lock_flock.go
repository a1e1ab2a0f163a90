//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package tokens

import (
	"os"
	"syscall"
)

// lock waits until no other process changes a file in dir.
func lock(dir *os.File) error {
	for {
		if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX); err != syscall.EINTR {
			return err
		}
	}
}
