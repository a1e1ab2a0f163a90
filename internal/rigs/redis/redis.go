// Package redisrig starts real Redis servers for tests, on loopback, each with a folder of
// its own, and ends them.
package redisrig

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	netrig "github.com/punctualmq/punctual/internal/rigs/net"
	processrig "github.com/punctualmq/punctual/internal/rigs/process"
)

// remedy is what to do when a program is missing.
const remedy = "apt-get install redis-server redis-sentinel redis-tools (or: make deps)"

// serverVariable names the variable that holds the path of another server to be tested: another
// version of Redis, or Valkey. Without it the redis-server and redis-sentinel of the system are
// tested.
const serverVariable = "PUNCTUAL_REDIS_SERVER"

// serverProgram is the server that is tested.
func serverProgram() string {
	if path := os.Getenv(serverVariable); path != "" {
		return path
	}
	return "redis-server"
}

// startTimeout bounds how long a server may take to answer; it only bounds hangs.
const startTimeout = 30 * time.Second

// Server is a running server or Sentinel.
type Server struct {
	// Addr is its host and port.
	Addr string
	// Dir is where it keeps its files.
	Dir string

	program string
	args    []string
	env     []string // beside that of the test
	cmd     *exec.Cmd
	done    <-chan struct{} // closed when the process has ended
}

// Start starts a server for one test. It has an append-only file, synced every second; args
// such as "--appendfsync", "always" come behind that and win.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	s, err := launch(t.TempDir(), args...)
	if err != nil {
		t.Fatal(err)
	}
	s.killAtEnd(t)
	return s
}

// StartReplica starts a server for one test that follows another one, and returns once the link is
// up.
func StartReplica(t testing.TB, primary *Server, args ...string) *Server {
	t.Helper()
	s := Start(t, append(replicaOf(t, primary.Addr), args...)...)
	if err := s.awaitLink(primary); err != nil {
		t.Fatal(err)
	}
	return s
}

// StartReplicaOver is StartReplica for one that reaches its primary over a wire.
func StartReplicaOver(t testing.TB, w *netrig.Wire, primary *Server, args ...string) *Server {
	t.Helper()
	s := Start(t, append(replicaOf(t, w.Addr), args...)...)
	if err := s.awaitLink(primary); err != nil {
		t.Fatal(err)
	}
	return s
}

// StartShiftedReplica is StartReplica for one whose clock Shift sets.
func StartShiftedReplica(t testing.TB, primary *Server, args ...string) *Server {
	t.Helper()
	s := StartShifted(t, append(replicaOf(t, primary.Addr), args...)...)
	if err := s.awaitLink(primary); err != nil {
		t.Fatal(err)
	}
	return s
}

// replicaOf is the setting of a server that follows the one at an address.
func replicaOf(t testing.TB, addr string) []string {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return []string{"--replicaof", host + " " + port}
}

// awaitLink waits until a replica follows its primary, and both know it.
func (s *Server) awaitLink(primary *Server) error {
	_, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return err
	}
	for end := time.Now().Add(startTimeout); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		follows, err := s.Do("INFO", "replication")
		if err != nil || !strings.Contains(follows, "master_link_status:up") {
			continue
		}
		if known, err := primary.Do("INFO", "replication"); err == nil && strings.Contains(known, "port="+port+",state=online") {
			return nil
		}
	}
	return fmt.Errorf("waited %v in vain until %s follows %s", startTimeout, s.Addr, primary.Addr)
}

func (s *Server) killAtEnd(t testing.TB) {
	t.Cleanup(func() {
		if err := s.Kill(); err != nil {
			t.Errorf("end of %s: %v", s.program, err)
		}
		if t.Failed() {
			t.Logf("the log of %s at %s:\n%s", s.program, s.Addr, s.log())
		}
	})
}

// Run is for a TestMain. It runs the tests of a package with one server for all of them, which it
// puts into shared, and returns the exit code. leaks looks for goroutines that are left when all
// tests have passed.
func Run(m *testing.M, shared **Server, leaks func() error) int {
	code, err := run(m, shared)
	return processrig.ExitCode(code, err, leaks)
}

func run(m *testing.M, shared **Server) (code int, err error) {
	dir, err := os.MkdirTemp("", "redisrig-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	if *shared, err = launch(dir, "--appendonly", "no"); err != nil {
		return 1, err
	}
	code = m.Run()
	return code, (*shared).Kill()
}

// launch starts a server with its files in dir.
func launch(dir string, args ...string) (*Server, error) { return launchWith(dir, nil, args...) }

