package redisrig

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

// StartSentinel starts a primary, a replica and a Sentinel for one test. The Sentinel makes the
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
	if err := s.awaitSound(replica); err != nil {
		t.Fatal(err)
	}
	return s
}

// Do sends one command to the Sentinel and returns its reply; see Server.Do.
func (s *Sentinel) Do(words ...string) (string, error) { return s.watcher.Do(words...) }

// Other is the one of the two nodes that n is not.
func (s *Sentinel) Other(n *Server) *Server {
	if n == s.Nodes[0] {
		return s.Nodes[1]
	}
	return s.Nodes[0]
}

// Rejoin starts a node that was killed as the replica of the other one, and returns when it follows
// and the Sentinel knows it.
func (s *Sentinel) Rejoin(dead *Server) error {
	host, port, err := net.SplitHostPort(s.Other(dead).Addr)
	if err != nil {
		return err
	}
	dead.args = append(dead.args, "--replicaof", host+" "+port)
	if err := dead.Restart(); err != nil {
		return err
	}
	if err := dead.awaitLink(s.Other(dead)); err != nil {
		return err
	}
	return s.awaitSound(dead)
}

func launchSentinel(dir, name, host, port string) (*Server, error) {
	ownHost, own, err := freeAddr()
	if err != nil {
		return nil, err
	}
	conf := filepath.Join(dir, "sentinel.conf") // the Sentinel writes to this file, too
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
func (s *Sentinel) awaitSound(replica *Server) error {
	for end := time.Now().Add(startTimeout); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		role, err := replica.Do("INFO", "replication")
		if err != nil || !strings.Contains(role, "master_link_status:up") {
			continue
		}
		if known, err := s.watcher.Do("SENTINEL", "REPLICAS", s.Name); err == nil && known != "" && !strings.Contains(known, "s_down") {
			return nil
		}
	}
	return fmt.Errorf("waited %v in vain for a replica that the Sentinel knows", startTimeout)
}

// AwaitPrimary waits until a node is the primary, and the Sentinel tells clients so.
func (s *Sentinel) AwaitPrimary(n *Server) error {
	_, port, err := net.SplitHostPort(n.Addr)
	if err != nil {
		return err
	}
	for end := time.Now().Add(startTimeout); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		role, err := n.Do("INFO", "replication")
		if err != nil || !strings.Contains(role, "role:master") {
			continue
		}
		if told, err := s.watcher.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.Name); err == nil && strings.HasSuffix(told, "\n"+port) {
			return nil
		}
	}
	return fmt.Errorf("waited %v in vain until %s was the primary", startTimeout, n.Addr)
}
