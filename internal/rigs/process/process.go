// Package processrig starts processes for tests that on Linux end with the test binary, also when
// that is killed.
package processrig

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// Start starts a command. When this process ends, in whatever way, the system sends the command a
// signal. Only on Linux does it do so (endWithParent); elsewhere the command goes on. The channel
// is closed when the command has ended.
func Start(cmd *exec.Cmd, signal syscall.Signal) (done <-chan struct{}, err error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	endWithParent(cmd.SysProcAttr, signal)
	started, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		// To the system the parent is this thread. It must last as long as the command.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // an error says only how the command ended, which is mostly by a signal, as it is meant to
		}
	}()
	return ended, <-started
}

// ExitCode is for a TestMain whose tests share a server: the exit code of the process after the
// tests have ended with code, and the server with err. leaks looks for goroutines that are left
// when all tests have passed.
func ExitCode(code int, err error, leaks func() error) int {
	if err == nil && code == 0 {
		err = leaks()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
