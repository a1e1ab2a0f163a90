// Package pgrig starts real PostgreSQL servers for tests and benchmarks, on loopback, each with a
// folder of its own, and ends them.
package pgrig

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	processrig "github.com/punctualmq/punctual/internal/rigs/process"
)

// startTimeout bounds how long a server may take to be ready or to end; it only bounds hangs.
const startTimeout = time.Minute

// Server is a running server. At first its only role is postgres, a superuser without a password.
type Server struct {
	// Addr is its host and port.
	Addr string
	// Dir is its data directory.
	Dir string
	// Name is what a replica calls itself to its primary, for synchronous_standby_names.
	Name string

	system system
	cmd    *exec.Cmd
	done   <-chan struct{} // closed when the first process of the server has ended
}

// Start starts a server for one test, which listens at one address of loopback alone. Its other
// settings are PostgreSQL's own but for those given, such as "fsync=off". It takes well under a
// second in a package whose TestMain calls Run, and some two seconds elsewhere.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	s, err := launch(Folder(t), settings)
	if err != nil {
		t.Fatal(err)
	}
	s.killAtEnd(t)
	return s
}

// StartAnew is Start for a server with a system identifier of its own. The others are copies of one
// data directory, so they share theirs.
func StartAnew(t testing.TB, settings ...string) *Server {
	t.Helper()
	folder := Folder(t)
	sys, err := findSystem()
	if err == nil {
		err = sys.own(folder)
	}
	data := filepath.Join(folder, "data")
	if err == nil {
		err = sys.initdb(folder, data)
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := launchData(sys, data, settings)
	if err != nil {
		t.Fatal(err)
	}
	s.killAtEnd(t)
	return s
}

// StartIn is Start with the files in a folder of the caller's, say on a small disk. The folder
// becomes the property of the account that the server runs under.
func StartIn(t testing.TB, folder string, settings ...string) *Server {
	t.Helper()
	s, err := launch(folder, settings)
	if err != nil {
		t.Fatal(err)
	}
	s.killAtEnd(t)
	return s
}

// Folder makes a folder for one test in a place that the account of the servers can reach. They
// cannot reach the t.TempDir of root.
func Folder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pgrig-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func (s *Server) killAtEnd(t testing.TB) {
	t.Cleanup(func() {
		if err := s.Kill(); err != nil {
			t.Errorf("end of the server at %s: %v", s.Addr, err)
		}
		if t.Failed() {
			t.Logf("the log of the server at %s:\n%s", s.Addr, s.Log())
		}
	})
}

// template is a data directory that new servers get a copy of. Run sets it while no test runs;
// elsewhere it is empty, and each server makes its own.
var template string

// Run is for a TestMain. It runs the tests of a package with one server for all of them, and
// returns the exit code. It puts that server, which runs with the settings given, into shared.
// leaks looks for goroutines that are left when all tests have passed. tests is the *testing.M, or
// what runs it with more around it.
func Run(tests interface{ Run() int }, shared **Server, leaks func() error, settings ...string) int {
	code, err := run(tests, shared, settings)
	return processrig.ExitCode(code, err, leaks)
}

func run(tests interface{ Run() int }, shared **Server, settings []string) (code int, err error) {
	dir, err := os.MkdirTemp("", "pgrig-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if template, err = makeTemplate(dir); err != nil {
		return 1, err
	}
	defer func() { template = "" }()
	first := filepath.Join(dir, "shared")
	if err := os.Mkdir(first, 0o700); err != nil {
		return 1, err
	}
	if *shared, err = launch(first, settings); err != nil {
		return 1, err
	}
	code = tests.Run()
	return code, (*shared).Kill()
}

// makeTemplate makes a data directory in dir.
func makeTemplate(dir string) (string, error) {
	sys, err := findSystem()
	if err != nil {
		return "", err
	}
	if err := sys.own(dir); err != nil {
		return "", err
	}
	data := filepath.Join(dir, "template")
	return data, sys.initdb(dir, data)
}

// Launch is StartIn for programs that are no tests. The caller ends the server with Kill, and
// removes the folder.
func Launch(folder string, settings ...string) (*Server, error) { return launch(folder, settings) }

// launch starts a server with its files in folder.
func launch(folder string, settings []string) (*Server, error) {
	sys, err := findSystem()
	if err != nil {
		return nil, err
	}
	return launchWith(sys, folder, settings)
}

// launchWith starts a server of a system with its files in folder.
func launchWith(sys system, folder string, settings []string) (*Server, error) {
	err := sys.own(folder)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(folder, "data")
	if template == "" {
		err = sys.initdb(folder, data)
	} else {
		_, err = sys.run(folder, "cp", "-Rp", template, data)
	}
	if err != nil {
		return nil, err
	}
	return launchData(sys, data, settings)
}

// launchData starts a server on a data directory that is there.
func launchData(sys system, data string, settings []string) (*Server, error) {
	if err := addSettings(data, settings); err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		addr, err := freeAddr()
		if err != nil {
			return nil, err
		}
		s := &Server{Addr: addr, Dir: data, system: sys}
		err = s.Restart()
		// Somebody may have taken the port since it was found free.
		if err == nil || try == 5 || !strings.Contains(s.Log(), "Address already in use") {
			return s, err
		}
	}
}

