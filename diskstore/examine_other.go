//go:build !linux

package diskstore

// mediumOf does not know how to ask this system for the kind of a file system.
func mediumOf(string) (medium, bool) { return medium{}, false }
