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

// Chunks divides the items of a call into chunks: each has items of one partition, and no more than
// one script may take. Run sends the chunks. Each partition has a queue of chunks, in which the
// items keep their order; the scripts of a queue run one after the other.
//
// Nodes are asked side by side. Where several nodes are asked, Run does not wait for one that does
// not answer for a second (P14), or longer with class replicated. The items that have no answer by
// then get an error, and an answer that comes later is dropped.
//
// N is what the caller keeps with each chunk. A Chunks is for one goroutine.
type Chunks[N any] struct {
	r *Router
	// Pack makes the arguments of the script for a chunk. It is not called once Run has returned.
	Pack func(c *Chunk[N]) []any
	// Ask runs the script, and returns what takes in the answer. take is called by one chunk at a
	// time, and not at all once Run has returned.
	Ask func(ctx context.Context, c *Chunk[N], args []any) (take func() error, err error)
	// Fits, unless nil, reports whether a script with the items of c may have item i as well. The
	// limits of package script hold in any case. The first item of a chunk needs to fit neither.
	Fits func(c *Chunk[N], i int) bool

	all []*Chunk[N]
	// last is the chunk to which the latest item was added; it is the last one of its partition.
	// tails has the last chunk of each other partition, and is nil for most calls, because these
	// have one partition.
	last  *Chunk[N]
	tails map[wait.Part]*Chunk[N]

	mu       sync.RWMutex
	returned bool // guarded by mu: Run has returned
}

// Chunk is the items of one script.
type Chunk[N any] struct {
	Partition keys.Partition
	Items     []int
	// Note is what the caller keeps with the chunk.
	Note N

	bytes int
	first bool      // it is the first chunk of its partition
	next  *Chunk[N] // the next one of its partition
	node  string

	begun bool  // guarded by Chunks.mu until Run returns: the chunk may have been sent; see Chunks.begin
	ended bool  // guarded by Chunks.mu until Run returns: Err is final
	Err   error // guarded by Chunks.mu until Run returns: why there is no answer
}

// NewChunks returns a call without items, which r sends.
func NewChunks[N any](r *Router) *Chunks[N] { return &Chunks[N]{r: r} }

// Empty reports whether nothing was added.
func (g *Chunks[N]) Empty() bool { return len(g.all) == 0 }

// All returns the chunks, in the order in which their first items were added.
func (g *Chunks[N]) All() []*Chunk[N] { return g.all }

// Add adds item i to the queue of a partition, and returns its chunk. bytes counts against the
// limit of a script.
func (g *Chunks[N]) Add(to wait.Part, i, bytes int) *Chunk[N] {
	c := g.last
	if c != nil && c.part() != to {
		if g.tails == nil {
			g.tails = make(map[wait.Part]*Chunk[N])
		}
		g.tails[c.part()] = c
		c = g.tails[to]
	}
	if c == nil || len(c.Items) == script.Items || c.bytes+bytes > script.Bytes || g.Fits != nil && !g.Fits(c, i) {
		n := &Chunk[N]{Partition: g.r.o.Names.Partition(to.Topic, to.Number), first: c == nil}
		if c != nil {
			c.next = n
		}
		c = n
		g.all = append(g.all, c)
	}
	g.last = c
	c.Items = append(c.Items, i)
	c.bytes += bytes
	return c
}

// Run sends the chunks of all partitions. After a chunk that failed no other chunk of its partition
// is sent. When Run returns, each chunk without an answer has its error.
func (g *Chunks[N]) Run(ctx context.Context) {
	var queues []Work
	for _, c := range g.all {
		if !c.first {
			continue
		}
		node := g.r.Node(c.part())
		for of := c; of != nil; of = of.next {
			of.node = node
		}
		queues = append(queues, Work{node, func(late func()) { g.runQueue(ctx, c, late) }})
	}
	g.r.FanOut(queues)
	g.leave()
}

// runQueue sends the chunks of a partition, beginning with c. Those after one that failed get a
// definite error, because they are not sent.
func (g *Chunks[N]) runQueue(ctx context.Context, c *Chunk[N], late func()) {
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
			failed = UnsentBehind(err)
		}
	}
}

// begin packs a chunk. It reports false, and packs nothing, if Run has returned, because the items
// are the caller's again then.
func (g *Chunks[N]) begin(c *Chunk[N]) ([]any, bool) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.returned {
		return nil, false
	}
	c.begun = true // under RLock, because while returned is false only the goroutine of the queue reads or writes it
	return g.Pack(c), true
}

// end takes in what became of a chunk, unless Run has returned, and returns the error of the chunk.
func (g *Chunks[N]) end(c *Chunk[N], take func() error, err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.returned {
		return err
	}
	if err == nil {
		err = take()
	}
	c.ended, c.Err = true, err
	return err
}

// leave gives each chunk that has no answer yet an error, because Run does not wait for its node
// any more.
func (g *Chunks[N]) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.returned = true
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

// UnsentBehind is Unsent for an item that was not sent because something before it in the call
// failed with err.
func UnsentBehind(err error) error { return Unsent("what stood before it got no answer", err) }

// Unsent returns the error of what was not sent because something else failed with err, which why
// says in words. The result is definite. An err that is definite itself says enough, so Unsent
// returns it as it is.
func Unsent(why string, err error) error {
	if punctual.Definite(err) {
		return err
	}
	return fmt.Errorf("not sent, because %s: %w (%v)", why, punctual.ErrUnreachable, err)
}

// Worst returns the error of a whole call in which a and b happened: the one that is not definite
// if the other is definite, and otherwise a, or b if a is nil.
func Worst(a, b error) error {
	if a == nil || b != nil && punctual.Definite(a) && !punctual.Definite(b) {
		return b
	}
	return a
}

// Outcome returns the error of the whole call if no chunk got an answer. Otherwise it returns nil,
// after it has called refuse with the error of each item that has no answer.
func (g *Chunks[N]) Outcome(refuse func(i int, err error)) error {
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

// part returns the partition as package wait names it.
func (c *Chunk[N]) part() wait.Part {
	return wait.Part{Topic: c.Partition.Topic, Number: c.Partition.Number}
}
