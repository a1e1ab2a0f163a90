//go:build !unix

package errkind

// FileLimit is how many files the process may have open, 0 if that is not known.
func FileLimit() uint64 { return 0 }
