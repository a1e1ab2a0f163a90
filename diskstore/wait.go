package diskstore

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/punctualmq/punctual/diskstore/internal/errkind"
	"github.com/punctualmq/punctual/storekit"
)

// waiters are the claims under way, by topic. A claim is added before it polls its topics, so that
// a message that comes later wakes it. A lost hint costs time, and no message (P11). The zero value
// has no waiters.
type waiters struct {
	mu sync.Mutex // may be taken with the lock of memory.Index held; no other lock is taken inside
	// byTopic has no topic without a waiter. Guarded by mu.
	byTopic map[string]map[*waiter]struct{}
}

// waiter is a claim under way, which waits when none of its topics has a message for it.
type waiter struct {
	topics []string
	// until is when the sleep of the claim ends by itself, in Unix milliseconds by the store's
	// clock. While the claim polls its topics, until is the constant never, so that every message
	// that comes meanwhile gives a hint.
	until atomic.Int64
	hint  chan struct{} // holds one hint
}

// add adds a claim. The caller must remove it.
func (ws *waiters) add(topics []string) *waiter {
	w := &waiter{topics: topics, hint: make(chan struct{}, 1)}
	w.until.Store(never)
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.byTopic == nil {
		ws.byTopic = make(map[string]map[*waiter]struct{})
	}
	for _, name := range topics {
		if ws.byTopic[name] == nil {
			ws.byTopic[name] = make(map[*waiter]struct{})
		}
		ws.byTopic[name][w] = struct{}{}
	}
	return w
}

func (ws *waiters) remove(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, name := range w.topics {
		delete(ws.byTopic[name], w)
		if len(ws.byTopic[name]) == 0 {
			delete(ws.byTopic, name)
		}
	}
}

// wake gives a hint to the claims of a topic that would sleep past at.
func (ws *waiters) wake(topic string, at int64) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.byTopic[topic] {
		if w.until.Load() > at {
			select {
			case w.hint <- struct{}{}:
			default:
			}
		}
	}
}

// wakeAll gives a hint to all claims.
func (ws *waiters) wakeAll() {
	ws.mu.Lock()
	topics := slices.Collect(maps.Keys(ws.byTopic))
	ws.mu.Unlock()
	for _, topic := range topics {
		ws.wake(topic, -never)
	}
}

// sleep waits for a hint, for the end of the store, until the store's clock has reached next, or
// until left has elapsed. Unless next is never, it returns after a second at most, because the
// machine may have been suspended or its clock set. An error is that of the context alone.
func (w *waiter) sleep(ctx context.Context, ended <-chan struct{}, c clock, next int64, left time.Duration) error {
	limit := storekit.CeilDuration(left)
	until := min(next, c.ms()+limit)
	if next != never {
		limit = min(limit, maxSleep)
	}
	w.until.Store(until)
	defer w.until.Store(never)
	reached, stop := c.after(until, limit)
	defer stop()
	select {
	case <-w.hint:
	case <-reached:
	case <-ctx.Done():
		return errkind.Ended(ctx)
	case <-ended:
	}
	return nil
}
