//go:build unix

package cli

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/punctualmq/punctual/diskstore"
	"github.com/punctualmq/punctual/sharedstore"
)

// shell runs command lines as processes of their own, on one store on disk.
type shell struct {
	t   *testing.T
	dir string
}

func newShell(t *testing.T) *shell {
	t.Helper()
	return &shell{t, filepath.Join(t.TempDir(), "store")}
}

func (s *shell) command(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), runAsCommand+"=1", "PUNCTUAL_STORE=disk:"+s.dir,
		"GORACE=atexit_sleep_ms=0") // a race build sleeps for a second at its end otherwise
	cmd.WaitDelay = time.Minute
	return cmd
}

func (s *shell) run(args ...string) result {
	s.t.Helper()
	var out, errs strings.Builder
	cmd := s.command(args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		s.t.Fatal(err)
	}
	return result{s.t, args, cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// process is a command that runs, with the lines that it prints.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	out   *bufio.Reader
	errs  *buffer
	ended bool
}

func (s *shell) start(args ...string) *process {
	s.t.Helper()
	return s.startCommand(s.command(args...))
}

func (s *shell) startCommand(cmd *exec.Cmd) *process {
	s.t.Helper()
	p := &process{t: s.t, cmd: cmd, errs: &buffer{}}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	p.out, p.cmd.Stderr = bufio.NewReader(out), p.errs
	if err := p.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if !p.ended {
			_ = p.cmd.Process.Kill() // the test has failed, or leaves the end of the process to this function
			_ = p.cmd.Wait()
		}
	})
	return p
}

// line waits for the next line on standard output.
func (p *process) line() string {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatalf("%q: read a line: %v; standard error %q", p.cmd.Args, err, p.errs.String())
	}
	return strings.TrimSuffix(line, "\n")
}

func (p *process) signal(sig os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// says waits until text stands on standard error.
func (p *process) says(text string) {
	p.t.Helper()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(p.errs.String(), text); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("%q does not say %q; standard error %q", p.cmd.Args, text, p.errs.String())
		}
	}
}

// wait waits for the end and returns the exit code.
func (p *process) wait() int {
	p.t.Helper()
	if _, err := io.Copy(io.Discard, p.out); err != nil {
		p.t.Error(err)
	}
	_ = p.cmd.Wait() // an exit code other than 0 is looked at by the test
	p.ended = true
	return p.cmd.ProcessState.ExitCode()
}

func TestMessagesOutliveTheProcess(t *testing.T) {
	s := newShell(t)
	s.run("push", "t", "hello", "--id", "a").ok().prints("a\n")
	s.run("push", "t", "again", "--id", "a", "--json").ok().contains(`"result":"duplicate"`)
	s.run("push", "t", "later", "--id", "b", "--in", "1h").ok()
	s.run("cancel", "b").ok()
	s.run("consume", "t", "--until-empty").ok().contains(`"body":"hello"`, `"attempt":1`)
	s.run("consume", "t", "--until-empty").ok().prints("")
	s.run("check", "--json").ok().printsJSON(`{"topics":1,"live":0,"dead":0,"problems":[]}`)
}

// Commands work on a directory that a running consume owns, with the same output and exit codes as
// when nobody owns it.
func TestASecondProcessUsesTheStoreToo(t *testing.T) {
	s := newShell(t)
	s.run("push", "t", "x", "--id", "first").ok()
	p := s.start("consume", "t")
	if line := p.line(); !strings.Contains(line, `"id":"first"`) {
		t.Fatalf("the first line is %s", line)
	}
	s.run("push", "t", "y", "--id", "second").ok().prints("second\n")
	if line := p.line(); !strings.Contains(line, `"body":"y"`) {
		t.Errorf("consume printed %s, want what another process pushed", line)
	}
	s.run("push", "t", "z", "--id", "later", "--in", "1h").ok()
	s.run("push", "t", "z", "--id", "later", "--json").ok().contains(`"result":"duplicate"`)
	s.run("list", "t", "--json").ok().contains(`"id":"later"`)
	s.run("cancel", "later").ok()
	s.run("cancel", "later").exits(exitUnwished, "later")
	s.run("check", "--json").ok().printsJSON(`{"topics":1,"live":0,"dead":0,"problems":[]}`)
	s.run("doctor").ok()
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != exitOK {
		t.Errorf("exit %d after a SIGTERM, want 0", code)
	}
	s.run("stats", "t").ok()
}

// A consume goes on when the one that owned the directory has ended, or was killed.
func TestConsumeTakesTheDirectoryOver(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		s := newShell(t)
		s.run("push", "t", "x").ok()
		first := s.start("consume", "t")
		first.line() // it owns the directory
		second := s.start("consume", "t")
		s.run("push", "u", "x").ok()
		first.signal(sig)
		first.wait()
		s.run("push", "t", "y").ok()
		if line := second.line(); !strings.Contains(line, `"body":"y"`) {
			t.Errorf("after %v to the first: the second printed %s", sig, line)
		}
		second.signal(syscall.SIGTERM)
		if code := second.wait(); code != exitOK {
			t.Errorf("exit %d after a SIGTERM, want 0", code)
		}
	}
}

