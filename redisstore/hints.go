package redisstore

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// hints listens to what the scripts publish, on one connection for the whole Store. Hints of
// this very Store are passed on without it (waits.hint), so it skips those.
type hints struct {
	s     *Store
	asked chan struct{} // holds one request to subscribe to what is new

	mu     sync.Mutex
	topics map[string]string // guarded by mu: topic by channel, of all that was ever waited for
	fresh  []string          // guarded by mu: channels to subscribe to
}

func (h *hints) init(s *Store) {
	h.s = s
	h.asked = make(chan struct{}, 1)
	h.topics = make(map[string]string)
}

// want subscribes to a partition's hints, soon, and for as long as the store is open.
func (h *hints) want(p partition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.topics[p.channel()] != "" {
		return
	}
	h.topics[p.channel()] = p.topic
	h.fresh = append(h.fresh, p.channel())
	select {
	case h.asked <- struct{}{}:
	default:
	}
}

// healthCheck is how often a quiet connection is tried with a PING; a broken one is replaced
// and all subscriptions made again by the client.
const healthCheck = 3 * time.Second

// listen runs until the store closes.
func (h *hints) listen() {
	ctx, end := context.WithCancel(context.Background())
	defer end()
	h.s.duties.Go(func() {
		defer end()
		<-h.s.waits.quit
	})
	sub := h.s.client.Subscribe(ctx)
	events := sub.ChannelWithSubscriptions(redis.WithChannelHealthCheckInterval(healthCheck))
	defer func() {
		if err := sub.Close(); err != nil {
			h.s.opt.Logger.Debug("closing the subscription to hints", "error", err)
		}
		for range events { // until the client's goroutines have ended
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.asked:
			h.subscribe(ctx, sub)
		case e, open := <-events:
			if !open { // somebody closed the client
				return
			}
			h.pass(e)
		}
	}
}

// subscribe asks for the new channels. When that fails the client tries again with
// every new connection; meanwhile topics are looked into each second.
func (h *hints) subscribe(ctx context.Context, sub *redis.PubSub) {
	h.mu.Lock()
	fresh := h.fresh
	h.fresh = nil
	h.mu.Unlock()
	if err := sub.Subscribe(ctx, fresh...); err != nil && ctx.Err() == nil {
		h.s.opt.Logger.Warn("no hints for now; waiting claims look once a second", "error", err)
	}
}

// pass hands a hint to those who wait. A subscription that has just been made, at first or
// after a broken connection, may have missed some.
func (h *hints) pass(event any) {
	switch e := event.(type) {
	case *redis.Subscription:
		if topic := h.topicOf(e.Channel); topic != "" && e.Kind == "subscribe" {
			h.s.waits.hint(topic, -never)
		}
	case *redis.Message:
		sender, text, _ := strings.Cut(e.Payload, " ")
		topic := h.topicOf(e.Channel)
		if topic == "" || sender == h.s.sender {
			return
		}
		at, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			at = -never
		}
		h.s.waits.hint(topic, at)
	}
}

func (h *hints) topicOf(channel string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.topics[channel]
}
