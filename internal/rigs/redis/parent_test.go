package redisrig

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// holderVariable tells a test binary that it is one which another test kills.
const holderVariable = "PUNCTUAL_REDISTEST_HOLDER"

// TestHolder is the test that is under way in a binary which TestServerEndsWithItsBinary kills; by
// itself it does nothing.
func TestHolder(t *testing.T) {
	if os.Getenv(holderVariable) == "" {
		t.Skip("this is a child process of TestServerEndsWithItsBinary")
	}
	dir := os.Getenv(holderVariable)
	s, err := launch(dir)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(s.cmd.Process.Pid)
	select {} // until it is killed
}

// A server does not outlive a test binary that is killed.
func TestServerEndsWithItsBinary(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestHolder$")
	cmd.Env = append(os.Environ(), holderVariable+"="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(line[:len(line)-1])
	if err != nil {
		t.Fatalf("this test shows nothing: the binary says %q", line)
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Fatalf("this test shows nothing: the server does not run: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // ends by the signal
	for end := time.Now().Add(startTimeout); !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH); time.Sleep(5 * time.Millisecond) {
		if state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && strings.Contains(string(state), ") Z ") {
			return // it has ended, and nobody has waited for it
		}
		if time.Now().After(end) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatalf("the server, process %d, outlives the test binary that started it", pid)
		}
	}
}
