package route

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/punctualmq/punctual/redisstore/internal/wait"
	"github.com/redis/go-redis/v9"
)

// nodeSlack returns how much longer than wait.LateAfter a node may take to answer. With class
// replicated that is more, because the answer waits for replicas.
func (r *Router) nodeSlack() time.Duration {
	if r.o.Replicas == 0 {
		return r.o.Slack
	}
	return r.o.Slack + r.replicaTimeout()
}

// Node names the node of a cluster that serves a partition. It is empty for a server that is the
// only one, and for a node that is not known.
func (r *Router) Node(p wait.Part) string {
	return r.serverOf(context.Background(), r.o.Names.Partition(p.Topic, p.Number).Tag)
}

// serverOf names the node of a cluster that has a key, as Node does.
func (r *Router) serverOf(ctx context.Context, key string) string {
	if _, ok := r.client.(*redis.ClusterClient); !ok {
		return ""
	}
	c, err := r.NodeOf(ctx, key)
	if err != nil {
		return ""
	}
	return AddrOf(c)
}

// AddrOf returns the address of a server, or the name that Sentinel's clients have in its place. It
// is empty for a client of another type than *redis.Client.
func AddrOf(c redis.UniversalClient) string {
	if c, ok := c.(*redis.Client); ok {
		return c.Options().Addr
	}
	return ""
}

// Probe reads the ID of the first waiting message of a partition, and returns nil if the node
// answers. An error from the node itself is an answer, too.
func (r *Router) Probe(p wait.Part) error {
	key := r.o.Names.Partition(p.Topic, p.Number).Keys()[0]
	ctx := context.Background()
	c, err := r.NodeOf(ctx, key)
	if err != nil {
		return err
	}
	var reply redis.Error
	if err := c.ZRange(ctx, key, 0, 0).Err(); err != nil && !errors.As(err, &reply) {
		return err
	}
	return nil
}

// Reload implements wait.Prober. It does not wait for the answer.
func (r *Router) Reload() {
	if cluster, ok := r.client.(*redis.ClusterClient); ok {
		cluster.ReloadState(context.Background())
	}
}

// Work is a part of a call that one node does.
type Work struct {
	Node string
	// Run does the work. It calls late when the node has not answered for too long.
	Run func(late func())
}

// worksAtOnce is how many works of one call a node does at a time.
const worksAtOnce = 16

// FanOut does the works, those of several nodes side by side. With one node it returns when all
// works are done. With several it also returns when those that are left are all of nodes that are
// late.
func (r *Router) FanOut(all []Work) {
	if len(all) == 1 {
		all[0].Run(func() {})
		return
	}
	nodes := make(map[string][]Work)
	for _, w := range all {
		nodes[w.Node] = append(nodes[w.Node], w)
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
		r.work.Go(func() {
			defer over()
			var running sync.WaitGroup
			room := make(chan struct{}, worksAtOnce)
			for _, w := range ws {
				room <- struct{}{}
				running.Go(func() {
					w.Run(late)
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

// Each calls ask for each topic, some at once, and returns the answers and the errors. Such a call
// of ask counts as a work of the node that serves the topic's partition 0, so where several nodes
// are asked a topic has an error when its node is late.
func Each[T any](ctx context.Context, r *Router, topics []string, ask func(topic string) (T, error)) (map[string]T, map[string]error) {
	var mu sync.Mutex
	answers, errs := make(map[string]T), make(map[string]error) // guarded by mu until this returns
	var left bool                                               // guarded by mu: this returns
	works := make([]Work, len(topics))
	for i, topic := range topics {
		p := wait.Part{Topic: topic}
		node := r.Node(p)
		errs[topic] = wait.NotAnswering(node)
		works[i] = Work{node, func(late func()) {
			mu.Lock()
			over := left
			mu.Unlock()
			if over || !r.Nodes.Await(ctx, node, late) {
				return
			}
			call := r.Nodes.Begin(node, p, late)
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
		r.FanOut(works)
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