// launchWith is launch with more in the environment.
func launchWith(dir string, env []string, args ...string) (*Server, error) {
	for try := 1; ; try++ {
		s, err := launchOnce(dir, env, args)
		// Somebody may have taken the port since it was found free.
		if err == nil || try == 5 || !strings.Contains(err.Error(), "Address already in use") {
			return s, err
		}
	}
}

func launchOnce(dir string, env, args []string) (*Server, error) {
	host, port, err := freeAddr()
	if err != nil {
		return nil, err
	}
	s := &Server{Addr: net.JoinHostPort(host, port), Dir: dir, program: serverProgram(), env: env}
	s.args = append([]string{
		"--port", port, "--bind", host, "--replica-announce-ip", host, "--cluster-announce-ip", host,
		"--dir", dir, "--save", "", "--appendonly", "yes", "--appendfsync", "everysec",
		"--logfile", filepath.Join(dir, "redis.log"), "--daemonize", "no", "--repl-diskless-sync-delay", "0",
	}, args...)
	return s, s.Restart()
}

// Restart starts a server that was killed, on the same port and with the same files.
func (s *Server) Restart() error {
	path, err := exec.LookPath(s.program)
	if err != nil {
		if s.program == os.Getenv(serverVariable) {
			return fmt.Errorf("%s names %s, which cannot be run: %w", serverVariable, s.program, err)
		}
		return fmt.Errorf("%s is missing: %s: %w", s.program, remedy, err)
	}
	s.cmd = exec.Command(path, s.args...)
	s.cmd.Env = append(os.Environ(), s.env...)
	s.cmd.Stdout, s.cmd.Stderr = io.Discard, io.Discard
	if s.done, err = processrig.Start(s.cmd, syscall.SIGKILL); err != nil {
		return fmt.Errorf("start of %s: %w", s.program, err)
	}
	return s.await()
}

// await returns when the server answers and has loaded its data.
func (s *Server) await() error {
	for end := time.Now().Add(startTimeout); time.Now().Before(end); {
		if reply, err := s.Do("PING"); err == nil && reply == "PONG" {
			return nil
		}
		select {
		case <-s.done:
			return fmt.Errorf("%s ended at once; its log says: %s", s.program, s.log())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return errors.Join(fmt.Errorf("%s does not answer at %s; its log says: %s", s.program, s.Addr, s.log()), s.Kill())
}

func (s *Server) log() string {
	text, err := os.ReadFile(filepath.Join(s.Dir, "redis.log"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Kill ends the server as kill -9 does. It returns when the process has ended, at once if it
// has already.
func (s *Server) Kill() error {
	select {
	case <-s.done:
		return nil
	default:
	}
	if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-s.done
	return nil
}

// Stop halts the server as SIGSTOP does: its connections stay open and nobody answers.
func (s *Server) Stop() error { return s.cmd.Process.Signal(syscall.SIGSTOP) }

// Continue lets a stopped server go on.
func (s *Server) Continue() error { return s.cmd.Process.Signal(syscall.SIGCONT) }

// Do sends one command on a connection of its own and returns its reply; parts of a list are
// separated by line feeds. It is for steering servers, not for data.
func (s *Server) Do(words ...string) (string, error) {
	c, err := net.DialTimeout("tcp", s.Addr, startTimeout)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(startTimeout)); err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	if _, err := io.WriteString(c, b.String()); err != nil {
		return "", err
	}
	return readReply(bufio.NewReader(c))
}

func readReply(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return "", errors.New("empty reply")
	}
	switch line[0] {
	case '-':
		return "", errors.New(line[1:])
	case '$':
		n, err := strconv.Atoi(line[1:])
		if err != nil || n < 0 {
			return "", err
		}
		text := make([]byte, n+2)
		_, err = io.ReadFull(r, text)
		return string(text[:n]), err
	case '*':
		n, err := strconv.Atoi(line[1:])
		var parts []string
		for range n {
			part, err := readReply(r)
			if err != nil {
				return "", err
			}
			parts = append(parts, part)
		}
		return strings.Join(parts, "\n"), err
	}
	return line[1:], nil
}

// freeAddr returns an address of loopback that nobody listens on at this moment. Where the system
// allows it, as Linux does, the address is on a host of its own, drawn from nearly all of 127/8.
// Otherwise a server of another test could get the port of one that was killed. A Sentinel or
// cluster that finds it there would make it its replica.
func freeAddr() (host, port string, err error) {
	host = fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return "", "", err
	}
	host, port, err = net.SplitHostPort(l.Addr().String())
	return host, port, errors.Join(err, l.Close())
}
