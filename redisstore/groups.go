package redisstore

import (
	"context"
	"fmt"
	"sync"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/redisstore/internal/wait"
)

// groups sorts the items of a call by the partition that they belong to, in chunks that
// one script may take, and takes them there. Items of a partition keep their order.
//
// Nodes are asked side by side. One that does not answer for a second is not waited for where others have
// been asked too (P14): its items have an error of their own. What it does later is nobody's.
type groups struct {
	s *Store
	// pack makes the arguments of the script for a chunk. It is not called once run has returned.
	pack func(c *chunk) []any
	// ask runs the script. What it returns takes in the answer; that is called unless run has returned.
	ask func(ctx context.Context, c *chunk, args []any) (take func() error, err error)

	chunks []*chunk
	// last is the chunk that was added to last, of lane. lanes has that of each other lane; most calls have one.
	last  *chunk
	lane  lane
	lanes map[lane]*chunk

	mu   sync.RWMutex
	left bool // guarded by mu: run has returned
}

// lane is what one script after the other is run in.
type lane struct {
	topic  string
	number int // of the partition
}

// chunk is the items of one script.
type chunk struct {
	p     keys.Partition
	items []int
	bytes int
	next  *chunk // of the same lane
	first bool   // it has none before it
	node  string
	// layout is that of the topic, where the script is told of it.
	layout *layout

	begun bool  // guarded by groups.mu until run returns: it may have been sent
	ended bool  // guarded by groups.mu until run returns: err is final
	err   error // guarded by groups.mu until run returns: why there is no answer
}

// add adds item i, whose size in bytes counts against the limit of a script.
func (g *groups) add(in lane, i, bytes int) *chunk {
	c := g.last
	if c != nil && g.lane != in {
		if g.lanes == nil {
			g.lanes = make(map[lane]*chunk)
		}
		g.lanes[g.lane] = c
		c = g.lanes[in]
	}
	if c == nil || len(c.items) == script.Items || c.bytes+bytes > script.Bytes {
		n := &chunk{p: g.s.names.Partition(in.topic, in.number), first: c == nil}
		if c != nil {
			c.next = n
		}
		c = n
		g.chunks = append(g.chunks, c)
	}
	g.lane, g.last = in, c
	c.items = append(c.items, i)
	c.bytes += bytes
	return c
}

// run asks for each chunk; after an error for no more of that partition. Each chunk has its error then.
func (g *groups) run(ctx context.Context) {
	var lanes []work
	for _, c := range g.chunks {
		if !c.first {
			continue
		}
		node := probes{g.s}.Node(partOf(c.p))
		for of := c; of != nil; of = of.next {
			of.node = node
		}
		lanes = append(lanes, work{node, func(late func()) { g.runLane(ctx, c, late) }})
	}
	g.s.fanOut(lanes)
	g.leave()
}

// runLane sends one chunk after the other. What stands behind one that failed is not sent.
func (g *groups) runLane(ctx context.Context, c *chunk, late func()) {
	var failed error
	for ; c != nil; c = c.next {
		if failed == nil && !g.s.nodes.Await(ctx, c.node, late) {
			failed = wait.NotAnswering(c.node)
		}
		if failed != nil {
			g.end(c, nil, failed)
			continue
		}
		args, ok := g.begin(c)
		if !ok {
			return
		}
		call := g.s.nodes.Begin(c.node, partOf(c.p), late)
		take, err := g.ask(ctx, c, args)
		call.End(err == nil)
		if err = g.end(c, take, err); err != nil {
			failed = notSent(err)
		}
	}
}

// begin packs a chunk, unless run has returned: then the items are the caller's again.
func (g *groups) begin(c *chunk) ([]any, bool) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.left {
		return nil, false
	}
	c.begun = true // only the goroutine of the lane writes it while left is false
	return g.pack(c), true
}

// end notes what became of a chunk, unless run has returned.
func (g *groups) end(c *chunk, take func() error, err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.left {
		return err
	}
	if err == nil {
		err = take()
	}
	c.ended, c.err = true, err
	return err
}

// leave ends the waiting for nodes that are late.
func (g *groups) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left = true
	for _, c := range g.chunks {
		switch {
		case c.ended:
		case c.begun:
			c.err = fmt.Errorf("node %s has not answered in time: %w", c.node, punctual.ErrIndeterminate)
		default:
			c.err = wait.NotAnswering(c.node)
		}
		c.ended = true
	}
}

// notSent is the error of what stood behind something that failed.
func notSent(err error) error {
	if punctual.Definite(err) {
		return err
	}
	return fmt.Errorf("not sent, because what stood before it got no answer: %w (%v)", punctual.ErrUnreachable, err)
}

// worst returns the error of a call in which nothing took effect for sure: one that is not definite counts more
// than one that is.
func worst(a, b error) error {
	if a == nil || b != nil && punctual.Definite(a) && !punctual.Definite(b) {
		return b
	}
	return a
}

// outcome is the error of the whole call, when nothing of it took effect for sure. Else it gives each item that has no
// answer its error.
func (g *groups) outcome(refuse func(i int, err error)) error {
	var all error
	done := false
	for _, c := range g.chunks {
		all = worst(all, c.err)
		done = done || c.err == nil
	}
	if !done {
		return all
	}
	for _, c := range g.chunks {
		if c.err == nil {
			continue
		}
		for _, i := range c.items {
			refuse(i, c.err)
		}
	}
	return nil
}
