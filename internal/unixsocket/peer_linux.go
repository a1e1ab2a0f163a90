package unixsocket

import (
	"fmt"
	"net"
	"os"
	"syscall"
)

// checkPeer asks the kernel which user the process at the other end runs as, and returns an error
// unless that is this process's user, root or owner.
func checkPeer(c *net.UnixConn, owner int64) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return fmt.Errorf("ask who is at the other end: %w", err)
	}
	var cred *syscall.Ucred
	var asked error
	err = raw.Control(func(fd uintptr) {
		cred, asked = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err == nil {
		err = asked
	}
	if err != nil {
		return fmt.Errorf("ask who is at the other end: %w", err)
	}
	return foreign(cred.Uid, owner)
}

// ownerOf returns the user who owns a directory, or nobody if that cannot be found out.
func ownerOf(dir string) int64 {
	var s syscall.Stat_t
	if syscall.Stat(dir, &s) != nil {
		return nobody
	}
	return int64(s.Uid)
}

// throughDescriptor returns a short path to an open directory.
func throughDescriptor(dir *os.File) (string, bool) {
	return fmt.Sprintf("/proc/self/fd/%d", dir.Fd()), true
}
