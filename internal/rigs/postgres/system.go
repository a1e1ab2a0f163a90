package pgrig

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// remedy is what to do when a program is missing.
const remedy = "apt-get install postgresql pgbouncer (or: make deps)"

// binVariable names the variable that holds the folder of another PostgreSQL's programs, to test
// that version.
const binVariable = "PUNCTUAL_POSTGRES_BIN"

// system is where the programs are, and under whose account they run.
type system struct {
	bin string
	// clients is the folder of psql where bin has none: a folder of servers alone, of whatever
	// version.
	clients string
	// account is that of an ordinary user where the test is root, whom PostgreSQL refuses; nil is
	// that of the test.
	account *syscall.Credential
	env     []string // more variables for programs
}

// findSystem looks for the programs in the folder that the variable names, in PATH and where Debian
// has them.
func findSystem() (system, error) {
	account, err := ordinaryUser()
	if err != nil {
		return system{}, err
	}
	dir := os.Getenv(binVariable)
	if dir != "" && has(dir, "initdb", "postgres", "psql") {
		return system{bin: dir, account: account}, nil
	}
	installed, err := findInstalled()
	switch {
	case err != nil:
		return system{}, err
	case dir == "":
		return system{bin: installed, account: account}, nil
	case !has(dir, "initdb", "postgres"):
		return system{}, fmt.Errorf("%s names %s, which has no initdb and postgres", binVariable, dir)
	}
	return system{bin: dir, clients: installed, account: account}, nil
}

// findInstalled is the folder of the programs that the system has, servers and clients.
func findInstalled() (string, error) {
	hasServer := func(dir string) bool { return has(dir, "initdb", "postgres", "psql") }
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil && hasServer(filepath.Dir(path)) {
			return filepath.Dir(path), nil
		}
	}
	dirs, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return "", err
	}
	dirs = slices.DeleteFunc(dirs, func(dir string) bool { return !hasServer(dir) })
	if len(dirs) == 0 {
		return "", fmt.Errorf("PostgreSQL is missing: %s", remedy)
	}
	return slices.MaxFunc(dirs, func(a, b string) int { return version(a) - version(b) }), nil
}

// Version is that of the programs that Start and Launch use, as in "15.18 (Debian
// 15.18-0+deb12u1)".
func Version() (string, error) {
	sys, err := findSystem()
	if err != nil {
		return "", err
	}
	text, err := sys.run(os.TempDir(), "postgres", "--version")
	return strings.TrimSpace(strings.TrimPrefix(text, "postgres (PostgreSQL) ")), err
}

// has reports whether a folder has some programs.
func has(dir string, programs ...string) bool {
	return !slices.ContainsFunc(programs, func(p string) bool { return !exists(filepath.Join(dir, p)) })
}

// version is the number in /usr/lib/postgresql/NUMBER/bin, or 0.
func version(dir string) int {
	n, err := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
	if err != nil {
		return 0
	}
	return n
}

// ordinaryUser is the account of an ordinary user if this is root, else nil.
func ordinaryUser() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	var errs error
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, err
	}
	return nil, fmt.Errorf("PostgreSQL does not run as root, and there is no other account: make one named postgres: %w", errs)
}

// own gives a folder or a file to the account.
func (sys system) own(dir string) error {
	if sys.account == nil {
		return nil
	}
	return os.Chown(dir, int(sys.account.Uid), int(sys.account.Gid))
}

// command returns a program of PostgreSQL or of the system, to be run in dir under the account.
func (sys system) command(dir, program string, args ...string) *exec.Cmd {
	for _, folder := range []string{sys.bin, sys.clients} {
		if folder != "" && has(folder, program) {
			program = filepath.Join(folder, program)
			break
		}
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	// A variable such as PGDATABASE would decide what the arguments leave open. LC_ALL=C stands in
	// place of the user's language, because tests read the messages.
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "PG") || strings.HasPrefix(v, "LC_") }), "LC_ALL=C")
	cmd.Env = append(cmd.Env, sys.env...)
	if sys.account != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: sys.account}
	}
	return cmd
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// run carries out a command and returns what it printed, without the last line's end.
func (sys system) run(dir, program string, args ...string) (string, error) {
	cmd := sys.command(dir, program, args...)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", program, err, strings.TrimSpace(complaint.String()))
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}

// initdb makes a data directory whose server trusts everybody on loopback.
func (sys system) initdb(dir, data string) error {
	if _, err := sys.run(dir, "initdb", "-D", data, "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"); err != nil {
		return err
	}
	access := "host all all 127.0.0.0/8 trust\nhost replication all 127.0.0.0/8 trust\n"
	return os.WriteFile(filepath.Join(data, "pg_hba.conf"), []byte(access), 0o600)
}

// children are the processes that a process has started and has not waited for.
func children(parent int) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list the processes of a server, which needs Linux: %w", err)
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue // no process
		}
		if _, of := status(pid); of == parent {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// statusFields are the fields of a process's status behind its name, nil when it is gone.
func statusFields(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	// The second field is a name in brackets, which may contain anything.
	return strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
}

// status reads a process's state and parent, which are "" and 0 when it is gone.
func status(pid int) (state string, parent int) {
	fields := statusFields(pid)
	if len(fields) < 2 {
		return "", 0
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return "", 0
	}
	return fields[0], parent
}

// processorTime is what a process has used: utime and stime, in hundredths of a second. On request
// it adds that of the children that the process has waited for: cutime and cstime. It is 0 when the
// process is gone.
func processorTime(pid int, withChildren bool) time.Duration {
	fields := statusFields(pid)
	if len(fields) < 15 {
		return 0
	}
	times := fields[11:13]
	if withChildren {
		times = fields[11:15]
	}
	var used time.Duration
	for _, text := range times {
		if n, err := strconv.Atoi(text); err == nil {
			used += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return used
}

// runs reports whether a process has not ended. A zombie, which nobody has waited for yet, has
// ended.
func runs(pid int) bool {
	state, _ := status(pid)
	return state != "" && state != "Z"
}

// stopped reports whether a process is halted by SIGSTOP.
func stopped(pid int) bool {
	state, _ := status(pid)
	return state == "T"
}
