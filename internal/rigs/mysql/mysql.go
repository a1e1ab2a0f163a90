// Package mysqlrig starts a real MariaDB server for the tests of a package, on loopback, with a
// folder of its own, and ends it.
package mysqlrig

import (
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // what Database makes databases through

	processrig "github.com/punctualmq/punctual/internal/rigs/process"
)

// startTimeout bounds how long a server may take to be ready; it only bounds hangs.
const startTimeout = time.Minute

// remedy is what to do when a program or a file is missing.
const remedy = "apt-get install mariadb-server-core (or: make deps)"

// Server is a running server. Its user root has no password.
type Server struct {
	// Addr is its host and port.
	Addr string

	dir  string
	cmd  *exec.Cmd
	done <-chan struct{} // closed when the server has ended
}

// Run is for a TestMain. It runs the tests of a package with one server for all of them, which it
// puts into shared, and returns the exit code. leaks looks for goroutines that are left when all
// tests have passed.
func Run(tests interface{ Run() int }, shared **Server, leaks func() error) int {
	code, err := run(tests, shared)
	return processrig.ExitCode(code, err, leaks)
}

func run(tests interface{ Run() int }, shared **Server) (code int, err error) {
	dir, err := os.MkdirTemp("", "mysqlrig-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if *shared, err = Launch(dir); err != nil {
		return 1, err
	}
	code = tests.Run()
	return code, (*shared).Kill()
}

// Launch starts a server with its files in dir, in about a second. The caller ends it with Kill,
// and removes dir.
func Launch(dir string) (*Server, error) {
	program, err := exec.LookPath("mariadbd")
	if err != nil {
		return nil, fmt.Errorf("MariaDB is missing: %s: %w", remedy, err)
	}
	if err := makeData(program, dir); err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		s := &Server{dir: dir}
		err := s.start(program)
		// Somebody may have taken the port since it was found free.
		if err == nil || try == 5 || !strings.Contains(s.Log(), "Address already in use") {
			return s, err
		}
	}
}

// command returns a server program whose data are in dir. As root it stays root, which it does not
// by itself.
func command(program, dir string, args ...string) *exec.Cmd {
	args = append([]string{"--no-defaults", "--datadir=" + filepath.Join(dir, "data"), "--skip-log-bin", "--innodb-flush-log-at-trx-commit=0", "--innodb-log-file-size=8M"}, args...)
	if os.Geteuid() == 0 {
		args = append(args, "--user=root")
	}
	return exec.Command(program, args...)
}

// makeData makes the data of a server, as mariadb-install-db does, which needs programs of other
// packages.
func makeData(program, dir string) error {
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o700); err != nil {
		return err
	}
	script := []io.Reader{strings.NewReader("create database mysql;\nuse mysql;\nset @auth_root_socket=NULL;\nset @skip_auth_anonymous=1;\n")}
	for _, name := range []string{"mysql_system_tables.sql", "mysql_performance_tables.sql", "mysql_system_tables_data.sql"} {
		text, err := os.ReadFile(filepath.Join("/usr/share/mysql", name))
		if err != nil {
			return fmt.Errorf("MariaDB's tables are missing: %s: %w", remedy, err)
		}
		script = append(script, strings.NewReader(string(text)))
	}
	cmd := command(program, dir, "--bootstrap")
	cmd.Stdin = io.MultiReader(script...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make the data of MariaDB: %w: %s", err, out)
	}
	return nil
}

func (s *Server) start(program string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.Addr = l.Addr().String()
	if err := l.Close(); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return errors.Join(err, log.Close())
	}
	s.cmd = command(program, s.dir, "--bind-address="+host, "--port="+port, "--socket="+filepath.Join(s.dir, "socket"), "--pid-file="+filepath.Join(s.dir, "pid"))
	s.cmd.Stdout, s.cmd.Stderr = log, log
	done, err := processrig.Start(s.cmd, syscall.SIGKILL)
	if closing := log.Close(); err != nil || closing != nil { // the server has its own
		return errors.Join(err, closing)
	}
	s.done = done
	for end := time.Now().Add(startTimeout); time.Now().Before(end); {
		if strings.Contains(s.Log(), "ready for connections") {
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

// Log is what the server has written to its log so far.
func (s *Server) Log() string {
	text, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// URL names a database of the server for the command line, as its user root.
func (s *Server) URL(database string) string { return "mysql://root@" + s.Addr + "/" + database }

// DSN names a database of the server for the driver, as its user root.
func (s *Server) DSN(database string) string { return "root@tcp(" + s.Addr + ")/" + database }

// Database makes an empty database for one test and returns its name.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("test_%016x", rand.Uint64())
	do := func(statement string) {
		if _, err := s.Do("", statement); err != nil {
			t.Error(err)
		}
	}
	do("create database " + name + " character set utf8mb4")
	t.Cleanup(func() { do("drop database " + name) })
	return name
}

// Do carries out statements in a database, and returns the first column of their rows, separated by
// spaces.
func (s *Server) Do(database string, statements ...string) (text string, err error) {
	db, err := sql.Open("mysql", s.DSN(database))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var words []string
	for _, statement := range statements {
		rows, err := db.Query(statement)
		if err != nil {
			return "", fmt.Errorf("%s: %w", statement, err)
		}
		for rows.Next() {
			var word string
			if err := rows.Scan(&word); err != nil {
				return "", errors.Join(err, rows.Close())
			}
			words = append(words, word)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return "", fmt.Errorf("%s: %w", statement, err)
		}
	}
	return strings.Join(words, " "), nil
}

// Kill ends the server as kill -9 does, and returns when it has ended.
func (s *Server) Kill() error {
	err := s.cmd.Process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	<-s.done
	return err
}
