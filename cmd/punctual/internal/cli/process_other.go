//go:build !unix

package cli

import (
	"os"
	"os/exec"
)

// ownGroup does nothing, because this system has no process groups as Unix has them.
func ownGroup(*exec.Cmd) {}

// killGroup ends the process alone.
func killGroup(pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}

// closeUmask does nothing here, because there is no umask.
func closeUmask() (restore func()) { return func() {} }
