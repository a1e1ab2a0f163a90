// Package notify listens to what the scripts of a store publish: the time at which a partition next
// needs attention. It has one connection for all channels, and makes a new one when that breaks.
// Notifications may get lost.
package notify

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/punctualmq/punctual/redisstore/internal/wait"
	"github.com/redis/go-redis/v9"
)

// PingEvery is how often a PING is sent. The connection counts as broken when nothing has come for
// twice as long, not even the answer to a PING. The client's own health check is not enough,
// because it notices only when it cannot write, and with a proxy that has forgotten the connection
// the client can write for a quarter of an hour.
const PingEvery = 3 * time.Second

// The pause before a new connection doubles from reconnectPause to reconnectMost. It begins with
// reconnectPause again after a connection that has worked for longer than reconnectMost. So a
// server that is back waits for the next attempt at most reconnectMost. Meanwhile waiting claims
// poll once a second.
const (
	reconnectPause = 100 * time.Millisecond
	reconnectMost  = 5 * time.Second
)

// Receiver takes in notifications. Its methods must not block.
type Receiver interface {
	// Notified is called when a partition needs attention at a time, in ms by the store's clock.
	Notified(p wait.Part, at int64)
	// Missed is called when notifications of a partition may have got lost.
	Missed(p wait.Part)
}

// Options configure a Listener. All of them must be set.
type Options struct {
	Receiver Receiver
	Logger   *slog.Logger
	// Sender names the store in the notifications that its own scripts publish. The Listener skips
	// these, because the store itself tells its claims what its scripts have changed.
	Sender string
	// PingEvery is the time between two PINGs: the constant PingEvery, unless a test needs another
	// time.
	PingEvery time.Duration
}

// Listener has a subscription to the channels of partitions. All methods are safe for concurrent
// use.
type Listener struct {
	client redis.UniversalClient
	o      Options
	start  sync.Once
	quit   chan struct{}  // closed by Close
	signal chan struct{}  // holds one request to carry out joining and leaving
	work   sync.WaitGroup // the goroutines of the Listener

	mu      sync.Mutex
	of      map[string]wait.Part // guarded by mu: the partitions to be notified of, by channel
	joining []string             // guarded by mu: channels to subscribe to
	leaving []string             // guarded by mu: channels to unsubscribe from
}

// New returns a Listener, which listens from Start on.
func New(client redis.UniversalClient, o Options) *Listener {
	return &Listener{
		client: client, o: o, quit: make(chan struct{}), signal: make(chan struct{}, 1), of: make(map[string]wait.Part),
	}
}

// Start begins the listening. Every call but the first does nothing.
func (l *Listener) Start() { l.start.Do(func() { l.work.Go(l.listen) }) }

// Close ends the listening, and waits until it has ended. No Start may follow.
func (l *Listener) Close() {
	close(l.quit)
	l.work.Wait()
}

// Subscribe has the Listener subscribe to the channel of a partition, and does not wait until it
// has.
func (l *Listener) Subscribe(channel string, p wait.Part) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.of[channel]; known {
		return
	}
	l.of[channel] = p
	l.joining = append(l.joining, channel)
	l.wake()
}

// Unsubscribe has the Listener unsubscribe from a channel, and does not wait until it has.
func (l *Listener) Unsubscribe(channel string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.of, channel)
	l.leaving = append(l.leaving, channel)
	l.wake()
}

func (l *Listener) wake() {
	select {
	case l.signal <- struct{}{}:
	default:
	}
}

// listen makes one connection after the other, until Close. It logs one warning for each time
// without notifications at a server that answers. While the server does not answer, the errors of
// calls say so.
func (l *Listener) listen() {
	ctx, end := context.WithCancel(context.Background())
	defer end()
	l.work.Go(func() {
		defer end()
		<-l.quit
	})
	pause, answers, warned := reconnectPause, false, false
	for ctx.Err() == nil {
		began := time.Now()
		live, err := l.session(ctx)
		if live && time.Since(began) > reconnectMost {
			pause, warned = reconnectPause, false
		}
		switch {
		case err == nil || ctx.Err() != nil:
		case warned || live || !answers: // a session that was live is followed by the next one at once
			l.o.Logger.Debug("no notifications", "error", err)
		default:
			l.o.Logger.Warn("no notifications for now; waiting claims poll once a second", "error", err)
			warned = true
		}
		answers = err != nil && l.client.Ping(ctx).Err() == nil // so the next session begins at a server that answers
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, reconnectMost)
	}
}

// session listens on one connection, until that breaks or ctx ends. live reports whether anything
// has come.
func (l *Listener) session(ctx context.Context) (live bool, err error) {
	l.resubscribe()
	sub := l.client.Subscribe(ctx)
	events, broken := make(chan any), make(chan error, 1)
	var reader sync.WaitGroup
	defer reader.Wait()
	defer func() {
		if err := sub.Close(); err != nil {
			l.o.Logger.Debug("closing the subscription to notifications", "error", err)
		}
	}()
	ctx, end := context.WithCancel(ctx)
	defer end()
	ping := time.NewTicker(l.o.PingEvery)
	defer ping.Stop()
	for reading := false; ; {
		select {
		case <-ctx.Done():
			return live, nil
		case err := <-broken:
			return live, err
		case e := <-events:
			live = true
			l.deliver(e)
		case <-l.signal:
			joining, leaving := l.changes()
			if len(leaving) > 0 && reading {
				if err := sub.Unsubscribe(ctx, leaving...); err != nil {
					return live, err
				}
			}
			if len(joining) == 0 {
				continue
			}
			if err := sub.Subscribe(ctx, joining...); err != nil {
				return live, err
			}
			if !reading {
				reading = true
				reader.Go(func() { broken <- receive(ctx, sub, events, 2*l.o.PingEvery) })
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

// receive passes on what comes, until the connection breaks, nothing has come for the time of
// silence, or ctx ends.
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

// resubscribe has a new connection subscribe to all channels.
func (l *Listener) resubscribe() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.joining = slices.Collect(maps.Keys(l.of))
	if len(l.joining) > 0 {
		l.wake()
	}
}

// changes returns the channels to subscribe to, and those to unsubscribe from. A channel that was
// unsubscribed from and subscribed to again is only among the former.
func (l *Listener) changes() (joining, leaving []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, channel := range l.joining {
		if _, wanted := l.of[channel]; wanted {
			joining = append(joining, channel)
		}
	}
	for _, channel := range l.leaving {
		if _, wanted := l.of[channel]; !wanted {
			leaving = append(leaving, channel)
		}
	}
	l.joining, l.leaving = nil, nil
	return joining, leaving
}

// deliver passes one event of the connection to the Receiver. With each subscription, also one of a
// new connection, it calls Missed, because notifications may have been published before.
func (l *Listener) deliver(event any) {
	switch e := event.(type) {
	case *redis.Subscription:
		if p, known := l.partOf(e.Channel); known && e.Kind == "subscribe" {
			l.o.Receiver.Missed(p)
		}
	case *redis.Message:
		sender, text, _ := strings.Cut(e.Payload, " ")
		p, known := l.partOf(e.Channel)
		if !known || sender == l.o.Sender {
			return
		}
		at, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			l.o.Receiver.Missed(p)
			return
		}
		l.o.Receiver.Notified(p, at)
	}
}

func (l *Listener) partOf(channel string) (wait.Part, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, known := l.of[channel]
	return p, known
}
