package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// topicLimit bounds the topics that clients make, because calls that read all topics take longer
// the more there are, and clients can invent any number of names. It notes at most most names:
// first those of the topics that the store has already, then those that pass while there is room. A
// name that is noted, or can be noted because there is room, passes without a call of the store.
// For any other name the store is asked whether the topic exists.
type topicLimit struct {
	most      int
	inspector punctual.Inspector // nil means that there is no limit
	namer     storekit.TopicNamer
	log       *slog.Logger

	begun     atomic.Bool // begin has noted the store's topics
	beginning sync.Mutex  // held while begin asks the store for them
	tried     time.Time   // guarded by beginning: when begin last asked

	mu      sync.Mutex
	known   map[string]struct{} // guarded by mu: at most most names, of topics that the last count found and that passed since
	counted time.Time           // guarded by mu: when the last recount began
	took    time.Duration       // guarded by mu: how long it took
}

const (
	// recountAfter is the least time between two recounts of the store's topics, and between two
	// tries of begin.
	recountAfter = 10 * time.Second
	// namingTime bounds how long begin waits for the store, because all requests that push wait
	// with it.
	namingTime = time.Second
)

// pass returns an ErrOverloaded for a topic that does not exist if topicLimit has noted as many
// names as allowed, and a count of the store's topics, when one may be made, has made no room. It
// returns the error of the store if that cannot say whether the topic exists, or cannot name its
// topics for a recount.
func (l *topicLimit) pass(ctx context.Context, topic string) error {
	if l.inspector == nil {
		return nil
	}
	l.begin(ctx)
	if l.note(topic) {
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

// begin notes the topics that the store has, before the first name passes. So a client that makes
// up names gets no further room by a restart of the server. If the store does not name its topics
// within namingTime, names pass as if it had none, and begin tries again after recountAfter.
func (l *topicLimit) begin(ctx context.Context) {
	if l.begun.Load() {
		return
	}
	l.beginning.Lock()
	defer l.beginning.Unlock()
	if l.begun.Load() || !l.tried.IsZero() && time.Since(l.tried) < recountAfter {
		return
	}
	l.tried = time.Now()
	ctx, end := context.WithTimeout(context.WithoutCancel(ctx), namingTime) // also when the client goes, so that it cannot prevent the count
	defer end()
	names, err := l.names(ctx)
	if err != nil {
		l.log.Warn("the store does not name its topics, so they do not count against the limit yet", "error", err)
		return
	}
	for _, name := range names {
		if !l.note(name) {
			break
		}
	}
	l.begun.Store(true)
}

// names returns the names of the store's topics, if possible without counting their messages.
func (l *topicLimit) names(ctx context.Context) ([]string, error) {
	if l.namer != nil {
		names, err := l.namer.TopicNames(ctx, storekit.NameQuery{})
		if !errors.Is(err, punctual.ErrUnsupported) {
			return names, err
		}
	}
	all, err := l.inspector.Topics(ctx)
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Topic
	}
	return names, err
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

// recount replaces the noted names by the topics of the store, so that deleted topics make room. It
// counts at most every recountAfter, and so seldom that counting takes about a tenth of the time at
// most. Otherwise it does nothing.
func (l *topicLimit) recount(ctx context.Context) error {
	l.mu.Lock()
	if time.Since(l.counted) < max(recountAfter, 10*l.took) {
		l.mu.Unlock()
		return nil
	}
	began := time.Now()
	l.counted = began // so that no other request counts as well for the next recountAfter
	l.mu.Unlock()
	names, err := l.names(ctx)
	if err != nil {
		return fmt.Errorf("count the topics: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took = time.Since(began)
	clear(l.known)
	for _, name := range names[:min(len(names), l.most)] {
		l.known[name] = struct{}{}
	}
	return nil
}

// mayMake returns an ErrOverloaded if the topic does not exist and would be one too many. A
// companion counts beside the topic that it belongs to, which comes into being with it.
func (c *call) mayMake(topic string) error {
	ctx, end := context.WithTimeout(c.r.Context(), c.server.limits.StoreTime)
	defer end()
	names := []string{topic}
	if parent, name := storekit.Companion(topic); name != "" {
		names = []string{parent, topic, parent} // once more, because a recount for topic forgets a parent that does not exist yet
	}
	for _, name := range names {
		if err := c.server.topicLimit.pass(ctx, name); err != nil {
			return err
		}
	}
	return nil
}
