package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	seedrig "github.com/punctualmq/punctual/internal/rigs/seed"
)

// childVariable is the variable of the environment in which StartChild tells a child process what
// to do.
const childVariable = "PUNCTUAL_TORTURE_CHILD"

// TortureSeed returns the seed of a test with a ledger, from seedrig.Of.
func TortureSeed(t testing.TB) uint64 {
	t.Helper()
	return seedrig.Of(t)
}

// FromEnv returns the positive number that a variable of the environment has, or def if it is not
// set.
func FromEnv(t testing.TB, variable string, def int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return def
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q: use a positive number", variable, text)
	}
	return n
}

// Pause returns a Workload.Pause for the tests of stores: a short one in make torture, and a longer
// one in make test, where the workloads of many packages share the machine. Calls are under way at
// almost every moment with either.
func Pause() time.Duration {
	if Tortured() {
		return 2 * time.Millisecond
	}
	return 8 * time.Millisecond
}

// Tortured reports whether make torture or another target like it runs the tests (by
// PUNCTUAL_TORTURE_CYCLES, which they set), so that the tests try all that make test tries in part.
func Tortured() bool { return os.Getenv("PUNCTUAL_TORTURE_CYCLES") != "" }

// Child is what a child process is told.
type Child struct {
	// Program is the command that the child becomes, or a name of what it is to do.
	Program string
	// Store says where the store is.
	Store string
	// Journal is the file for its lines or, for a server, the address on which it listens.
	Journal string
	Process int64
	Seed    uint64
	// Look has the child read all that is there before it begins (Recorder.Look), which is possible
	// only when no other process uses the store.
	Look bool
}

// IsChild reports whether this process is a child that StartChild has started.
func IsChild() bool { return os.Getenv(childVariable) != "" }

// ChildOf returns what this process was told, if it is a child.
func ChildOf(t testing.TB) (c Child, ok bool) {
	text := os.Getenv(childVariable)
	if text == "" {
		return c, false
	}
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatalf("%s: %v", childVariable, err)
	}
	return c, true
}

// Say sends the parent one byte, such as Working.
func (c Child) Say(what byte) {
	if _, err := syscall.Write(3, []byte{what}); err != nil {
		panic(err)
	}
}

// What a child of any package says to its parent. Some packages have further words of their own.
const (
	// Opening is said before the store is opened.
	Opening byte = 'o'
	// Working is said when the store is open, just before the child begins its work or when its
	// first call was answered.
	Working byte = 'w'
)

// ChildProcess is a running child.
type ChildProcess struct {
	// Said has what the child said; it is closed when the child has ended.
	Said   chan byte
	cmd    *exec.Cmd
	output bytes.Buffer
}

// StartChild starts this test program again with one test alone, in which ChildOf returns c.
func StartChild(test string, c Child) (*ChildProcess, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p := &ChildProcess{Said: make(chan byte, 16)}
	p.cmd = exec.Command(os.Args[0], "-test.run=^"+test+"$", "-test.count=1", "-test.timeout=1h")
	p.cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	p.cmd.ExtraFiles, p.cmd.Stdout, p.cmd.Stderr = []*os.File{in}, &p.output, &p.output
	if err := errors.Join(p.cmd.Start(), in.Close()); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	go func() {
		defer close(p.Said)
		defer out.Close()
		b := make([]byte, 1)
		for {
			if n, err := out.Read(b); err != nil || n == 0 {
				return
			}
			p.Said <- b[0]
		}
	}()
	return p, nil
}

// Kill ends the child as kill -9 does and waits for it. It returns an error if the child had ended
// by itself.
func (p *ChildProcess) Kill() error {
	_ = p.cmd.Process.Kill() // fails only if the child has ended, which Wait reports
	return p.wait()
}

func (p *ChildProcess) wait() error {
	for range p.Said { // until its end of the pipe is closed
	}
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		return fmt.Errorf("the child ended by itself (%w):\n%s", err, p.output.String())
	}
	return nil
}
