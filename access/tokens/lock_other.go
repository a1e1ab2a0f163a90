//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package tokens

import "os"

// lock does nothing where there is no flock: two commands that change the file at the same time can
// lose one change.
func lock(*os.File) error { return nil }
