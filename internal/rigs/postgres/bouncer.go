package pgrig

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	processrig "github.com/punctualmq/punctual/internal/rigs/process"
)

// Bouncer is a running pgbouncer.
type Bouncer struct {
	// Addr is its host and port, for clients in place of the server's.
	Addr string

	dir  string
	cmd  *exec.Cmd
	done <-chan struct{} // closed when the process has ended
}

// StartBouncer starts a pgbouncer in front of a server for one test. It pools by the transaction;
// settings such as "pool_mode=session" win. Whoever connects is postgres.
func StartBouncer(t testing.TB, s *Server, settings ...string) *Bouncer {
	t.Helper()
	b, err := launchBouncer(Folder(t), s, settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Kill(); err != nil {
			t.Errorf("end of pgbouncer: %v", err)
		}
		if t.Failed() {
			t.Logf("the log of pgbouncer at %s:\n%s", b.Addr, b.Log())
		}
	})
	return b
}

func launchBouncer(dir string, s *Server, settings []string) (*Bouncer, error) {
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program = "/usr/sbin/pgbouncer" // where Debian has it, which is not in everybody's PATH
		if !exists(program) {
			return nil, fmt.Errorf("pgbouncer is missing: %s: %w", remedy, err)
		}
	}
	if err := s.system.own(dir); err != nil {
		return nil, err
	}
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	config, err := bouncerConfig(addr, s.Addr, filepath.Join(dir, "log"), settings)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		return nil, err
	}
	b := &Bouncer{Addr: addr, dir: dir, cmd: s.system.command(dir, program, "-q", file)}
	if b.done, err = processrig.Start(b.cmd, syscall.SIGKILL); err != nil {
		return nil, err
	}
	return b, b.await()
}

func bouncerConfig(addr, server, log string, settings []string) (string, error) {
	host, port, err := net.SplitHostPort(server)
	if err != nil {
		return "", err
	}
	ownHost, ownPort, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	own := map[string]string{}
	for _, s := range append([]string{
		"listen_addr=" + ownHost, "listen_port=" + ownPort, "unix_socket_dir=", "logfile=" + log, "auth_type=any",
		"pool_mode=transaction", "max_client_conn=1000", "default_pool_size=20",
	}, settings...) {
		name, value, _ := strings.Cut(s, "=")
		own[name] = value
	}
	var b strings.Builder
	fmt.Fprintf(&b, "[databases]\n* = host=%s port=%s user=postgres\n[pgbouncer]\n", host, port)
	for name, value := range own {
		fmt.Fprintf(&b, "%s = %s\n", name, value)
	}
	return b.String(), nil
}

// await returns when somebody listens.
func (b *Bouncer) await() error {
	for end := time.Now().Add(startTimeout); time.Now().Before(end); {
		if c, err := net.DialTimeout("tcp", b.Addr, startTimeout); err == nil {
			return c.Close()
		}
		select {
		case <-b.done:
			return fmt.Errorf("pgbouncer ended at once; its log says: %s", b.Log())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return errors.Join(fmt.Errorf("pgbouncer does not listen at %s; its log says: %s", b.Addr, b.Log()), b.Kill())
}

// URL names a database of the server behind, for pgx and the command line.
func (b *Bouncer) URL(database string) string {
	return "postgres://postgres@" + b.Addr + "/" + database + "?sslmode=disable"
}

// Log is what pgbouncer has written to its log.
func (b *Bouncer) Log() string {
	text, err := os.ReadFile(filepath.Join(b.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Kill ends pgbouncer as kill -9 does, and so all connections through it.
func (b *Bouncer) Kill() error {
	if err := b.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-b.done
	return nil
}
