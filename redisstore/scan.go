package redisstore

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/route"
	"github.com/punctualmq/punctual/redisstore/internal/topics"
	"github.com/punctualmq/punctual/redisstore/internal/wait"
)

// scanner makes claims that do not wait: they look into all partitions, one after the other.
type scanner struct {
	*leases
	topics *topics.Registry
	heads  func(node string, ps []wait.Part) []wait.NextDue
	begun  atomic.Uint64 // how many claims have begun, to begin each at another partition
}

// target is a partition to ask, with what was known of its topic when that was decided.
type target struct {
	keys.Partition
	known *topics.Layout
}

// claim leases what is due now in all partitions, and in those that it hears of on the way. It fails if it has found
// nothing and could not ask everywhere.
func (s *scanner) claim(ctx context.Context, c *punctual.Claim) ([]punctual.Delivery, error) {
	targets, failed := s.withSomethingDue(ctx, s.targetsOf(c.Topics))
	l := scan{s: s, c: c, cursor: cursor{targets: targets}}
	for l.stale || l.at < len(l.targets) && len(l.ds) < c.Max {
		f := l.further(ctx)
		l.ds = joined(l.ds, f.ds)
		if f.err != nil || f.slow {
			return s.unexpired(ctx, l.ds, f.err)
		}
		failed = cmp.Or(failed, f.skipped)
		l.cursor = f.cursor
	}
	return s.unexpired(ctx, l.ds, failed)
}

// targetsOf is all partitions of some topics, those of a topic beginning with another one
// each time.
func (s *scanner) targetsOf(topics []string) []target {
	var targets []target
	first := int(s.begun.Add(1))
	for _, topic := range topics {
		l := s.topics.Known(topic)
		for n := range l.Size() {
			targets = append(targets, target{s.names.Partition(topic, (first+n)%l.Size()), l})
		}
	}
	return targets
}

// fewTargets is how many partitions are asked without having read their heads.
const fewTargets = 16

// withSomethingDue leaves out partitions that have nothing due, or cannot be reached: then it returns why as well.
func (s *scanner) withSomethingDue(ctx context.Context, targets []target) ([]target, error) {
	if len(targets) <= fewTargets {
		return targets, nil
	}
	type part struct {
		node    string
		targets []int
	}
	var parts []*part
	last := make(map[string]*part)
	for i := range targets {
		node := s.route.Node(partOf(targets[i].Partition))
		p := last[node]
		if p == nil || len(p.targets) == wait.PartsAtOnce {
			p = &part{node: node}
			last[node] = p
			parts = append(parts, p)
		}
		p.targets = append(p.targets, i)
	}
	var mu sync.Mutex
	heads := make([]wait.NextDue, len(targets)) // guarded by mu until this returns
	asked := make([]bool, len(targets))         // guarded by mu until this returns
	left := false                               // guarded by mu: this returns
	var works []route.Work
	for _, p := range parts {
		names := make([]wait.Part, len(p.targets))
		for i, n := range p.targets {
			names[i] = partOf(targets[n].Partition)
		}
		works = append(works, route.Work{Node: p.node, Run: func(late func()) {
			if !s.route.Nodes.Await(ctx, p.node, late) {
				return
			}
			call := s.route.Nodes.Begin(p.node, names[0], late)
			got := s.heads(p.node, names)
			call.End(got[0].Err == nil)
			mu.Lock()
			defer mu.Unlock()
			for i, n := range p.targets {
				if !left {
					heads[n], asked[n] = got[i], true
				}
			}
		}})
	}
	s.route.FanOut(works)
	mu.Lock()
	defer mu.Unlock()
	left = true
	var some []target
	var failed error
	now := s.clock.Now()
	for i := range targets {
		switch {
		case !asked[i]:
			failed = wait.NotAnswering(s.route.Node(partOf(targets[i].Partition)))
		case heads[i].Err != nil:
			failed = heads[i].Err
		case heads[i].At <= now || targets[i].known == topics.Unknown:
			some = append(some, targets[i])
		}
	}
	return some, failed
}

