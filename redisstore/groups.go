package redisstore

// groups sorts the items of a call by the partition that they belong to, in chunks that
// one script may take. Items of a partition keep their order.
type groups struct {
	of     func(i int) partition
	chunks []*chunk
	open   map[string]*chunk // the last chunk of each partition, by tag
}

type chunk struct {
	p     partition
	items []int
	bytes int
}

func newGroups(of func(i int) partition) *groups {
	return &groups{of: of, open: make(map[string]*chunk)}
}

// add adds item i, whose size in bytes counts against the limit of a script.
func (g *groups) add(i, bytes int) {
	p := g.of(i)
	c := g.open[p.tag]
	if c == nil || len(c.items) == scriptItems || c.bytes+bytes > scriptBytes {
		c = &chunk{p: p}
		g.open[p.tag] = c
		g.chunks = append(g.chunks, c)
	}
	c.items = append(c.items, i)
	c.bytes += bytes
}

// run calls f for each chunk, and stops at the first error. Those before it took effect.
func (g *groups) run(f func(p partition, items []int) error) error {
	for n, c := range g.chunks {
		err := f(c.p, c.items)
		switch {
		case err == nil:
		case n > 0:
			return halfDone(err)
		default:
			return err
		}
	}
	return nil
}
