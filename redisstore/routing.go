package redisstore

import (
	"context"
	"maps"
	"slices"

	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/route"
	"github.com/punctualmq/punctual/redisstore/internal/topics"
	"github.com/punctualmq/punctual/redisstore/internal/wait"
)

// A routing sends the items of a call to the partitions of their messages. It does so in rounds,
// because a partition may answer that its settings have another version than was known. The
// messages of one partition keep their order.
type routing struct {
	s     *Store
	items []item
	// create makes topics that do not exist. The script of such a call does nothing in a partition
	// whose settings have another version, and the messages go into the next round. Without create,
	// messages that are not done go into the next round only when the topic has a new version.
	create bool
	// id returns the ID of the message of an item.
	id func(i int) string
	// pack makes the arguments of the script for some messages.
	pack func(c *chunk) []any
	// ask runs a script for some messages in a partition, and returns the version found there. take
	// takes in the answer, and marks the messages as done that need no other round whatever that
	// version is.
	ask func(ctx context.Context, c *chunk, args []any) (version int64, take func() error, err error)
	// refuse gives a message its error, in a call of which other messages were answered.
	refuse func(i int, err error)
	// conditional reports whether an item has an effect only if its message exists already. Such an
	// item makes no topic; where there is no topic, absent answers it. keyed reports whether a
	// topic that an item makes has keys. divided is called for the items of a topic of several
	// partitions, may change the ID, and reports false for a message that it has refused. All four
	// are needed with create alone.
	conditional func(i int) bool
	divided     func(i int) bool
	absent      func(i int)
	keyed       func(i int) bool

	layouts  map[string]*topics.Layout // by topic
	refusals map[string]int            // by topic: in how many rounds a partition had another version, since the topic was last superseded
}

// chunk is some messages of a partition. Its note is what was known of the topic when they were
// sent there.
type chunk = route.Chunk[*topics.Layout]

// item is where one message of the call stands.
type item struct {
	topic string
	bytes int   // that count against the limit of a script
	done  bool  // answered, failed, or was never to be asked
	asked bool  // a partition has answered for it, or its topic is not there
	err   error // why it has no answer
}

// mismatch is a partition that answered with another version, seen, than this process knew.
type mismatch struct {
	p    keys.Partition
	seen int64
}

// run makes rounds until every message is done. It returns the error of the whole call if messages
// were to be asked for and none was answered.
func (j *routing) run(ctx context.Context) error {
	j.layouts = make(map[string]*topics.Layout)
	for {
		j.resolve(ctx)
		g := j.plan()
		if g.Empty() {
			return j.outcome()
		}
		j.advance(ctx, j.round(ctx, g))
	}
}

// resolve looks up the layouts of the topics whose messages are not done. With create it makes the
// topics that do not exist, unless all their messages are conditional.
func (j *routing) resolve(ctx context.Context) {
	var unknown map[string]making // by topic: what is to be done if it does not exist
	known := ""                   // the topic of the item before
	for i := range j.items {
		st := &j.items[i]
		if st.done || st.topic == known {
			continue
		}
		if known = st.topic; j.layouts[st.topic] != nil {
			continue
		}
		if l := j.s.topics.Known(st.topic); l.Exists() {
			j.layouts[st.topic] = l
			continue
		}
		if unknown == nil {
			unknown = make(map[string]making)
		}
		unknown[st.topic] = j.makes(st.topic)
	}
	if len(unknown) == 0 {
		return
	}
	found, errs := route.Each(ctx, j.s.route, slices.Collect(maps.Keys(unknown)), func(topic string) (*topics.Layout, error) {
		l, err := j.s.topics.Get(ctx, topic)
		for err == nil && unknown[topic].make && !l.Exists() {
			l, err = j.s.topics.Create(ctx, topic, l, unknown[topic].keyed)
		}
		return l, err
	})
	maps.Copy(j.layouts, found)
	j.fail(errs)
	for topic, l := range found {
		if j.create && errs[topic] == nil && !l.Exists() {
			j.answerAbsent(topic)
		}
	}
}

// making says what becomes of a topic that does not exist: whether it is made, and with keys.
type making struct{ make, keyed bool }

// makes returns what a topic's items that are not done do if it does not exist. The first of them
// that makes it decides whether it has keys.
func (j *routing) makes(topic string) making {
	for i := range j.items {
		if st := &j.items[i]; j.create && st.topic == topic && !st.done && !j.conditional(i) {
			return making{true, j.keyed(i)}
		}
	}
	return making{}
}

// answerAbsent answers the items of a topic that is not there and that none of them makes.
func (j *routing) answerAbsent(topic string) {
	for i := range j.items {
		if st := &j.items[i]; st.topic == topic && !st.done {
			st.done, st.asked = true, true
			j.absent(i)
		}
	}
}

