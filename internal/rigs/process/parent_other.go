//go:build !linux

package processrig

import "syscall"

// endWithParent does nothing, because syscall has no such signal for most systems.
func endWithParent(*syscall.SysProcAttr, syscall.Signal) {}
