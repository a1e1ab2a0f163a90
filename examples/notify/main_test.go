package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore"
)

// asProgram is set in the process in which this test is the program.
const asProgram = "PUNCTUAL_NOTIFY"

// The program of the README, killed after its first attempt: a notice that got no answer is due again after two minutes.
func TestNotify(t *testing.T) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	dir := t.TempDir()
	program := exec.Command(os.Args[0], "-test.run=^TestNotify$")
	program.Dir, program.Env = dir, append(os.Environ(), asProgram+"=1")
	logged, err := program.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(logged)
	for lines.Scan() && !strings.Contains(lines.Text(), "attempt failed") {
		t.Log(lines.Text())
	}
	if err := lines.Err(); err != nil {
		t.Errorf("read the program's log: %v", err)
	}
	last := lines.Text()
	if err := program.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = program.Wait() // it ends by the signal
	if !strings.Contains(last, "payment A-17, attempt 1: no answer") {
		t.Fatalf("the program logged %q; want its first attempt", last)
	}
	store, err := diskstore.Open(filepath.Join(dir, "punctual-data"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	m, err := store.Get(t.Context(), "payment.notify", "A-17")
	if err != nil {
		t.Fatal(err)
	}
	if m.State != punctual.StateScheduled || len(m.Failures) != 1 || m.Due.Sub(m.Failures[0].At).Round(time.Second) != 2*time.Minute {
		t.Errorf("after an attempt that failed: %s, due %v, failures %+v; want it due after 2m", m.State, m.Due, m.Failures)
	}
}
