package redisstore

import "sync"

// groups sorts the items of a call by the partition that they belong to, in chunks that
// one script may take. Items of a partition keep their order.
type groups struct {
	names  names
	chunks []*chunk
	lanes  map[lane]*chunk // the last chunk of each
}

// lane is what one script after the other is run in.
type lane struct {
	topic  string
	number int // of the partition
	last   bool
}

// chunk is the items of one script.
type chunk struct {
	p     partition
	last  bool // the partition is the last one that these items ask
	items []int
	bytes int
	next  *chunk // of the same lane
	first bool   // it has none before it
}

func newGroups(n names) *groups { return &groups{names: n, lanes: make(map[lane]*chunk)} }

// add adds item i, whose size in bytes counts against the limit of a script.
func (g *groups) add(in lane, i, bytes int) {
	c := g.lanes[in]
	if c == nil || len(c.items) == scriptItems || c.bytes+bytes > scriptBytes {
		n := &chunk{p: g.names.partition(in.topic, in.number), last: in.last, first: c == nil}
		if c != nil {
			c.next = n
		}
		c = n
		g.lanes[in] = c
		g.chunks = append(g.chunks, c)
	}
	c.items = append(c.items, i)
	c.bytes += bytes
}

// lanesAtOnce is how many partitions one call talks to at a time.
const lanesAtOnce = 16

// run calls f for each chunk, at once for those of different partitions; after an error no
// more of that partition. It returns one of the errors.
func (g *groups) run(f func(c *chunk) error) error {
	if len(g.lanes) == 1 {
		return runLane(g.chunks[0], f)
	}
	var running sync.WaitGroup
	room := make(chan struct{}, lanesAtOnce)
	errs := make(chan error, len(g.chunks))
	for _, c := range g.chunks {
		if !c.first {
			continue
		}
		room <- struct{}{}
		running.Go(func() {
			errs <- runLane(c, f)
			<-room
		})
	}
	running.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func runLane(c *chunk, f func(c *chunk) error) error {
	for ; c != nil; c = c.next {
		if err := f(c); err != nil {
			return err
		}
	}
	return nil
}
