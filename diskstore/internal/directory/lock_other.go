//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package directory

import "os"

// lockOpenDir does nothing, because this system has no lock of a directory. On Windows nobody else
// can open the file LOCK while it is locked.
func lockOpenDir(*os.File) error { return nil }

func unlockOpenDir(*os.File) error { return nil }