// scan is a claim that asks one partition after the other.
type scan struct {
	s  *scanner
	c  *punctual.Claim
	ds []punctual.Delivery
	cursor
}

// cursor is where a claim has to ask.
type cursor struct {
	targets []target
	at      int  // the next of targets
	stale   bool // the last one has another version than was known: seen
	seen    int64
}

// found is what a step brings.
type found struct {
	ds   []punctual.Delivery
	slow bool // nobody waits for it any more
	err  error
	// skipped is why a partition was left out.
	skipped error
	cursor
}

// step asks the next partition, or asks for what was not known of the topic of the last one.
func (l scan) step(ctx context.Context) found {
	f := found{cursor: l.cursor}
	if l.stale {
		f.stale = false
		f.targets, f.err = l.s.addPartitions(ctx, slices.Clone(l.targets), l.at-1, l.seen)
		return f
	}
	target := l.targets[l.at]
	n := l.room(target.Topic)
	if n <= 0 {
		f.at++
		return f
	}
	f.ds, f.seen, f.err = l.s.partition(ctx, l.c, target.Partition, n)
	f.stale = f.err == nil && target.known != nil && f.seen != target.known.Version
	f.at++
	return f
}

// room is how many messages of a topic the claim may take besides those that it has.
func (l scan) room(topic string) int {
	n := l.c.Max - len(l.ds)
	if l.c.PerTopic == 0 {
		return n
	}
	left := l.c.PerTopic
	for i := range l.ds {
		if l.ds[i].Topic == topic {
			left--
		}
	}
	return min(n, left)
}

// further is a step. With messages in hand it takes at most furtherTime, because their leases run. A node that does not
// answer is left out. What is found later is given back.
func (l scan) further(ctx context.Context) found {
	at := l.at
	if l.stale {
		at--
	}
	p := partOf(l.targets[at].Partition)
	node := l.s.route.Node(p)
	if len(l.ds) == 0 && node == "" {
		return l.step(ctx)
	}
	skip := found{skipped: wait.NotAnswering(node), cursor: cursor{targets: l.targets, at: at + 1}}
	// Where this is the last chance to bring anything, a node that is slow is waited for.
	last := len(l.ds) == 0 && at == len(l.targets)-1
	if l.s.route.Nodes.Failing(node) && !(last && l.s.route.Nodes.Await(ctx, node, func() {})) {
		return skip
	}
	var over <-chan time.Time
	if len(l.ds) > 0 {
		timer, stop := l.s.clock.After(l.s.clock.Now() + furtherTime*1000)
		defer stop()
		over = timer
	}
	asking, leave := context.WithCancel(ctx)
	defer leave()
	done, late := make(chan found), make(chan struct{})
	l.s.calls.Go(func() { // the call is under way, so Close waits for this, too
		call := l.s.route.Nodes.Begin(node, p, func() {
			if !last {
				close(late)
			}
		})
		f := l.step(asking)
		call.End(f.err == nil)
		select {
		case done <- f:
		case <-asking.Done():
			l.s.giveBack(asking, f.ds)
		}
	})
	ended := ctx.Done()
	if len(l.ds) == 0 {
		ended = nil // no lease is given that nobody knows of
	}
	select {
	case f := <-done:
		return f
	case <-late:
		return skip
	case <-over:
	case <-ended:
	}
	return found{slow: true}
}

// addPartitions puts the partitions of a topic that nobody knew of behind target i, which has found
// another version than was known. It asks once per claim and topic.
func (s *scanner) addPartitions(ctx context.Context, targets []target, i int, seen int64) ([]target, error) {
	old := targets[i]
	l, err := s.topics.Renew(ctx, old.Partition, seen, old.known)
	if err != nil {
		return nil, err
	}
	for j := range targets {
		if targets[j].Topic == old.Topic {
			targets[j].known = nil
		}
	}
	var more []target
	for n := old.known.Size(); n < l.Size(); n++ {
		more = append(more, target{Partition: s.names.Partition(old.Topic, n)})
	}
	return slices.Insert(targets, i+1, more...), nil
}
