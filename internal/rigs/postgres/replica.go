package pgrig

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// StartReplica starts a hot standby of another server for one test. It returns when changes stream
// to it. It has the settings of its primary but for those given.
func StartReplica(t testing.TB, primary *Server, settings ...string) *Server {
	t.Helper()
	s, err := launchReplica(Folder(t), primary, settings)
	if err != nil {
		t.Fatal(err)
	}
	s.killAtEnd(t)
	if err := s.awaitStream(primary); err != nil {
		t.Fatal(err)
	}
	return s
}

func launchReplica(folder string, primary *Server, settings []string) (*Server, error) {
	sys := primary.system
	if err := sys.own(folder); err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(primary.Addr)
	if err != nil {
		return nil, err
	}
	name := strings.ReplaceAll(filepath.Base(folder), "-", "_")
	data := filepath.Join(folder, "data")
	from := fmt.Sprintf("host=%s port=%s user=postgres application_name=%s", host, port, name)
	if has(sys.bin, "pg_basebackup") {
		_, err = sys.run(folder, "pg_basebackup", "-D", data, "-d", from, "-X", "stream", "-c", "fast", "-R", "--no-sync")
	} else {
		err = primary.copyTo(data, from)
	}
	if err != nil {
		return nil, err
	}
	s, err := launchData(sys, data, settings)
	if err != nil {
		return nil, err
	}
	s.Name = name
	return s, nil
}

// copyTo makes the data directory of a replica by a backup in SQL, because a pg_basebackup of an
// older version refuses a newer server. The start and the stop of the backup must come over one
// connection.
func (s *Server) copyTo(data, from string) error {
	begin, end := "pg_backup_start('replica', true)", "pg_backup_stop(false)"
	number, err := s.Do("show server_version_num")
	if err != nil {
		return err
	}
	if n, err := strconv.Atoi(number); err != nil || n < 150000 {
		begin, end = "pg_start_backup('replica', true, false)", "pg_stop_backup(false, false)"
	}
	// Files come and go in a running server, so cp may miss one; the server replays what became of
	// it.
	out, err := s.Do("select "+begin+" is not null", `\! cp -Rp `+s.Dir+" "+data+` 2>/dev/null || true`, "select labelfile from "+end)
	if err != nil {
		return err
	}
	_, label, _ := strings.Cut(out, "\n")
	for name, text := range map[string]string{"backup_label": label, "standby.signal": ""} {
		if err := os.WriteFile(filepath.Join(data, name), []byte(text), 0o600); err != nil {
			return err
		}
		if err := s.system.own(filepath.Join(data, name)); err != nil {
			return err
		}
	}
	if err := os.Remove(filepath.Join(data, "postmaster.pid")); err != nil {
		return err
	}
	return addSettings(data, []string{"primary_conninfo=" + from})
}

// awaitStream waits until the primary knows that changes stream to a replica.
func (s *Server) awaitStream(primary *Server) error {
	for end := time.Now().Add(startTimeout); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		state, err := primary.Do("select state from pg_stat_replication where application_name = " + quoted(s.Name))
		if err != nil {
			return err
		}
		if state == "streaming" {
			return nil
		}
	}
	return fmt.Errorf("waited %v in vain until the server at %s follows the one at %s; its log says: %s", startTimeout, s.Addr, primary.Addr, s.Log())
}

// Promote makes a replica a primary, whatever its former primary does. It returns when it takes
// changes.
func (s *Server) Promote() error {
	done, err := s.Do(fmt.Sprintf("select pg_promote(true, %d)", int(startTimeout.Seconds())))
	if err == nil && done != "t" {
		err = fmt.Errorf("the server at %s is still a replica after %v; its log says: %s", s.Addr, startTimeout, s.Log())
	}
	return err
}
