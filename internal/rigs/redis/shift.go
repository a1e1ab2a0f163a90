package redisrig

import (
	"fmt"
	"testing"
	"time"

	clockrig "github.com/punctualmq/punctual/internal/rigs/clock"
)

// StartShifted starts a server for one test whose clock Shift sets. It skips the test where there
// is no C compiler.
func StartShifted(t testing.TB, args ...string) *Server {
	t.Helper()
	dir := t.TempDir()
	s, err := launchWith(dir, clockrig.Variables(t, dir), args...)
	if err != nil {
		t.Fatal(err)
	}
	s.killAtEnd(t)
	return s
}

// Shift sets the clock of a server by StartShifted so far ahead of the machine's, or behind it.
func (s *Server) Shift(d time.Duration) error {
	if err := clockrig.Shift(s.Dir, d); err != nil {
		return fmt.Errorf("the clock of the server at %s: %w", s.Addr, err)
	}
	return nil
}
