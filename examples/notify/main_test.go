package main

import (
	"bufio"
	"errors"
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

// The program of the README. A notice that got no answer comes again after two seconds, and is
// acked when it got one.
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
	seen := make(map[string]bool)
	for lines.Scan() {
		for _, text := range []string{"payment A-17, attempt 1: no answer", "payment A-17, attempt 2: answered"} {
			seen[text] = seen[text] || strings.Contains(lines.Text(), text)
		}
		t.Log(lines.Text())
		if strings.Contains(lines.Text(), "attempt 2") {
			break
		}
	}
	if err := lines.Err(); err != nil {
		t.Errorf("read the program's log: %v", err)
	}
	if err := program.Process.Signal(os.Interrupt); err != nil { // it settles what is under way, and ends
		t.Fatal(err)
	}
	if err := program.Wait(); err != nil {
		t.Error(err)
	}
	if len(seen) != 2 || !seen["payment A-17, attempt 1: no answer"] || !seen["payment A-17, attempt 2: answered"] {
		t.Fatalf("the program logged %v; want two attempts", seen)
	}
	store, err := diskstore.Open(filepath.Join(dir, "payments"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if m, err := store.Get(t.Context(), "payment.notify", "A-17"); !errors.Is(err, punctual.ErrNotFound) {
		t.Errorf("after the ack: %+v, %v", m, err)
	}
}

// What docs/quick-start.md shows beside the program.
func TestChange(t *testing.T) {
	store, err := diskstore.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	payments := punctual.NewTopic[string](punctual.NewQueue(store, nil), "payment.notify")
	if _, err := payments.Push(t.Context(), "A-17", punctual.ID("A-17"), punctual.In(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if due, err := postpone(t.Context(), payments, "A-17"); err != nil || time.Until(due) < time.Hour {
		t.Errorf("%v, %v", due, err)
	}
	for _, inTime := range []bool{true, false} {
		if took, err := callOff(t.Context(), payments, "A-17"); took != inTime || err != nil {
			t.Errorf("%v, %v; want %v", took, err, inTime)
		}
	}
}
