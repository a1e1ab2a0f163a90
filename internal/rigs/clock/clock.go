// Package clockrig gives servers that a test starts a clock that the test sets.
package clockrig

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

// source is a library that stands between a server and the system's clock. (libfaketime does not go
// with jemalloc.)
//
//go:embed testdata/shift.c
var source []byte

// Variables returns variables of the environment with which a server's clock is the one that Shift
// sets. The files are in dir, which the server must be able to read. It skips the test where there
// is no C compiler.
func Variables(t testing.TB, dir string) []string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skipf("a C compiler is missing: apt-get install gcc (%v)", err)
	}
	text, library := filepath.Join(dir, "shift.c"), filepath.Join(dir, "shift.so")
	if err := os.WriteFile(text, source, 0o600); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.Command(cc, "-shared", "-fPIC", "-O", "-o", library, text).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cc, err, said)
	}
	if err := Shift(dir, 0); err != nil {
		t.Fatal(err)
	}
	return []string{"LD_PRELOAD=" + library, "PUNCTUAL_CLOCK_SHIFT=" + file(dir)}
}

// Shift sets the clock of the server with files in dir so far ahead of the machine's, or behind it.
// It writes in place, because the library has the file in its memory.
func Shift(dir string, d time.Duration) error {
	f, err := os.OpenFile(file(dir), os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("shift a clock: %w", err)
	}
	defer f.Close()
	if _, err := f.Write(binary.NativeEndian.AppendUint64(nil, uint64(d.Microseconds()))); err != nil {
		return fmt.Errorf("shift a clock: %w", err)
	}
	return nil
}

func file(dir string) string { return filepath.Join(dir, "shift") }