// fail ends the messages that are not done of topics that have an error.
func (j *routing) fail(topics map[string]error) {
	for i := range j.items {
		st := &j.items[i]
		if err := topics[st.topic]; err != nil && !st.done {
			st.done, st.err = true, err
		}
	}
}

// outcome returns the error of the whole call if no message was answered, or nil if none was to be
// asked for. Otherwise each message without an answer is refused with an error of its own.
func (j *routing) outcome() error {
	var all error
	done := false
	for i := range j.items {
		all = route.Worst(all, j.items[i].err)
		done = done || j.items[i].asked && j.items[i].err == nil
	}
	if !done {
		return all
	}
	for i := range j.items {
		if err := j.items[i].err; err != nil {
			j.refuse(i, err)
		}
	}
	return nil
}

// plan sorts the messages that are not done by their partition.
func (j *routing) plan() *route.Chunks[*topics.Layout] {
	g := route.NewChunks[*topics.Layout](j.s.route)
	var l *topics.Layout
	topic := ""
	for i := range j.items {
		if st := &j.items[i]; !st.done {
			if l == nil || st.topic != topic {
				l, topic = j.layouts[st.topic], st.topic
			}
			if j.create && l.Size() > 1 && !j.divided(i) {
				st.done = true
				continue
			}
			g.Add(wait.Part{Topic: topic, Number: keys.Home(j.id(i), l.Size())}, i, st.bytes).Note = l
		}
	}
	return g
}

// round sends the messages to their partitions, and returns for each topic one partition whose
// settings have another version, if there is one.
func (j *routing) round(ctx context.Context, g *route.Chunks[*topics.Layout]) map[string]mismatch {
	var mismatches map[string]mismatch
	g.Pack = j.pack
	g.Ask = func(ctx context.Context, c *chunk, args []any) (func() error, error) {
		version, take, err := j.ask(ctx, c, args)
		if err != nil {
			return nil, err
		}
		return func() error { // with the lock of g
			if version != c.Note.Version {
				if mismatches == nil {
					mismatches = make(map[string]mismatch)
				}
				mismatches[c.Partition.Topic] = mismatch{c.Partition, version}
			}
			return take()
		}, nil
	}
	g.Run(ctx)
	for _, c := range g.All() {
		for _, i := range c.Items {
			st := &j.items[i]
			st.asked = st.asked || c.Err == nil
			if c.Err != nil {
				st.done, st.err = true, c.Err
			}
		}
	}
	return mismatches
}

// advance ends the messages that do not go into another round: their answers count.
func (j *routing) advance(ctx context.Context, mismatches map[string]mismatch) {
	if len(mismatches) == 0 {
		for i := range j.items {
			j.items[i].done = true
		}
		return
	}
	if j.refusals == nil {
		j.refusals = make(map[string]int)
	}
	for topic := range mismatches {
		j.refusals[topic]++
	}
	layouts, refusals := maps.Clone(j.layouts), maps.Clone(j.refusals) // for a lookup that Each does not wait for
	renewed, errs := route.Each(ctx, j.s.route, slices.Collect(maps.Keys(mismatches)), func(topic string) (renewal, error) {
		return j.s.renew(ctx, mismatches[topic], layouts[topic], j.create, refusals[topic])
	})
	j.fail(errs)
	for topic, r := range renewed {
		if r.superseded {
			j.refusals[topic] = 0
		}
		if r.changed {
			delete(j.layouts, topic)
		}
	}
	for i := range j.items {
		st := &j.items[i]
		st.done = st.done || !renewed[st.topic].anew
	}
}

// renewal is what another version means for the messages of a topic that are not done.
type renewal struct {
	anew       bool // they are sent again
	changed    bool // the topic has another layout, by which they are sent
	superseded bool // that layout was made for them, because a partition did not take the one before
}

// renew finds out what another version means. When the topic as a whole has no new version,
// somebody may be deleting it: the messages of a call that makes topics wait a little for the
// deletion to end. After route.Tries rounds the process that deleted the topic counts as gone, and
// the topic is used again. create says that the call makes topics, and refusals how many rounds
// there were.
func (s *Store) renew(ctx context.Context, x mismatch, old *topics.Layout, create bool, refusals int) (renewal, error) {
	l, err := s.topics.Renew(ctx, x.p, x.seen, old)
	switch {
	case err != nil:
		return renewal{}, err
	case l.Version != old.Version:
		return renewal{anew: true, changed: true}, nil
	case !create:
		return renewal{}, nil
	case refusals < route.Tries:
		return renewal{anew: true}, s.route.Pause(ctx, route.FirstPause<<refusals)
	}
	return renewal{anew: true, changed: true, superseded: true}, s.topics.Supersede(ctx, x.p, l)
}
