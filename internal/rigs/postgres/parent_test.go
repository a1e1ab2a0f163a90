package pgrig

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// holderVariable tells a test binary that it is one which another test kills.
const holderVariable = "PUNCTUAL_PGTEST_HOLDER"

// TestHolder is the test that is under way in a binary which TestServersEndWithTheirBinary kills;
// by itself it does nothing.
func TestHolder(t *testing.T) {
	if os.Getenv(holderVariable) == "" {
		t.Skip("this is a child process of TestServersEndWithTheirBinary")
	}
	own := Start(t)
	bouncer := StartBouncer(t, own)
	for _, s := range []*Server{shared, own} {
		pids, err := children(s.cmd.Process.Pid)
		must(t, err)
		for _, pid := range append(pids, s.cmd.Process.Pid) {
			fmt.Println("process", pid)
		}
	}
	fmt.Println("process", bouncer.cmd.Process.Pid)
	for _, dir := range []string{filepath.Dir(filepath.Dir(shared.Dir)), filepath.Dir(own.Dir), bouncer.dir} {
		fmt.Println("folder", dir)
	}
	fmt.Println("ready")
	select {} // until it is killed
}

// Servers do not outlive a test binary that is killed: the one for all tests of a package, that of
// one test, and a pooler.
func TestServersEndWithTheirBinary(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestHolder$")
	cmd.Env = append(os.Environ(), holderVariable+"=1")
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	var pids []int
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "ready" {
		what, value, _ := strings.Cut(lines.Text(), " ")
		switch what {
		case "process":
			pid, err := strconv.Atoi(value)
			must(t, err)
			pids = append(pids, pid)
		case "folder":
			t.Cleanup(func() { must(t, os.RemoveAll(value)) })
		}
	}
	must(t, cmd.Process.Kill())
	_ = cmd.Wait() // ends by the signal
	if len(pids) < 5 {
		t.Fatalf("this test shows nothing: the binary had the processes %v", pids)
	}
	t.Cleanup(func() {
		for _, pid := range pids {
			if runs(pid) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
	for _, pid := range pids {
		for end := time.Now().Add(startTimeout); runs(pid); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("process %d of a server outlives the test binary that started it", pid)
			}
		}
	}
}
