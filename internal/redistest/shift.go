package redistest

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// shiftSource is a library that stands between a server and the system's clock. (libfaketime does not go with jemalloc.)
//
//go:embed testdata/shift.c
var shiftSource []byte

// StartShifted starts a server for one test whose clock Shift sets. It skips the test where there is no C compiler.
func StartShifted(t testing.TB, args ...string) *Server {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skipf("a C compiler is missing: apt-get install gcc (%v)", err)
	}
	dir := t.TempDir()
	source, library := filepath.Join(dir, "shift.c"), filepath.Join(dir, "shift.so")
	if err := os.WriteFile(source, shiftSource, 0o600); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.Command(cc, "-shared", "-fPIC", "-O", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cc, err, said)
	}
	if err := writeShift(dir, 0); err != nil {
		t.Fatal(err)
	}
	s, err := launchWith(dir, []string{"LD_PRELOAD=" + library, "PUNCTUAL_CLOCK_SHIFT=" + shiftFile(dir)}, args...)
	if err != nil {
		t.Fatal(err)
	}
	s.killAtEnd(t)
	return s
}

// Shift sets the clock of a server by StartShifted so far ahead of the machine's, or behind it.
func (s *Server) Shift(d time.Duration) error {
	if err := writeShift(s.Dir, d); err != nil {
		return fmt.Errorf("shift the clock of %s: %w", s.Addr, err)
	}
	return nil
}

func shiftFile(dir string) string { return filepath.Join(dir, "shift") }

// writeShift writes in place, because the library has the file in its memory.
func writeShift(dir string, d time.Duration) error {
	f, err := os.OpenFile(shiftFile(dir), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write(binary.NativeEndian.AppendUint64(nil, uint64(d.Microseconds())))
	return err
}
