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

// closeUmask sets the umask so that other users have no rights on files that this process creates,
// until restore is called.
func closeUmask() (restore func()) {
	before := syscall.Umask(0o077)
	return func() { syscall.Umask(before) }
}
