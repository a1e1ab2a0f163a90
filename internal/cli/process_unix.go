//go:build unix

package cli

import (
	"os/exec"
	"syscall"
)

// ownGroup puts cmd and its children into a process group of their own.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup ends the group that the process leads.
func killGroup(pid int) error { return syscall.Kill(-pid, syscall.SIGKILL) }

// closeUmask closes what this process creates to other users until restore is called.
func closeUmask() (restore func()) {
	before := syscall.Umask(0o077)
	return func() { syscall.Umask(before) }
}
