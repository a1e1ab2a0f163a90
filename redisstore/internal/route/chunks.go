package route

import (
	"context"
	"fmt"
	"sync"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/script"
	"github.com/punctualmq/punctual/redisstore/internal/wait"
)

// Chunks sorts the items of a call by the partition that they belong to, in chunks that
// one script may take, and takes them there. Items of a partition keep their order.
//
// Nodes are asked side by side. One that does not answer for a second is not waited for where others have
// been asked too (P14). Its items have an error of their own. What it does later is nobody's.
type Chunks struct {
	r *Router
	// Pack makes the arguments of the script for a chunk. It is not called once Run has returned.
	Pack func(c *Chunk) []any
	// Ask runs the script. What it returns takes in the answer; that is called unless Run has returned.
	Ask func(ctx context.Context, c *Chunk, args []any) (take func() error, err error)

	all []*Chunk
	// last is the chunk that was added to last, of lane. lanes has that of each other lane; most calls have one.
	last  *Chunk
	lane  Lane
	lanes map[Lane]*Chunk

	mu   sync.RWMutex
	left bool // guarded by mu: run has returned
}

// Lane is what one script after the other is run in.
type Lane struct {
	Topic  string
	Number int // of the partition
}

// Chunk is the items of one script.
type Chunk struct {
	Partition keys.Partition
	Items     []int
	bytes     int
	next      *Chunk // of the same lane
	first     bool   // it has none before it
	node      string
	// Note is what the caller keeps of it.
	Note any

	begun bool  // guarded by Chunks.mu until run returns: it may have been sent
	ended bool  // guarded by Chunks.mu until run returns: err is final
	Err   error // guarded by Chunks.mu until run returns: why there is no answer
}

// NewChunks returns a call without items.
func (r *Router) NewChunks() *Chunks { return &Chunks{r: r} }

// Empty reports whether nothing was added.
func (g *Chunks) Empty() bool { return len(g.all) == 0 }

// All are the chunks, in the order in which they were begun.
func (g *Chunks) All() []*Chunk { return g.all }

// Add adds item i, whose size in bytes counts against the limit of a script.
func (g *Chunks) Add(in Lane, i, bytes int) *Chunk {
	c := g.last
	if c != nil && g.lane != in {
		if g.lanes == nil {
			g.lanes = make(map[Lane]*Chunk)
		}
		g.lanes[g.lane] = c
		c = g.lanes[in]
	}
	if c == nil || len(c.Items) == script.Items || c.bytes+bytes > script.Bytes {
		n := &Chunk{Partition: g.r.o.Names.Partition(in.Topic, in.Number), first: c == nil}
		if c != nil {
			c.next = n
		}
		c = n
		g.all = append(g.all, c)
	}
	g.lane, g.last = in, c
	c.Items = append(c.Items, i)
	c.bytes += bytes
	return c
}

// Run asks for each chunk; after an error for no more of that partition. Each chunk has its error then.
func (g *Chunks) Run(ctx context.Context) {
	var lanes []Work
	for _, c := range g.all {
		if !c.first {
			continue
		}
		node := g.r.Node(c.part())
		for of := c; of != nil; of = of.next {
			of.node = node
		}
		lanes = append(lanes, Work{node, func(late func()) { g.runLane(ctx, c, late) }})
	}
	g.r.FanOut(lanes)
	g.leave()
}

// runLane sends one chunk after the other. What stands behind one that failed is not sent.
func (g *Chunks) runLane(ctx context.Context, c *Chunk, late func()) {
	var failed error
	for ; c != nil; c = c.next {
		if failed == nil && !g.r.Nodes.Await(ctx, c.node, late) {
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
		call := g.r.Nodes.Begin(c.node, c.part(), late)
		take, err := g.Ask(ctx, c, args)
		call.End(err == nil)
		if err = g.end(c, take, err); err != nil {
			failed = notSent(err)
		}
	}
}

// begin packs a chunk, unless run has returned: then the items are the caller's again.
func (g *Chunks) begin(c *Chunk) ([]any, bool) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.left {
		return nil, false
	}
	c.begun = true // only the goroutine of the lane writes it while left is false
	return g.Pack(c), true
}

// end notes what became of a chunk, unless run has returned.
func (g *Chunks) end(c *Chunk, take func() error, err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.left {
		return err
	}
	if err == nil {
		err = take()
	}
	c.ended, c.Err = true, err
	return err
}

// leave ends the waiting for nodes that are late.
func (g *Chunks) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left = true
	for _, c := range g.all {
		switch {
		case c.ended:
		case c.begun:
			c.Err = fmt.Errorf("node %s has not answered in time: %w", c.node, punctual.ErrIndeterminate)
		default:
			c.Err = wait.NotAnswering(c.node)
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

// Worst returns the error of a call in which nothing took effect for sure: one that is not definite counts more
// than one that is.
func Worst(a, b error) error {
	if a == nil || b != nil && punctual.Definite(a) && !punctual.Definite(b) {
		return b
	}
	return a
}

// Outcome is the error of the whole call, when nothing of it took effect for sure. Else it gives each item that has no
// answer its error.
func (g *Chunks) Outcome(refuse func(i int, err error)) error {
	var all error
	done := false
	for _, c := range g.all {
		all = Worst(all, c.Err)
		done = done || c.Err == nil
	}
	if !done {
		return all
	}
	for _, c := range g.all {
		if c.Err == nil {
			continue
		}
		for _, i := range c.Items {
			refuse(i, c.Err)
		}
	}
	return nil
}

// part names the partition to those who wait.
func (c *Chunk) part() wait.Part {
	return wait.Part{Topic: c.Partition.Topic, Number: c.Partition.Number}
}
