package redistest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Sentinel is a primary with a replica, watched by one Sentinel.
type Sentinel struct {
	// Name is that of the primary, for the Sentinel's clients.
	Name string
	// Addr is that of the Sentinel.
	Addr string
	// Nodes are the first primary and its replica.
	Nodes []*Server

	watcher *Server
}

// StartSentinel starts a primary, a replica and a Sentinel for one test, which makes the
// replica the primary when the other has not answered for half a second.
func StartSentinel(t testing.TB, args ...string) *Sentinel {
	t.Helper()
	primary := Start(t, args...)
	host, port, err := net.SplitHostPort(primary.Addr)
	if err != nil {
		t.Fatal(err)
	}
	replica := StartReplica(t, primary, args...)
	s := &Sentinel{Name: "main", Nodes: []*Server{primary, replica}}
	if s.watcher, err = launchSentinel(t.TempDir(), s.Name, host, port); err != nil {
		t.Fatal(err)
	}
	s.watcher.killAtEnd(t)
	s.Addr = s.watcher.Addr
	if err := s.awaitSound(); err != nil {
		t.Fatal(err)
	}
	return s
}

func launchSentinel(dir, name, host, port string) (*Server, error) {
	ownHost, own, err := freeAddr()
	if err != nil {
		return nil, err
	}
	conf := filepath.Join(dir, "sentinel.conf") // it writes to this file, too
	text := fmt.Sprintf("port %s\nbind %s\ndir %s\nlogfile %s\nsentinel monitor %s %s %s 1\nsentinel down-after-milliseconds %s 500\nsentinel failover-timeout %s 3000\n",
		own, ownHost, dir, filepath.Join(dir, "redis.log"), name, host, port, name, name)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return nil, err
	}
	s := &Server{Addr: net.JoinHostPort(ownHost, own), Dir: dir, program: "redis-sentinel", args: []string{conf}}
	if program := os.Getenv(serverVariable); program != "" { // every server is a Sentinel, too, if told to be one
		s.program, s.args = program, append(s.args, "--sentinel")
	}
	return s, s.Restart()
}

// awaitSound waits until the replica follows and the Sentinel knows it.
func (s *Sentinel) awaitSound() error {
	for end := time.Now().Add(startTimeout); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		role, err := s.Nodes[1].Do("INFO", "replication")
		if err != nil || !strings.Contains(role, "master_link_status:up") {
			continue
		}
		if known, err := s.watcher.Do("SENTINEL", "REPLICAS", s.Name); err == nil && known != "" && !strings.Contains(known, "s_down") {
			return nil
		}
	}
	return fmt.Errorf("waited %v in vain for a replica that the Sentinel knows", startTimeout)
}

// AwaitPrimary waits until a node is the primary.
func (s *Sentinel) AwaitPrimary(n *Server) error {
	for end := time.Now().Add(startTimeout); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if role, err := n.Do("INFO", "replication"); err == nil && strings.Contains(role, "role:master") {
			return nil
		}
	}
	return fmt.Errorf("waited %v in vain until %s was the primary", startTimeout, n.Addr)
}
