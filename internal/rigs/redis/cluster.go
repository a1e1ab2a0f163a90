package redisrig

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// slots is the number of hash slots of a cluster.
const slots = 16384

// Cluster is a running Redis Cluster.
type Cluster struct {
	// Nodes are those that were started as primaries, and then those that were started as their
	// replicas.
	Nodes []*Server
}

// StartCluster starts a cluster for one test: so many primaries, which share the slots evenly,
// each with so many replicas. It returns when every node knows that all is well.
func StartCluster(t testing.TB, primaries, replicas int, args ...string) *Cluster {
	t.Helper()
	c := &Cluster{}
	for range primaries * (1 + replicas) {
		_, bus, err := freeAddr()
		if err != nil {
			t.Fatal(err)
		}
		c.Nodes = append(c.Nodes, Start(t, append([]string{
			"--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-node-timeout", "2000", "--cluster-config-file", "nodes.conf",
		}, args...)...))
	}
	if err := c.connect(primaries); err != nil {
		t.Fatalf("start of a cluster: %v", err)
	}
	return c
}

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() []string {
	var out []string
	for _, n := range c.Nodes {
		out = append(out, n.Addr)
	}
	return out
}

// connect makes single nodes a cluster.
func (c *Cluster) connect(primaries int) error {
	for i, n := range c.Nodes[:primaries] {
		first, last := i*slots/primaries, (i+1)*slots/primaries-1
		if _, err := n.Do("CLUSTER", "ADDSLOTSRANGE", fmt.Sprint(first), fmt.Sprint(last)); err != nil {
			return err
		}
		if _, err := n.Do("CLUSTER", "SET-CONFIG-EPOCH", fmt.Sprint(i+1)); err != nil {
			return err
		}
	}
	for _, n := range c.Nodes[1:] {
		if err := n.meet(c.Nodes[0]); err != nil {
			return err
		}
	}
	if err := c.until("all nodes know each other", func(n *Server) bool { return n.knows(len(c.Nodes)) }); err != nil {
		return err
	}
	for i, n := range c.Nodes[primaries:] {
		id, err := c.Nodes[i%primaries].Do("CLUSTER", "MYID")
		if err != nil {
			return err
		}
		if _, err := n.Do("CLUSTER", "REPLICATE", id); err != nil {
			return err
		}
	}
	return c.AwaitSound()
}

// AwaitSound waits until every node that is up finds the cluster sound, every replica follows its
// primary, and all nodes name the same primary for each slot. Nodes hear of a moved slot one after
// the other, and until then two of them may send a client back and forth.
func (c *Cluster) AwaitSound() error {
	if err := c.until("the cluster is sound", func(n *Server) bool {
		info, err := n.Do("CLUSTER", "INFO")
		if err != nil || !strings.Contains(info, "cluster_state:ok") {
			return false
		}
		role, err := n.Do("INFO", "replication")
		if strings.Contains(role, "role:master") {
			return err == nil && strings.Count(role, "\nslave") == strings.Count(role, ",state=online,")
		}
		return err == nil && strings.Contains(role, "master_link_status:up")
	}); err != nil {
		return err
	}
	return agree("who serves which slots", func() []*Server {
		return slices.DeleteFunc(slices.Clone(c.Nodes), func(n *Server) bool { return !n.alive() })
	},
		func(n *Server) string {
			var out []string
			for _, words := range n.primaries() {
				ranges := slices.DeleteFunc(words[8:], func(r string) bool { return strings.HasPrefix(r, "[") }) // a move that a node alone knows of
				out = append(out, words[0]+" "+strings.Join(ranges, " "))
			}
			slices.Sort(out)
			return strings.Join(out, "\n")
		})
}

// agree waits until all nodes have the same view of something, and one at all: an empty view is
// none.
func agree(what string, nodes func() []*Server, view func(n *Server) string) error {
	for end := time.Now().Add(startTimeout); ; time.Sleep(time.Millisecond) {
		views := make(map[string]bool)
		for _, n := range nodes() {
			views[view(n)] = true
		}
		if len(views) == 1 && !views[""] {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("waited %v in vain until the nodes agree on %s: their views are %q", startTimeout, what, slices.Collect(maps.Keys(views)))
		}
	}
}

// primaries are the lines of CLUSTER NODES of the primaries that serve slots, as one node sees
// them, in words: ID ADDR FLAGS PRIMARY PING PONG EPOCH LINK SLOTS... There are none if the node
// does not answer.
func (s *Server) primaries() (lines [][]string) {
	text, err := s.Do("CLUSTER", "NODES")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) > 8 && strings.Contains(words[2], "master") {
			lines = append(lines, words)
		}
	}
	return lines
}

