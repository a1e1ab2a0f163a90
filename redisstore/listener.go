package redisstore

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/punctualmq/punctual/redisstore/internal/wait"
	"github.com/redis/go-redis/v9"
)

// listener listens to what the scripts publish, on one connection for the whole Store. Those of
// this very Store are passed on without it (waits.notify), so it skips those.
type listener struct {
	s     *Store
	asked chan struct{} // holds one request to subscribe to what is new, and to leave what is old
	quit  chan struct{} // closed by close
	// pingEvery is how often the connection is tried: the constant, but tests are less patient.
	pingEvery time.Duration

	mu    sync.Mutex
	of    map[string]partition // guarded by mu: by channel, all that was ever waited for
	fresh []string             // guarded by mu: channels to subscribe to
	stale []string             // guarded by mu: channels to leave
}

func (h *listener) init(s *Store) {
	h.s = s
	h.pingEvery = pingEvery
	h.asked, h.quit = make(chan struct{}, 1), make(chan struct{})
	h.of = make(map[string]partition)
}

// close ends the listening.
func (h *listener) close() { close(h.quit) }

// forget ends what want began.
func (h *listener) forget(p partition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.of, p.channel())
	h.stale = append(h.stale, p.channel())
	h.ask()
}

// want subscribes to a partition's notifications, soon, until it is forgotten.
func (h *listener) want(p partition) {
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

// The pause between two connections doubles from the first to the last, as long as none lasts. A
// server that comes back is so noticed within the last; meanwhile waiting claims poll once a second.
const (
	reconnectPause = 100 * time.Millisecond
	reconnectMost  = 5 * time.Second
)

// listen runs until the store closes: one connection after the other. It warns once of an outage.
func (h *listener) listen() {
	ctx, end := context.WithCancel(context.Background())
	defer end()
	h.s.duties.Go(func() {
		defer end()
		<-h.quit
	})
	pause, warned := reconnectPause, false
	for ctx.Err() == nil {
		began := time.Now()
		live, err := h.session(ctx)
		if live && time.Since(began) > reconnectMost {
			pause, warned = reconnectPause, false
		}
		switch {
		case err == nil || ctx.Err() != nil:
		case warned:
			h.s.opt.Logger.Debug("still no notifications", "error", err)
		default:
			h.s.opt.Logger.Warn("no notifications for now; waiting claims poll once a second", "error", err)
			warned = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, reconnectMost)
	}
}

// session listens on one connection, until it breaks or ctx ends, and tells whether anything came.
func (h *listener) session(ctx context.Context) (live bool, err error) {
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
			return live, nil
		case err := <-broken:
			return live, err
		case e := <-events:
			live = true
			h.pass(e)
		case <-h.asked:
			fresh, stale := h.takeAsked()
			if len(stale) > 0 && reading {
				if err := sub.Unsubscribe(ctx, stale...); err != nil {
					return live, err
				}
			}
			if len(fresh) == 0 {
				continue
			}
			if err := sub.Subscribe(ctx, fresh...); err != nil {
				return live, err
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
				return live, err
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

func (h *listener) quietly(end func() error) {
	if err := end(); err != nil {
		h.s.opt.Logger.Debug("closing the subscription to notifications", "error", err)
	}
}

// subscribeAnew asks for all channels that were ever wanted.
func (h *listener) subscribeAnew() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fresh = slices.Collect(maps.Keys(h.of))
	if len(h.fresh) > 0 {
		h.ask()
	}
}

// ask has the listener subscribe to what is in fresh.
func (h *listener) ask() {
	select {
	case h.asked <- struct{}{}:
	default:
	}
}

// takeAsked returns the channels to subscribe to, and those to leave: a channel that was left and is wanted again is
// among the former alone.
func (h *listener) takeAsked() (fresh, stale []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, channel := range h.fresh {
		if _, wanted := h.of[channel]; wanted {
			fresh = append(fresh, channel)
		}
	}
	for _, channel := range h.stale {
		if _, wanted := h.of[channel]; !wanted {
			stale = append(stale, channel)
		}
	}
	h.fresh, h.stale = nil, nil
	return fresh, stale
}

// pass hands a notification to those who wait. A subscription that has just been made, at first or
// after a broken connection, may have missed some.
func (h *listener) pass(event any) {
	switch e := event.(type) {
	case *redis.Subscription:
		if p, known := h.partitionOf(e.Channel); known && e.Kind == "subscribe" {
			h.s.waits.waiter.Notice(p.part(), -wait.Never)
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
		h.s.waits.notification(p, at)
	}
}

func (h *listener) partitionOf(channel string) (partition, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, known := h.of[channel]
	return p, known
}
