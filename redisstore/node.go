package redisstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore/internal/wait"
	"github.com/redis/go-redis/v9"
)

// nodeSlack is what a node may take beside wait.LateAfter: with class replicated its answer waits for others.
func (s *Store) nodeSlack() time.Duration {
	if s.opt.Durability != punctual.Replicated {
		return s.opt.slack
	}
	return s.opt.slack + s.replicaTimeout()
}

// probes lets wait.Nodes reach the nodes of a cluster.
type probes struct{ s *Store }

// Node names the node of a cluster that serves a partition; empty is a server that is the only one, or a
// node that is not known.
func (r probes) Node(p wait.Part) string {
	if _, ok := r.s.client.(*redis.ClusterClient); !ok {
		return ""
	}
	c, err := r.s.nodeOf(context.Background(), r.s.names.Partition(p.Topic, p.Number).Tag)
	if err != nil {
		return ""
	}
	return addrOf(c)
}

// Probe reads one head. An error that the node itself has answered is an answer.
func (r probes) Probe(p wait.Part) error {
	key := r.s.names.Partition(p.Topic, p.Number).Keys()[0]
	ctx := context.Background()
	c, err := r.s.nodeOf(ctx, key)
	if err != nil {
		return err
	}
	var reply redis.Error
	if err := c.ZRange(ctx, key, 0, 0).Err(); err != nil && !errors.As(err, &reply) {
		return err
	}
	return nil
}

// Reload implements wait.Prober.
func (r probes) Reload() {
	if cluster, ok := r.s.client.(*redis.ClusterClient); ok {
		cluster.ReloadState(context.Background())
	}
}

// work is a part of a call that one node does.
type work struct {
	node string
	// run does it; it calls late when the node has not answered for too long.
	run func(late func())
}

// lanesAtOnce is how much work of one call a node does at a time.
const lanesAtOnce = 16

// fanOut has all work done, that of several nodes side by side. With several it returns when what is left to do is
// that of nodes which are late.
func (s *Store) fanOut(all []work) {
	if len(all) == 1 {
		all[0].run(func() {})
		return
	}
	nodes := make(map[string][]work)
	for _, w := range all {
		nodes[w.node] = append(nodes[w.node], w)
	}
	var ends []<-chan struct{}
	for _, ws := range nodes {
		end := make(chan struct{})
		ends = append(ends, end)
		var once sync.Once
		over := func() { once.Do(func() { close(end) }) }
		late := over
		if len(nodes) == 1 {
			late = func() {}
		}
		s.calls.Go(func() { // the call is under way, so Close waits for this, too
			defer over()
			var running sync.WaitGroup
			room := make(chan struct{}, lanesAtOnce)
			for _, w := range ws {
				room <- struct{}{}
				running.Go(func() {
					w.run(late)
					<-room
				})
			}
			running.Wait()
		})
	}
	for _, end := range ends {
		<-end
	}
}

// askEach calls ask for each topic, some at once, and returns the answers and the errors. It asks the node of
// partition 0 first, so a topic whose node is late has an error.
func askEach[T any](ctx context.Context, s *Store, topics []string, ask func(topic string) (T, error)) (map[string]T, map[string]error) {
	var mu sync.Mutex
	answers, errs := make(map[string]T), make(map[string]error) // guarded by mu until this returns
	var left bool                                               // guarded by mu: this returns
	works := make([]work, len(topics))
	for i, topic := range topics {
		p := wait.Part{Topic: topic}
		node := probes{s}.Node(p)
		errs[topic] = wait.NotAnswering(node)
		works[i] = work{node, func(late func()) {
			mu.Lock()
			over := left
			mu.Unlock()
			if over || !s.nodes.Await(ctx, node, late) {
				return
			}
			call := s.nodes.Begin(node, p, late)
			got, err := ask(topic)
			call.End(err == nil)
			mu.Lock()
			defer mu.Unlock()
			if !left {
				answers[topic], errs[topic] = got, err
			}
		}}
	}
	if len(works) > 0 {
		s.fanOut(works)
	}
	mu.Lock()
	defer mu.Unlock()
	left = true
	for topic, err := range errs {
		if err == nil {
			delete(errs, topic)
		}
	}
	return answers, errs
}
