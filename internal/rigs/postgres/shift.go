package pgrig

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	clockrig "github.com/punctualmq/punctual/internal/rigs/clock"
)

// StartShifted is Start for a server whose clock Shift sets. It skips the test where there is no C
// compiler.
func StartShifted(t testing.TB, settings ...string) *Server {
	t.Helper()
	sys, err := findSystem()
	if err != nil {
		t.Fatal(err)
	}
	folder := Folder(t)
	sys.env = clockrig.Variables(t, folder)
	s, err := launchWith(sys, folder, settings)
	if err != nil {
		t.Fatal(err)
	}
	s.killAtEnd(t)
	return s
}

// Shift sets the clock of a server by StartShifted so far ahead of the machine's, or behind it.
func (s *Server) Shift(d time.Duration) error {
	if err := clockrig.Shift(filepath.Dir(s.Dir), d); err != nil {
		return fmt.Errorf("the clock of the server at %s: %w", s.Addr, err)
	}
	return nil
}