// addSettings puts settings of the form name=value behind those that postgresql.conf has. ALTER
// SYSTEM still goes before them.
func addSettings(data string, settings []string) error {
	f, err := os.OpenFile(filepath.Join(data, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	for _, s := range settings {
		name, value, ok := strings.Cut(s, "=")
		if !ok {
			return errors.Join(fmt.Errorf("setting %q: write name=value", s), f.Close())
		}
		if _, err := fmt.Fprintf(f, "%s = %s\n", name, quoted(value)); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return f.Close()
}

// quoted is a string literal of SQL and of configuration files.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// Restart starts a server that has ended, on the same port and with the same files. It returns when
// the server takes connections.
func (s *Server) Restart() error {
	log, err := os.OpenFile(s.logPath(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return errors.Join(err, log.Close())
	}
	s.cmd = s.system.command(s.Dir, "postgres", "-D", s.Dir, "-h", host, "-p", port, "-c", "unix_socket_directories=")
	s.cmd.Stdout, s.cmd.Stderr = log, log
	done, err := processrig.Start(s.cmd, syscall.SIGQUIT)     // an immediate shutdown, which ends the server's other processes
	if closing := log.Close(); err != nil || closing != nil { // the server has its own
		return errors.Join(err, closing)
	}
	s.done = done
	return s.await()
}

// await returns when the server takes connections, also as a replica.
func (s *Server) await() error {
	for end := time.Now().Add(startTimeout); time.Now().Before(end); {
		if s.ready() {
			return nil
		}
		select {
		case <-s.done:
			return fmt.Errorf("the server at %s ended at once; its log says: %s", s.Addr, s.Log())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return errors.Join(fmt.Errorf("the server at %s is not ready after %v; its log says: %s", s.Addr, startTimeout, s.Log()), s.Kill())
}

// ready reads what the server notes of itself: its process in the first line of postmaster.pid, its
// state in the eighth.
func (s *Server) ready() bool {
	text, err := os.ReadFile(filepath.Join(s.Dir, "postmaster.pid"))
	lines := strings.Split(string(text), "\n")
	return err == nil && len(lines) >= 8 && lines[0] == strconv.Itoa(s.cmd.Process.Pid) && strings.TrimSpace(lines[7]) == "ready"
}

func (s *Server) logPath() string { return s.Dir + ".log" }

// Log is what the server has written to its log so far, over all its starts.
func (s *Server) Log() string {
	text, err := os.ReadFile(s.logPath())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// URL names a database of the server, for pgx and the command line. A new server has the database
// "postgres".
func (s *Server) URL(database string) string {
	return "postgres://postgres@" + s.Addr + "/" + database + "?sslmode=disable"
}

// Database makes an empty database for one test and returns its URL.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("test_%016x", rand.Uint64())
	if _, err := s.Do("create database " + name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.ended() {
			return
		}
		if _, err := s.Do("drop database if exists " + name + " with (force)"); err != nil {
			t.Error(err)
		}
	})
	return s.URL(name)
}

// Do carries out statements in the database "postgres", each in a transaction of its own. It
// returns the rows, one a line, with | between the columns. It is for steering servers, not for
// data.
func (s *Server) Do(statements ...string) (string, error) {
	args := []string{"-XAtq", "-v", "ON_ERROR_STOP=1", "-d", s.URL("postgres")}
	for _, one := range statements {
		args = append(args, "-c", one)
	}
	return s.system.run(s.Dir, "psql", args...)
}

// Set changes a setting of the running server, which notices soon after. Some need a restart.
func (s *Server) Set(name, value string) error {
	_, err := s.Do("alter system set "+name+" = "+quoted(value), "select pg_reload_conf()")
	return err
}

func (s *Server) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// Stop shuts the server down in order: it ends its connections, rolls back what was open and writes
// a checkpoint.
func (s *Server) Stop() error { return s.shutDown(syscall.SIGINT) }

// StopImmediately has the server end at once without a checkpoint, so that the next start recovers.
func (s *Server) StopImmediately() error { return s.shutDown(syscall.SIGQUIT) }

func (s *Server) shutDown(signal syscall.Signal) error {
	if s.ended() {
		return nil
	}
	if err := s.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-s.done:
		return nil
	case <-time.After(startTimeout):
		return errors.Join(fmt.Errorf("the server at %s does not end within %v of %v; its log says: %s", s.Addr, startTimeout, signal, s.Log()), s.Kill())
	}
}

// Kill ends all processes of the server as kill -9 does. It returns when they have ended, at once
// if the server has already.
func (s *Server) Kill() error {
	if s.ended() {
		return nil
	}
	pids, err := s.halt()
	for _, pid := range slices.Backward(pids) {
		if killing := syscall.Kill(pid, syscall.SIGKILL); killing != nil && !errors.Is(killing, syscall.ESRCH) {
			err = errors.Join(err, killing)
		}
	}
	<-s.done
	for end := time.Now().Add(startTimeout); slices.ContainsFunc(pids, runs); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return errors.Join(err, fmt.Errorf("processes of the server at %s do not end", s.Addr))
		}
	}
	return err
}

// Freeze halts all processes of the server: connections stay open and nobody answers.
func (s *Server) Freeze() error {
	_, err := s.halt()
	return err
}

// Thaw lets a frozen server go on.
func (s *Server) Thaw() error {
	pids, err := children(s.cmd.Process.Pid)
	for _, pid := range append(pids, s.cmd.Process.Pid) {
		if signalling := syscall.Kill(pid, syscall.SIGCONT); signalling != nil && !errors.Is(signalling, syscall.ESRCH) {
			err = errors.Join(err, signalling)
		}
	}
	return err
}

// halt stops the first process, so that it starts no more, and then the others, and returns all.
func (s *Server) halt() ([]int, error) {
	first := s.cmd.Process.Pid
	pids := []int{first}
	err := syscall.Kill(first, syscall.SIGSTOP)
	for err == nil && !stopped(first) && runs(first) {
		time.Sleep(time.Millisecond)
	}
	others, listing := children(first)
	for _, pid := range others {
		if signalling := syscall.Kill(pid, syscall.SIGSTOP); signalling != nil && !errors.Is(signalling, syscall.ESRCH) {
			err = errors.Join(err, signalling)
		}
	}
	for _, pid := range others {
		for err == nil && !stopped(pid) && runs(pid) {
			time.Sleep(time.Millisecond)
		}
	}
	return append(pids, others...), errors.Join(err, listing)
}

// CPU is the processor time that the server has used since its last start, that of connections that
// have ended included.
func (s *Server) CPU() (time.Duration, error) {
	first := s.cmd.Process.Pid
	pids, err := children(first)
	if err != nil {
		return 0, err
	}
	used := processorTime(first, true)
	for _, pid := range pids {
		used += processorTime(pid, false)
	}
	return used, nil
}

// freeAddr returns an address of loopback that nobody listens on at this moment. Where the system
// allows it, its host is drawn from nearly all of 127/8. So what was meant for a server that has
// ended hardly ever reaches another test's.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254)))
	if err != nil {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
