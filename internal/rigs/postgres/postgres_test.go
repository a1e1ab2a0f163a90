package pgrig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

var shared *Server

func TestMain(m *testing.M) {
	os.Exit(Run(m, &shared, func() error { return goleak.Find() }))
}

// do carries out statements and fails the test if that fails.
func do(t *testing.T, s *Server, statements ...string) string {
	t.Helper()
	out, err := s.Do(statements...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// What was committed is there after each way to end, and the server really ended in that way.
func TestEnds(t *testing.T) {
	s := Start(t, "work_mem=7MB")
	if got := do(t, s, "show work_mem"); got != "7MB" {
		t.Errorf("work_mem is %s, want 7MB", got)
	}
	do(t, s, "create table kept (n int)")
	ends := []struct {
		name   string
		end    func() error
		traces string // in the log of the end or of the next start
	}{
		{"stop", s.Stop, "database system is shut down"},
		{"immediate stop", s.StopImmediately, "received immediate shutdown request"},
		{"kill", s.Kill, "database system was not properly shut down"},
	}
	for i, e := range ends {
		do(t, s, "insert into kept values (1)")
		before := len(s.Log())
		pids, err := children(s.cmd.Process.Pid)
		if err != nil || len(pids) == 0 {
			t.Fatalf("processes of the server: %v, %v", pids, err)
		}
		must(t, e.end())
		for _, pid := range pids {
			if e.name == "kill" && runs(pid) {
				t.Errorf("%s: process %d still runs", e.name, pid)
			}
		}
		if _, err := s.Do("select 1"); err == nil {
			t.Errorf("%s: the server answers", e.name)
		}
		must(t, s.Restart())
		if !strings.Contains(s.Log()[before:], e.traces) {
			t.Errorf("%s: the log does not say %q:\n%s", e.name, e.traces, s.Log()[before:])
		}
		if got, want := do(t, s, "select count(*) from kept"), string(rune('1'+i)); got != want {
			t.Errorf("%s: %s rows, want %s", e.name, got, want)
		}
	}
}

// All processes of a frozen server are halted, and the server goes on afterwards.
func TestFreeze(t *testing.T) {
	s := Start(t)
	must(t, s.Freeze())
	pids, err := children(s.cmd.Process.Pid)
	must(t, err)
	for _, pid := range append(pids, s.cmd.Process.Pid) {
		if !stopped(pid) {
			t.Errorf("process %d is not halted", pid)
		}
	}
	must(t, s.Thaw())
	if got := do(t, s, "select 1"); got != "1" {
		t.Errorf("select 1: %q", got)
	}
}

// A replica gets what its primary commits, and takes changes of its own once it is promoted, while
// the old primary is still up.
func TestReplica(t *testing.T) {
	primary := Start(t)
	replica := StartReplica(t, primary, "work_mem=9MB")
	must(t, primary.Set("synchronous_standby_names", replica.Name))
	must(t, primary.Set("synchronous_commit", "remote_apply"))
	for do(t, primary, "select sync_state from pg_stat_replication") != "sync" {
	}
	do(t, primary, "create table t (n int)", "insert into t values (1)")
	if got := do(t, replica, "select n from t", "show work_mem", "show transaction_read_only"); got != "1\n9MB\non" {
		t.Errorf("on the replica: %q", got)
	}
	if _, err := replica.Do("insert into t values (2)"); err == nil {
		t.Error("a replica took a change")
	}
	must(t, replica.Promote())
	do(t, replica, "set synchronous_commit = local", "insert into t values (2)")
	if got := do(t, primary, "select count(*) from t"); got != "1" {
		t.Errorf("on the old primary: %s rows, want 1", got)
	}
}

// A client that connects through pgbouncer is postgres, and a pgbouncer that was killed does not
// answer.
func TestBouncer(t *testing.T) {
	b := StartBouncer(t, shared)
	through := &Server{Addr: b.Addr, Dir: shared.Dir, system: shared.system}
	if got := do(t, through, "select current_user"); got != "postgres" {
		t.Errorf("user %q, want postgres", got)
	}
	must(t, b.Kill())
	if _, err := through.Do("select 1"); err == nil {
		t.Error("a pgbouncer that was killed answers")
	}
}

// Databases of the shared server are apart.
func TestDatabase(t *testing.T) {
	for range 2 {
		url := shared.Database(t)
		if _, err := shared.system.run(shared.Dir, "psql", "-XAtq", "-d", url, "-c", "create table same (n int)"); err != nil {
			t.Error(err)
		}
	}
}

// A folder that has the server's programs alone gets a replica too: its clients are the system's.
func TestServersAlone(t *testing.T) {
	sys, err := findSystem()
	must(t, err)
	alone := Folder(t)
	for _, program := range []string{"initdb", "postgres"} {
		must(t, os.Symlink(filepath.Join(sys.bin, program), filepath.Join(alone, program)))
	}
	must(t, os.Chmod(alone, 0o755))
	t.Setenv(binVariable, alone)
	primary := Start(t)
	do(t, primary, "create table t (n int)", "insert into t values (1)")
	replica := StartReplica(t, primary)
	do(t, primary, "insert into t values (2)")
	for do(t, replica, "select sum(n) from t") != "3" {
	}
	must(t, replica.Promote())
	do(t, replica, "insert into t values (4)")
	if got := do(t, replica, "select sum(n) from t"); got != "7" {
		t.Errorf("on the replica: %q", got)
	}
}

// When the server's programs are missing, the error names the variable that named their folder.
// When a server does not start, the error has the server's own words.
func TestMissing(t *testing.T) {
	t.Run("programs", func(t *testing.T) {
		t.Setenv(binVariable, t.TempDir())
		if _, err := findSystem(); err == nil || !strings.Contains(err.Error(), binVariable) {
			t.Errorf("error %v, want one that names %s", err, binVariable)
		}
	})
	if _, err := launch(Folder(t), []string{"shared_buffers=none"}); err == nil || !strings.Contains(err.Error(), "shared_buffers") {
		t.Errorf("error %v, want one with the server's own words", err)
	}
}
