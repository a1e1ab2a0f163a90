//go:build unix

package errkind

import "syscall"

// FileLimit is how many files the process may have open (RLIMIT_NOFILE), 0 if that is not known.
func FileLimit() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return uint64(limit.Cur) // on FreeBSD the type is int64
}
