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

// scanner makes claims that do not wait: they ask the partitions of their topics one after the
// other.
type scanner struct {
	*leases
	topics  *topics.Registry
	nextDue func(node string, ps []wait.Part) []wait.NextDue
	begun   atomic.Uint64 // how many claims have begun, so that each begins with another partition of a topic
}

// target is a partition to ask. known is what was known of its topic when the partition was chosen;
// nil when the topic need not be looked up again.
type target struct {
	keys.Partition
	known *topics.Layout
}

// claim leases what is due now in all partitions of its topics, also in those that it learns of
// while it asks, up to the number of messages that is claimed. The error, which may stand beside
// messages, says why a partition could not be asked.
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

// targetsOf returns all partitions of some topics. Those of a topic are rotated with each call, so
// that no partition is always asked last.
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

// fewTargets is how many partitions a claim asks, at most, without having read their next due
// times.
const fewTargets = 16

// withSomethingDue returns the targets that are to be asked: all of them when they are few, and of
// many those in which something is due or whose topic is not known. The error is why one could not
// be read, if that happened.
func (s *scanner) withSomethingDue(ctx context.Context, targets []target) ([]target, error) {
	if len(targets) <= fewTargets {
		return targets, nil
	}
	due := s.nextDues(ctx, targets)
	var some []target
	var failed error
	now := s.clock.Now()
	for i := range targets {
		switch {
		case due[i] == nil:
			failed = wait.NotAnswering(s.route.Node(partOf(targets[i].Partition)))
		case due[i].Err != nil:
			failed = due[i].Err
		case due[i].At <= now || targets[i].known == topics.Unknown:
			some = append(some, targets[i])
		}
	}
	return some, failed
}

// nextDues reads the next due time of each target, on all nodes side by side and in one request for
// each wait.PartsAtOnce targets of a node. It is nil for the targets of a node that has not
// answered in time.
func (s *scanner) nextDues(ctx context.Context, targets []target) []*wait.NextDue {
	var mu sync.Mutex
	due := make([]*wait.NextDue, len(targets)) // guarded by mu until nextDues returns
	returned := false                          // guarded by mu: nextDues has returned, and due is the caller's
	var works []route.Work
	for _, p := range s.byNode(targets) {
		names := make([]wait.Part, len(p.targets))
		for i, n := range p.targets {
			names[i] = partOf(targets[n].Partition)
		}
		works = append(works, route.Work{Node: p.node, Run: func(late func()) {
			if !s.route.Nodes.Await(ctx, p.node, late) {
				return
			}
			call := s.route.Nodes.Begin(p.node, names[0], late)
			got := s.nextDue(p.node, names)
			call.End(got[0].Err == nil)
			mu.Lock()
			defer mu.Unlock()
			for i, n := range p.targets {
				if !returned {
					due[n] = &got[i]
				}
			}
		}})
	}
	s.route.FanOut(works)
	mu.Lock()
	defer mu.Unlock()
	returned = true
	return due
}

// ofNode is some targets of one node, by their places among all targets.
type ofNode struct {
	node    string
	targets []int
}

// byNode divides targets into those that one request may ask for.
func (s *scanner) byNode(targets []target) (parts []*ofNode) {
	last := make(map[string]*ofNode)
	for i := range targets {
		node := s.route.Node(partOf(targets[i].Partition))
		p := last[node]
		if p == nil || len(p.targets) == wait.PartsAtOnce {
			p = &ofNode{node: node}
			last[node] = p
			parts = append(parts, p)
		}
		p.targets = append(p.targets, i)
	}
	return parts
}

// scan is a claim that asks one partition after the other, with what it has found so far.
type scan struct {
	s  *scanner
	c  *punctual.Claim
	ds []punctual.Delivery
	cursor
}

// cursor is how far a scan has come.
type cursor struct {
	targets []target
	at      int   // targets[:at] were asked, or left out
	stale   bool  // the settings in targets[at-1] have another version than was known, so the topic is to be looked up
	seen    int64 // that version
}

// found is what a step has found, and how far it has come.
type found struct {
	ds   []punctual.Delivery
	slow bool // the answer did not come in time, or ctx has ended: the claim is over
	err  error
	// skipped is why a partition was left out.
	skipped error
	cursor
}

// step asks the next partition. If the answer of the one before has shown that its topic has
// changed, step looks the topic up instead.
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

// room is how many more messages of a topic the claim may have.
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

// further makes a step, and leaves the partition out when its node does not answer. A claim that
// has found messages waits for the step at most furtherTime, because their leases run. Messages
// that a step leases when nobody waits for it any more are given back.
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
	// A claim that has found nothing, and has no other partition left, waits for a node even if it
	// is late.
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
	l.s.calls.Go(func() { // the call is under way, so Close waits for this goroutine, too
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
		ended = nil // the answer is awaited also when ctx has ended, so that no lease is lost
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

// addPartitions looks up the topic of target i, whose settings have another version than was known,
// and inserts the partitions that it has besides those known after target i. All targets of the
// topic are marked, by known, so that a claim looks a topic up once.
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