// until waits for a condition on every node that has not been killed.
func (c *Cluster) until(what string, holds func(n *Server) bool) error {
	end := time.Now().Add(startTimeout)
	for _, n := range c.Nodes {
		for n.alive() && !holds(n) {
			if time.Now().After(end) {
				return fmt.Errorf("waited %v in vain at %s until %s", startTimeout, n.Addr, what)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	return nil
}

func (s *Server) alive() bool {
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

// meet introduces a node to another one.
func (s *Server) meet(o *Server) error {
	host, port, err := net.SplitHostPort(o.Addr)
	if err != nil {
		return err
	}
	_, err = s.Do("CLUSTER", "MEET", host, port, o.busPort())
	return err
}

// busPort is the port of the cluster's own protocol.
func (s *Server) busPort() string {
	for i, a := range s.args {
		if a == "--cluster-port" {
			return s.args[i+1]
		}
	}
	return ""
}

// knows reports whether a node knows exactly n nodes, itself included, and is connected with all of
// them.
func (s *Server) knows(n int) bool {
	text, err := s.Do("CLUSTER", "NODES")
	return err == nil && strings.Count(text, "\n") == n && !strings.Contains(text, "handshake") && !strings.Contains(text, "disconnected")
}

// Move moves the slot of a key, with all that is in it, to another primary, while both serve. When
// Move has moved it without an error, all primaries that are up and serve slots name the new one
// and know its epoch. Otherwise the next move might take the slot back with an epoch that is not
// above this one's, because its node has not heard of it; a late message then undoes that move at
// one node alone, and the slot has two primaries that name each other.
func (c *Cluster) Move(key string, to *Server) error {
	slot, err := to.Do("CLUSTER", "KEYSLOT", key)
	if err != nil {
		return err
	}
	target, err := to.Do("CLUSTER", "MYID")
	if err != nil {
		return err
	}
	from, source, err := c.ownerOf(key)
	if err != nil || from == to {
		return err
	}
	if _, err := to.Do("CLUSTER", "SETSLOT", slot, "IMPORTING", source); err != nil {
		return err
	}
	if _, err := from.Do("CLUSTER", "SETSLOT", slot, "MIGRATING", target); err != nil {
		return err
	}
	if err := from.migrate(slot, to); err != nil {
		return err
	}
	for _, n := range []*Server{to, from} {
		if _, err := n.Do("CLUSTER", "SETSLOT", slot, "NODE", target); err != nil {
			return err
		}
	}
	number, err := strconv.Atoi(slot)
	if err != nil {
		return err
	}
	primaries := func() []*Server { return slices.Collect(maps.Keys(c.Primaries())) }
	return agree("the primary of slot "+slot+" and its epoch", primaries, func(n *Server) string {
		for _, words := range n.primaries() {
			if words[0] == target && slices.ContainsFunc(words[8:], func(r string) bool { return inRange(r, number) }) {
				return words[6]
			}
		}
		return ""
	})
}

// ownerOf returns the primary that serves a key, and its ID. It asks who serves the slot and does
// not ask the nodes for the key, because while a slot is moved each of its two nodes may answer
// that the other one has the key.
func (c *Cluster) ownerOf(key string) (*Server, string, error) {
	slot, err := c.Slot(key)
	if err != nil {
		return nil, "", err
	}
	for n, serves := range c.Primaries() {
		if serves(slot) {
			id, err := n.Do("CLUSTER", "MYID")
			return n, id, err
		}
	}
	return nil, "", fmt.Errorf("no primary serves %s", key)
}

// Owner returns the primary that serves a key.
func (c *Cluster) Owner(t testing.TB, key string) *Server {
	t.Helper()
	n, _, err := c.ownerOf(key)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Primaries returns the nodes that answer and serve slots, each with a function that tells whether
// it serves a slot.
func (c *Cluster) Primaries() map[*Server]func(slot int) bool {
	out := make(map[*Server]func(int) bool)
	for _, n := range c.Nodes {
		for _, words := range n.primaries() {
			if strings.Contains(words[2], "myself") {
				out[n] = func(slot int) bool {
					return slices.ContainsFunc(words[8:], func(r string) bool { return inRange(r, slot) })
				}
			}
		}
	}
	return out
}

// inRange tells whether a slot is in what CLUSTER NODES names: one slot, or the first and the last.
// A slot that is being moved stands a second time, in brackets, which inRange does not count.
func inRange(text string, slot int) bool {
	first, last, isRange := strings.Cut(text, "-")
	from, err := strconv.Atoi(first)
	if err != nil {
		return false
	}
	to := from
	if isRange {
		if to, err = strconv.Atoi(last); err != nil {
			return false
		}
	}
	return from <= slot && slot <= to
}

// Slot returns the hash slot of a key.
func (c *Cluster) Slot(key string) (slot int, err error) {
	for _, n := range c.Nodes {
		text := ""
		if text, err = n.Do("CLUSTER", "KEYSLOT", key); err == nil {
			return strconv.Atoi(text)
		}
	}
	return 0, err
}

// migrate moves all keys of a slot, one after the other.
func (s *Server) migrate(slot string, to *Server) error {
	host, port, err := net.SplitHostPort(to.Addr)
	if err != nil {
		return err
	}
	for {
		key, err := s.Do("CLUSTER", "GETKEYSINSLOT", slot, "1")
		if err != nil || key == "" {
			return err
		}
		if _, err := s.Do("MIGRATE", host, port, key, "0", "10000"); err != nil {
			return err
		}
	}
}
