//go:build !linux

package processrig

import "syscall"

// endWithParent does nothing where the system does not offer that.
func endWithParent(*syscall.SysProcAttr, syscall.Signal) {}
