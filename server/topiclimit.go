package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// topicLimit bounds the topics that clients make, because each topic makes calls for all topics slower and clients can invent any number of
// names. The first most names pass without a call of the store. For each further name the store is asked whether the topic exists.
type topicLimit struct {
	most      int
	inspector punctual.Inspector // nil means that there is no limit

	mu      sync.Mutex
	known   map[string]struct{} // guarded by mu: names that passed, at most most of them
	counted time.Time           // guarded by mu: when the topics of the store were counted last, and how long that took
	took    time.Duration       // guarded by mu
}

// recountAfter is the least time between two counts of the store's topics.
const recountAfter = 10 * time.Second

// pass returns an ErrOverloaded for a topic that does not exist if there are already as many topics as allowed.
func (l *topicLimit) pass(ctx context.Context, topic string) error {
	if l.inspector == nil || l.note(topic) {
		return nil
	}
	switch _, err := l.inspector.Stats(ctx, topic); {
	case err == nil:
		return nil
	case !errors.Is(err, punctual.ErrNotFound):
		return fmt.Errorf("whether topic %q exists: %w", topic, err)
	}
	if err := l.recount(ctx); err != nil {
		return err
	}
	if l.note(topic) {
		return nil
	}
	return fmt.Errorf("topic %q would be one more than the %d that this server lets clients make: delete topics, or start the server with a larger limit: %w",
		topic, l.most, punctual.ErrOverloaded)
}

// note notes a name if there is room, and reports whether the name is noted.
func (l *topicLimit) note(topic string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.known[topic]; ok {
		return true
	}
	if len(l.known) >= l.most {
		return false
	}
	if l.known == nil {
		l.known = make(map[string]struct{})
	}
	l.known[topic] = struct{}{}
	return true
}

// recount replaces the noted names by the topics of the store, so that deleted topics make room. It counts at most every recountAfter, and so
// seldom that counting takes at most a tenth of the time.
func (l *topicLimit) recount(ctx context.Context) error {
	l.mu.Lock()
	if time.Since(l.counted) < max(recountAfter, 10*l.took) {
		l.mu.Unlock()
		return nil
	}
	began := time.Now()
	l.counted = began // so that no other request counts at the same time
	l.mu.Unlock()
	all, err := l.inspector.Topics(ctx)
	if err != nil {
		return fmt.Errorf("count the topics: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took = time.Since(began)
	clear(l.known)
	for _, t := range all[:min(len(all), l.most)] {
		l.known[t.Topic] = struct{}{}
	}
	return nil
}

// mayMake returns an ErrOverloaded if the topic does not exist and would be one too many. A companion counts beside the topic that it
// belongs to, which comes into being with it.
func (c *call) mayMake(topic string) error {
	ctx, end := context.WithTimeout(c.r.Context(), c.server.limits.StoreTime)
	defer end()
	if parent, name := storekit.Companion(topic); name != "" {
		if err := c.server.topicLimit.pass(ctx, parent); err != nil {
			return err
		}
	}
	return c.server.topicLimit.pass(ctx, topic)
}