// While an owner does not share its directory, other commands are refused and told its process ID,
// or wait for its end.
func TestASecondProcessLearnsWhoHoldsTheStore(t *testing.T) {
	s := newShell(t)
	s.run("push", "t", "x").ok()
	d, err := diskstore.Open(s.dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	holder := fmt.Sprint(os.Getpid())
	s.run("push", "t", "y", "--wait", "0s").exits(exitError, holder, "one process owns a directory", "or name another store with --store")
	s.run("topics", "--json", "--wait", "0s").exits(exitError, holder).failsWith("locked", true)
	s.run("topics", "--wait", "1ms").exits(exitError, holder, "or wait for it with --wait 10s")
	waiting := s.start("topics", "--wait", "1h")
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if code := waiting.wait(); code != exitOK {
		t.Errorf("exit %d of a command that waited for the owner to end, want 0", code)
	}
}

// A signal ends the wait for a directory whose owner does not share it. A command that waits tries
// again and again to reach the owner through the socket in the directory, where this test listens
// and never answers. So at the second attempt the command has waited.
func TestASignalEndsTheWaitForTheStore(t *testing.T) {
	s := newShell(t)
	s.run("push", "t", "x").ok()
	d, err := diskstore.Open(s.dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	socket, err := net.Listen("unix", filepath.Join(s.dir, sharedstore.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	p := s.start("topics", "--json", "--wait", "1h")
	for range 2 {
		c, err := socket.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	p.signal(syscall.SIGINT)
	if code := p.wait(); code != exitError {
		t.Errorf("exit %d of a command that was interrupted while it waited, want %d", code, exitError)
	}
	for _, want := range []string{"canceled", "one process owns a directory", fmt.Sprint(os.Getpid())} {
		if !strings.Contains(p.errs.String(), want) {
			t.Errorf("standard error %q does not say %q", p.errs.String(), want)
		}
	}
}

// After the first signal, which may come twice within an instant, the command under way is finished
// and its message acked, and no further message is claimed.
func TestTheFirstSignalDrains(t *testing.T) {
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if signal.Ignored(sig) {
			t.Logf("%v is ignored, as below nohup, and so the commands ignore it", sig)
			continue
		}
		s := newShell(t)
		s.run("push", "t", "x", "--id", "a").ok()
		s.run("push", "t", "x", "--id", "b").ok()
		goOn := filepath.Join(t.TempDir(), "go-on")
		p := s.start("consume", "t", "--exec", fmt.Sprintf("echo begun; while [ ! -e %s ]; do sleep 0.01; done; echo finished", goOn))
		p.line()
		p.signal(sig)
		p.says("under way") // from then on nothing more is claimed
		p.signal(syscall.SIGTERM)
		if err := os.WriteFile(goOn, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := p.line(); got != "finished" {
			t.Errorf("%v: the command under way printed %q, want finished", sig, got)
		}
		if code := p.wait(); code != exitOK {
			t.Errorf("%v: exit %d, want 0; standard error %q", sig, code, p.errs.String())
		}
		s.run("get", "a").exits(exitUnwished)
		s.run("get", "b", "--json").ok().contains(`"attempt":0`)
	}
}

// The second signal ends the process and its commands at once. The message is given back, and no
// attempt is used.
func TestTheSecondSignalEndsAtOnce(t *testing.T) {
	for sig, exit := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		s := newShell(t)
		s.run("push", "t", "x", "--id", "a").ok()
		p := s.start("consume", "t", "--exec", "sleep 100 & echo $!; wait")
		child := p.line()
		p.signal(sig)
		p.signal(sig)
		done := make(chan int)
		go func() { done <- p.wait() }()
		// Two signals of one kind sent together may arrive as one: send until it has ended.
		code, ended := 0, false
		for !ended {
			select {
			case code = <-done:
				ended = true
			case <-time.After(50 * time.Millisecond):
				_ = p.cmd.Process.Signal(sig) // it may have ended meanwhile
			}
		}
		if code != exit {
			t.Errorf("%v twice: exit %d, want %d", sig, code, exit)
		}
		waitUntil(t, "the command's child has ended", func() bool { return !running(child) })
		s.run("get", "a", "--json").ok().contains(`"state":"ready"`, `"attempt":0`)
	}
}

// When whoever reads standard output has gone, a command ends with 141 and without a message on
// standard error, as other programs do. A message that could not be printed is not acked.
func TestAClosedPipeEndsCommandsQuietly(t *testing.T) {
	s := newShell(t)
	s.run("push", "t", "x", "--id", "a").ok()
	for _, args := range [][]string{{"consume", "t"}, {"list", "t"}, {"list", "t", "--json"}, {"--version"}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		cmd := s.command(args...)
		var errs buffer
		cmd.Stdout, cmd.Stderr = w, &errs
		_ = cmd.Run() // the exit code is looked at below
		w.Close()
		if code := cmd.ProcessState.ExitCode(); code != 141 || errs.String() != "" {
			t.Errorf("%q: exit %d, standard error %q; want 141 and none", args, code, errs.String())
		}
	}
	s.run("get", "a", "--json").ok().contains(`"state":"ready"`, `"attempt":0`)
}

// When a process is killed while it works on a message, the message is delivered again, and the
// attempt counts.
func TestAKilledConsumerUsesAnAttempt(t *testing.T) {
	s := newShell(t)
	s.run("topic", "set", "t", "--lease", "100ms").ok()
	s.run("push", "t", "x", "--id", "a").ok()
	p := s.start("consume", "t", "--exec", "echo begun; exec sleep 1")
	p.line()
	p.signal(syscall.SIGKILL)
	p.wait()
	s.run("consume", "t", "--count", "1").ok().contains(`"id":"a"`, `"attempt":2`)
}
