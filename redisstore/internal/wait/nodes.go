// Package wait lets claims wait for messages and asks for these, and knows which nodes of a cluster
// do not answer. It knows nothing of scripts, records or settings.
package wait

import (
	"context"
	"sync"
	"time"
)

// LateAfter is how long a node may take to answer before it counts as failing.
const LateAfter = time.Second

// testEvery is the time between two probes of a node that fails.
const testEvery = 250 * time.Millisecond

// Part is a partition of a topic.
type Part struct {
	Topic  string
	Number int
}

// Prober reaches nodes for Nodes.
type Prober interface {
	// Node names the node that serves a partition. It does not block. The name is empty for a
	// single server, which is always asked because no other could serve, and for a node that is not
	// known.
	Node(p Part) string
	// Probe reads a little of a partition from the node that serves it, and returns nil if the node
	// answers.
	Probe(p Part) error
	// Reload asks, in the background, which node serves which partition.
	Reload()
}

// Nodes knows which nodes of a cluster do not answer, so that a call can leave out such a node
// until it answers again. All methods are safe for concurrent use.
type Nodes struct {
	prober  Prober
	late    time.Duration
	closing chan struct{}
	tests   sync.WaitGroup

	mu      sync.Mutex
	closed  bool                     // guarded by mu: no test begins any more
	failing map[string]chan struct{} // guarded by mu: by node that fails; closed when the node fails no more
}

// NewNodes returns Nodes for which a call is late when the node has not answered after LateAfter
// plus slack.
func NewNodes(p Prober, slack time.Duration) *Nodes {
	return &Nodes{prober: p, late: LateAfter + slack, closing: make(chan struct{}), failing: make(map[string]chan struct{})}
}

// Failing reports whether a node has not answered for too long.
func (n *Nodes) Failing(node string) bool { return n.Recovered(node) != nil }

// Recovered returns a channel that is closed when a failing node counts as failing no more, or nil
// for a node that does not fail.
func (n *Nodes) Recovered(node string) <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.failing[node]
}

// Await returns true once a node does not fail, or false when it fails for another LateAfter, ctx
// ends or the Nodes are closed. It calls late before it waits, so that a call which asks other
// nodes, too, goes on without this one. A call that asks this node alone waits, because otherwise
// it could only fail, and a busy machine is soon back.
func (n *Nodes) Await(ctx context.Context, node string, late func()) bool {
	recovered := n.Recovered(node)
	if recovered == nil {
		return true
	}
	late()
	timer := time.NewTimer(LateAfter)
	defer timer.Stop()
	select {
	case <-recovered:
		return true
	case <-timer.C:
	case <-ctx.Done():
	case <-n.closing:
	}
	return false
}

// Call is one call that a node has to answer.
type Call struct {
	nodes *Nodes
	node  string
	timer *time.Timer
}

// Begin is called before a node is asked, for a partition that it serves. If End is not called in
// time the node counts as failing, and late, unless nil, is called. For the empty name of a node
// Begin does nothing.
func (n *Nodes) Begin(node string, p Part, late func()) Call {
	if node == "" {
		return Call{}
	}
	return Call{n, node, time.AfterFunc(n.late, func() {
		n.fail(node, p)
		if late != nil {
			late()
		}
	})}
}

// End is called when the call has returned. answered says whether the node has answered.
func (c Call) End(answered bool) {
	if c.nodes == nil {
		return
	}
	c.timer.Stop()
	if answered {
		c.nodes.answered(c.node)
	}
}

func (n *Nodes) answered(node string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if recovered := n.failing[node]; recovered != nil {
		close(recovered)
		delete(n.failing, node)
	}
}

func (n *Nodes) fail(node string, p Part) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.failing[node] != nil || n.closed {
		return
	}
	recovered := make(chan struct{})
	n.failing[node] = recovered
	n.tests.Go(func() { n.test(node, p, recovered) })
}

// test probes a node that fails until it answers or another node serves the partition. One probe is
// under way at a time.
func (n *Nodes) test(node string, p Part, recovered <-chan struct{}) {
	tick := time.NewTicker(testEvery)
	defer tick.Stop()
	room := make(chan struct{}, 1)
	for {
		select {
		case <-tick.C:
		case <-recovered:
			return
		case <-n.closing:
			return
		}
		n.prober.Reload()
		if n.prober.Node(p) != node {
			n.answered(node)
			return
		}
		select {
		case room <- struct{}{}:
			n.tests.Go(func() {
				if n.prober.Probe(p) == nil {
					n.answered(node)
				}
				<-room
			})
		default:
		}
	}
}

// Close ends the tests and waits for them.
func (n *Nodes) Close() {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	close(n.closing)
	n.tests.Wait()
}
