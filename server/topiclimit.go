package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
)

// topicLimit bounds the topics that clients make. A topic costs every look at all topics something, and there is no end to names. Names
// that pass are noted without asking the store. Once there are as many as may be, the store is asked for each other name.
type topicLimit struct {
	most      int
	inspector punctual.Inspector // nil: there is no limit

	mu      sync.Mutex
	known   map[string]struct{} // guarded by mu: names that passed, at most as many as may be
	counted time.Time           // guarded by mu: when the topics of the store were counted last, and how long that took
	took    time.Duration       // guarded by mu
}

// recountAfter is the least time between two counts of the store's topics.
const recountAfter = 10 * time.Second

// pass returns an ErrOverloaded for a topic that does not exist when there are as many as may be.
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

// note tells whether a name has passed before, or may pass.
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

// recount forgets names whose topics were deleted. It takes at most a tenth of the time.
func (l *topicLimit) recount(ctx context.Context) error {
	l.mu.Lock()
	if time.Since(l.counted) < max(recountAfter, 10*l.took) {
		l.mu.Unlock()
		return nil
	}
	began := time.Now()
	l.counted = began // others do not count meanwhile
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

// mayMake is the limit for a topic that a request names, which may not exist yet.
func (c *call) mayMake(topic string) error {
	ctx, end := context.WithTimeout(c.r.Context(), c.server.limits.StoreTime)
	defer end()
	return c.server.topicLimit.pass(ctx, topic)
}
