//go:build !linux

package unixsocket

import (
	"net"
	"os"
)

// checkPeer relies on the socket's mode: package syscall does not tell here who is at the other end.
func checkPeer(*net.UnixConn, int64) error { return nil }

// ownerOf is asked for by nobody here.
func ownerOf(string) int64 { return nobody }

// throughDescriptor: there is no short path to an open directory here.
func throughDescriptor(*os.File) (string, bool) { return "", false }
