package processrig

import "syscall"

// endWithParent has the system send a signal to a process when the thread that started it ends.
func endWithParent(attr *syscall.SysProcAttr, signal syscall.Signal) { attr.Pdeathsig = signal }
