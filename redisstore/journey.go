package redisstore

import (
	"context"
	"sync"
)

// A journey takes the messages of a call to the partitions that may have them: in rounds, of
// which each asks one partition per message. Messages of one partition stay in their order.
type journey struct {
	s     *Store
	stops []stop
	// create makes topics that do not exist. A partition whose version of the settings is
	// another then does nothing, and its messages begin anew; without it they do so only when
	// there is a new version.
	create bool
	// homes returns the partitions to ask, in order, for the message of a stop.
	homes func(l *layout, i int) []int
	// ask runs a script for some messages in a partition: it marks what is answered as done, and
	// returns the version found there.
	ask func(ctx context.Context, l *layout, c *chunk) (int64, error)

	layouts map[string]*layout // by topic
	stuck   map[string]int     // by topic: for how many rounds pushes were refused without a new version
}

// stop is where one message of the call stands.
type stop struct {
	topic string
	bytes int   // that count against the limit of a script
	left  []int // numbers of the partitions to ask; nil: not begun
	done  bool  // answered, or was never to be asked
}

// surprise is a partition that answered with another version than it was asked by.
type surprise struct {
	p    partition
	seen int64
}

// run goes on until every message is done.
func (j *journey) run(ctx context.Context) error {
	j.layouts, j.stuck = make(map[string]*layout), make(map[string]int)
	for {
		g, err := j.plan(ctx)
		if err != nil || len(g.chunks) == 0 {
			return j.failed(err)
		}
		surprises, err := j.round(ctx, g)
		if err != nil {
			return j.failed(err)
		}
		anew := make(map[string]bool)
		for topic, x := range surprises {
			if anew[topic], err = j.renew(ctx, topic, x); err != nil {
				return j.failed(err)
			}
		}
		j.advance(anew)
	}
}

// failed is what an error means for the call: messages that were answered stay so.
func (j *journey) failed(err error) error {
	if err == nil {
		return nil
	}
	for _, st := range j.stops {
		if st.done && st.left != nil {
			return halfDone(err)
		}
	}
	return err
}

// plan sorts the messages that are not done by the partition that they ask next.
func (j *journey) plan(ctx context.Context) (*groups, error) {
	g := newGroups(j.s.names)
	for i := range j.stops {
		st := &j.stops[i]
		if st.done {
			continue
		}
		l, err := j.layout(ctx, st.topic)
		if err != nil {
			return nil, err
		}
		if st.left == nil {
			st.left = j.homes(l, i)
		}
		g.add(lane{st.topic, st.left[0], len(st.left) == 1}, i, st.bytes)
	}
	return g, nil
}

func (j *journey) layout(ctx context.Context, topic string) (*layout, error) {
	if l := j.layouts[topic]; l != nil {
		return l, nil
	}
	l, err := j.s.layout(ctx, topic)
	for err == nil && j.create && !l.exists() {
		l, err = j.s.create(ctx, topic, l)
	}
	if err == nil {
		j.layouts[topic] = l
	}
	return l, err
}

// round asks one partition per message, and returns for each topic a partition that has another
// version, if there is one.
func (j *journey) round(ctx context.Context, g *groups) (map[string]surprise, error) {
	var mu sync.Mutex
	surprises := make(map[string]surprise)
	err := g.run(func(c *chunk) error {
		l := j.layouts[c.p.topic]
		version, err := j.ask(ctx, l, c)
		if err == nil && version != l.version {
			mu.Lock()
			defer mu.Unlock()
			surprises[c.p.topic] = surprise{c.p, version}
		}
		return err
	})
	return surprises, err
}

// renew finds out what another version means, and reports whether the messages of the topic
// that are not done begin anew.
func (j *journey) renew(ctx context.Context, topic string, x surprise) (bool, error) {
	old := j.layouts[topic]
	l, err := j.s.renew(ctx, x.p, x.seen, old)
	if err != nil {
		return false, err
	}
	if l.version != old.version {
		delete(j.layouts, topic)
		return true, nil
	}
	if !j.create {
		return false, nil
	}
	return true, j.wait(ctx, x, l)
}

// wait gives somebody who is deleting the topic the time to finish. If it takes too long, that
// one is gone.
func (j *journey) wait(ctx context.Context, x surprise, l *layout) error {
	j.stuck[x.p.topic]++
	if n := j.stuck[x.p.topic]; n < tries {
		return j.s.pause(ctx, firstPause<<n)
	}
	j.stuck[x.p.topic] = 0
	delete(j.layouts, x.p.topic)
	return j.s.supersede(ctx, x.p, l)
}

// advance moves the messages on that are not done. Where the last partition has been asked,
// what it answered counts.
func (j *journey) advance(anew map[string]bool) {
	for i := range j.stops {
		st := &j.stops[i]
		switch {
		case st.done:
		case anew[st.topic]:
			st.left = nil
		case len(st.left) == 1:
			st.done = true
		default:
			st.left = st.left[1:]
		}
	}
}
