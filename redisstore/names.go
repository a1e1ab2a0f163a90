package redisstore

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/punctualmq/punctual/redisstore/internal/keys"
	"github.com/punctualmq/punctual/redisstore/internal/route"
	"github.com/punctualmq/punctual/redisstore/internal/wait"
	"github.com/punctualmq/punctual/storekit"
	"github.com/redis/go-redis/v9"
)

// TopicNames returns the names of topics; see storekit.TopicNamer. It reads one field of each of
// these topics. A topic whose node does not answer counts as there.
func (s *Store) TopicNames(ctx context.Context, q storekit.NameQuery) ([]string, error) {
	return call(ctx, s, "topic names", "", nil, func() ([]string, error) {
		all, err := s.topics.All(ctx)
		if err != nil {
			return nil, err
		}
		selected := func(name string) bool { return strings.HasPrefix(name, q.Prefix) && strings.HasSuffix(name, q.Suffix) }
		names := slices.DeleteFunc(all, func(name string) bool { return !selected(name) })
		gone := s.absent(ctx, names)
		return append([]string{}, slices.DeleteFunc(names, func(name string) bool { return gone[name] })...), nil
	})
}

// namesAtOnce is for how many topics one pipeline asks whether they are there.
const namesAtOnce = 256

// absent returns which of the topics are certainly not there. The set of all names may have some,
// because a name is entered before its topic comes into being and removed after it.
func (s *Store) absent(ctx context.Context, names []string) map[string]bool {
	var mu sync.Mutex
	gone, returned := make(map[string]bool), false // guarded by mu
	byNode := make(map[string][]string)
	for _, name := range names {
		node := s.route.Node(wait.Part{Topic: name})
		byNode[node] = append(byNode[node], name)
	}
	var works []route.Work
	for node, of := range byNode {
		for some := range slices.Chunk(of, namesAtOnce) {
			works = append(works, route.Work{Node: node, Run: func(late func()) {
				part := wait.Part{Topic: some[0]}
				if !s.route.Nodes.Await(ctx, node, late) {
					return
				}
				asked := s.route.Nodes.Begin(node, part, late)
				found, err := s.lookUp(ctx, some)
				asked.End(err == nil)
				mu.Lock()
				defer mu.Unlock()
				for i, name := range some {
					if err == nil && !returned && !found[i] {
						gone[name] = true
					}
				}
			}})
		}
	}
	if len(works) > 0 {
		s.route.FanOut(works)
	}
	mu.Lock()
	defer mu.Unlock()
	returned = true
	return gone
}

// lookUp reports which topics, all at one node, are there.
func (s *Store) lookUp(ctx context.Context, names []string) ([]bool, error) {
	node, err := s.route.NodeOf(ctx, s.names.Partition(names[0], 0).Tag)
	if err != nil {
		return nil, err
	}
	pipe := node.Pipeline()
	reads := make([]*redis.SliceCmd, len(names))
	for i, name := range names {
		reads[i] = pipe.HMGet(ctx, s.names.Partition(name, 0).Keys()[keys.Settings], "lease")
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	found := make([]bool, len(names))
	for i, read := range reads {
		found[i] = read.Val()[0] != nil
	}
	return found, nil
}

// newCompanions is the name that package notify has for the channel on which processes tell of new
// companions. It is no partition.
var newCompanions = wait.Part{Topic: "@"}

// NewCompanions returns the names of new companions; see storekit.TopicNamer. A mark has a time of
// the store's clock, in ms.
func (s *Store) NewCompanions(ctx context.Context, mark string, wait time.Duration) (storekit.Companions, error) {
	return call(ctx, s, "new companions", "", nil, func() (storekit.Companions, error) {
		s.waits.listener.Subscribe(s.names.Companions(), newCompanions)
		s.waits.listener.Start()
		a := s.waits.arrivals.Await(ctx, mark, wait)
		names, now, err := s.topics.Since(ctx, a.Since)
		if err != nil {
			return storekit.Companions{}, err
		}
		c := storekit.Companions{Names: []string{}, Mark: a.Mark(now)}
		for _, name := range names {
			if _, companion := storekit.Companion(name); companion != "" && !a.First {
				c.Names = append(c.Names, name)
			}
		}
		return c, nil
	})
}

// tellOfCompanions tells this process and others that there are new companions, or that the groups
// of a topic were set.
func (s *Store) tellOfCompanions() {
	s.waits.arrivals.Tell()
	ctx, end := context.WithTimeout(context.Background(), time.Second)
	defer end()
	if err := s.client.Publish(ctx, s.names.Companions(), s.sender+" 0").Err(); err != nil {
		s.opt.Logger.Debug("other processes were not notified of a new companion; they find it within a second", "error", err)
	}
}
