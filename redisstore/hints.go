package redisstore

import (
	"context"
	"maps"
	"slices"
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
	// pingEvery is how often the connection is tried: the constant, but tests are less patient.
	pingEvery time.Duration

	mu    sync.Mutex
	of    map[string]partition // guarded by mu: by channel, all that was ever waited for
	fresh []string             // guarded by mu: channels to subscribe to
}

func (h *hints) init(s *Store) {
	h.s = s
	h.pingEvery = pingEvery
	h.asked = make(chan struct{}, 1)
	h.of = make(map[string]partition)
}

// want subscribes to a partition's hints, soon, and for as long as the store is open.
func (h *hints) want(p partition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.of[p.channel()]; known {
		return
	}
	h.of[p.channel()] = p
	h.fresh = append(h.fresh, p.channel())
	h.ask()
}

// pingEvery is how often the connection is tried. It is taken for dead when nothing has
// come for twice as long, not even the answer to a PING. The client's own health check notices
// only when it cannot write, which a proxy that forgets connections lets it do for a quarter
// of an hour.
const pingEvery = 3 * time.Second

// reconnectPause is between two connections.
const reconnectPause = 100 * time.Millisecond

// listen runs until the store closes: one connection after the other.
func (h *hints) listen() {
	ctx, end := context.WithCancel(context.Background())
	defer end()
	h.s.duties.Go(func() {
		defer end()
		<-h.s.waits.quit
	})
	for ctx.Err() == nil {
		if err := h.session(ctx); err != nil && ctx.Err() == nil {
			h.s.opt.Logger.Warn("no hints for now; waiting claims look once a second", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(reconnectPause):
		}
	}
}

// session listens on one connection, until it breaks or ctx ends.
func (h *hints) session(ctx context.Context) error {
	h.subscribeAnew()
	sub := h.s.client.Subscribe(ctx)
	events, broken := make(chan any), make(chan error, 1)
	var reader sync.WaitGroup
	defer reader.Wait()
	defer h.quietly(sub.Close)
	ctx, end := context.WithCancel(ctx)
	defer end()
	ping := time.NewTicker(h.pingEvery)
	defer ping.Stop()
	for reading := false; ; {
		select {
		case <-ctx.Done():
			return nil
		case err := <-broken:
			return err
		case e := <-events:
			h.pass(e)
		case <-h.asked:
			fresh := h.takeFresh()
			if len(fresh) == 0 {
				continue
			}
			if err := sub.Subscribe(ctx, fresh...); err != nil {
				return err
			}
			if !reading {
				reading = true
				reader.Go(func() { broken <- receive(ctx, sub, events, 2*h.pingEvery) })
			}
		case <-ping.C:
			if !reading {
				continue
			}
			if err := sub.Ping(ctx); err != nil {
				return err
			}
		}
	}
}

// receive passes on what comes, until nothing has come for too long.
func receive(ctx context.Context, sub *redis.PubSub, events chan<- any, silence time.Duration) error {
	for {
		e, err := sub.ReceiveTimeout(ctx, silence)
		if err != nil {
			return err
		}
		select {
		case events <- e:
		case <-ctx.Done():
			return nil
		}
	}
}

func (h *hints) quietly(end func() error) {
	if err := end(); err != nil {
		h.s.opt.Logger.Debug("closing the subscription to hints", "error", err)
	}
}

// subscribeAnew asks for all channels that were ever wanted.
func (h *hints) subscribeAnew() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fresh = slices.Collect(maps.Keys(h.of))
	if len(h.fresh) > 0 {
		h.ask()
	}
}

// ask has the listener subscribe to what is in fresh.
func (h *hints) ask() {
	select {
	case h.asked <- struct{}{}:
	default:
	}
}

func (h *hints) takeFresh() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	fresh := h.fresh
	h.fresh = nil
	return fresh
}

// pass hands a hint to those who wait. A subscription that has just been made, at first or
// after a broken connection, may have missed some.
func (h *hints) pass(event any) {
	switch e := event.(type) {
	case *redis.Subscription:
		if p, known := h.partitionOf(e.Channel); known && e.Kind == "subscribe" {
			h.s.waits.hint(p, -never)
		}
	case *redis.Message:
		sender, text, _ := strings.Cut(e.Payload, " ")
		p, known := h.partitionOf(e.Channel)
		if !known || sender == h.s.sender {
			return
		}
		at, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			at = -never
		}
		h.s.waits.hint(p, at)
	}
}

func (h *hints) partitionOf(channel string) (partition, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, known := h.of[channel]
	return p, known
}
