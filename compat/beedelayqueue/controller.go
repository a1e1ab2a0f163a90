package BeeDelayQueue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/redisstore"
)

// RedisConfig names a single Redis server, of version 6.2 or newer. For Sentinel, Redis Cluster,
// TLS or a named user use NewDelayQueueControllerOnStore.
type RedisConfig struct {
	// Addr is host:port, or the path of a Unix socket. Default localhost:6379.
	Addr string
	// Password of the default user; empty for none.
	Password string
	// Db is the number of the database, 0 or more.
	Db int
}

// DelayQueueController pushes messages and has listeners called when they are due. Several
// controllers, in one process or in many, share topics without a lock. All methods are safe for
// concurrent use, also from a listener, except that Close waits for listeners.
//
// Methods without a context return within about ten seconds. If Redis has not answered by then,
// they return an error that says so, or log it where they have no result.
type DelayQueueController struct {
	connect func(ctx context.Context) (*connection, error)
	// connected is set once: by NewDelayQueueControllerOnStore, or by the goroutine whose element
	// is in connecting, which has room for one.
	connected  atomic.Pointer[connection]
	connecting chan struct{}
	// release closes the client, which connection does not own.
	release func() error

	ids *idMaker
	log *slog.Logger

	mu        sync.Mutex
	topics    map[string]*topic          // guarded by mu: those created, and not deleted since
	listeners map[string]MassageListener // guarded by mu: they stay when a topic is deleted
	busy      int                        // guarded by mu: goroutines that consume or listen
	closing   bool                       // guarded by mu: Close was called, nothing more is claimed
	closed    bool                       // guarded by mu: Close has waited, no call is served
	left      bool                       // guarded by mu: Close returns while a call connects, which is to close what it makes
	idle      chan struct{}              // closed when closing is set and busy is 0
}

// connection is a store with the clients through which the controller calls it.
type connection struct {
	store     punctual.Store
	inspector punctual.Inspector
	queue     *punctual.Queue
	owned     bool // Close closes the store
}

// callTimeout bounds the methods without a context.
const callTimeout = 10 * time.Second

// NewDelayQueueController returns a controller on the Redis that redisConfig names, in the
// key space "punctual:" of the store in Redis.
//
// The error says that Redis cannot be reached or used. As in the original the controller is
// returned all the same: each call tries to connect again, and listeners get messages once Redis is
// there. A controller has to be closed in either case.
func NewDelayQueueController(redisConfig RedisConfig) (*DelayQueueController, error) {
	client := redis.NewClient(&redis.Options{
		Addr: redisConfig.Addr, Password: redisConfig.Password, DB: max(redisConfig.Db, 0),
		ContextTimeoutEnabled: true, // so that callTimeout holds
	})
	p := newController(slog.Default())
	p.release = client.Close
	p.connect = func(ctx context.Context) (*connection, error) {
		if redisConfig.Db < 0 {
			return nil, fmt.Errorf("database %d: use 0 or more: %w", redisConfig.Db, punctual.ErrInvalid)
		}
		s, err := redisstore.Open(ctx, client, nil)
		if err != nil {
			return nil, fmt.Errorf("redis at %s, database %d: %w", client.Options().Addr, redisConfig.Db, err)
		}
		return connectionOn(s, true)
	}
	ctx, end := context.WithTimeout(context.Background(), callTimeout)
	defer end()
	_, err := p.connection(ctx)
	return p, err
}

// NewDelayQueueControllerOnStore returns a controller on a store of Punctual's. That may be Redis
// behind Sentinel, Redis Cluster, Redis over TLS, a directory without any server, or memory for
// tests. The store must support inspection, as all of Punctual's do. The store stays the caller's,
// to be closed after the controller.
func NewDelayQueueControllerOnStore(s punctual.Store) (*DelayQueueController, error) {
	c, err := connectionOn(s, false)
	if err != nil {
		return nil, err
	}
	p := newController(slog.Default())
	p.connected.Store(c)
	return p, nil
}

func newController(log *slog.Logger) *DelayQueueController {
	return &DelayQueueController{
		connecting: make(chan struct{}, 1), release: func() error { return nil },
		ids: newIDMaker(), log: log,
		topics: make(map[string]*topic), listeners: make(map[string]MassageListener),
		idle: make(chan struct{}),
	}
}

func connectionOn(s punctual.Store, owned bool) (*connection, error) {
	if s == nil {
		return nil, fmt.Errorf("the store is nil: %w", punctual.ErrInvalid)
	}
	i, err := punctual.As[punctual.Inspector](s)
	if err != nil {
		return nil, err
	}
	return &connection{store: s, inspector: i, queue: punctual.NewQueue(s, nil), owned: owned}, nil
}

// connection returns the connection, and makes it if there is none yet.
func (p *DelayQueueController) connection(ctx context.Context) (*connection, error) {
	if err := p.checkOpen(); err != nil {
		return nil, err
	}
	if c := p.connected.Load(); c != nil {
		return c, nil
	}
	select {
	case p.connecting <- struct{}{}:
		defer func() { <-p.connecting }()
	case <-ctx.Done():
		return nil, fmt.Errorf("redis cannot be reached: %w", ctx.Err())
	}
	if c := p.connected.Load(); c != nil {
		return c, nil
	}
	if err := p.checkOpen(); err != nil { // Close may have been first
		return nil, err
	}
	c, err := p.connect(ctx)
	if err != nil {
		return nil, err
	}
	if !p.keep(c) {
		return nil, errors.Join(errClosed(), c.close(ctx))
	}
	return c, nil
}

// keep makes c the connection of the controller, unless Close has not waited for it.
func (p *DelayQueueController) keep(c *connection) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.left {
		p.connected.Store(c)
	}
	return !p.left
}

func (p *DelayQueueController) checkOpen() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errClosed()
	}
	return nil
}

func errClosed() error { return fmt.Errorf("the controller: %w", punctual.ErrClosed) }

// Close ends the consuming of all topics, waits for the listeners that run, and lets go of Redis.
// What is not acknowledged by then is delivered again once its retryTime is over, while it has
// retries left. When ctx ends first, Close waits no longer and returns an error that says how many
// listeners and claims still run, or that a call still connects. A second Close returns ErrClosed.
// A listener that calls Close waits for itself, until ctx ends.
//
// The original has no such method: its goroutines end with the process.
func (p *DelayQueueController) Close(ctx context.Context) error {
	if err := p.beginClose(); err != nil {
		return err
	}
	var left error
	select {
	case <-p.idle:
	case <-ctx.Done():
		left = ctx.Err()
	}
	p.mu.Lock()
	p.closed = true
	if left != nil {
		left = fmt.Errorf("close: listeners and claims that still run: %d: %w", p.busy, left)
	}
	p.mu.Unlock()
	left = errors.Join(left, p.endConnecting(ctx))
	if c := p.connected.Load(); c != nil {
		left = errors.Join(left, c.close(ctx))
	}
	return errors.Join(left, p.release())
}

// endConnecting waits for a call that connects, until ctx ends. Afterwards none connects.
func (p *DelayQueueController) endConnecting(ctx context.Context) error {
	select {
	case p.connecting <- struct{}{}: // the token stays there, so that no call connects any more
		return nil
	default:
	}
	select {
	case p.connecting <- struct{}{}:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = true
	return fmt.Errorf("close: a call still connects: %w", ctx.Err())
}

// beginClose ends the claims of all topics and refuses new ones.
func (p *DelayQueueController) beginClose() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing {
		return errClosed()
	}
	p.closing = true
	for _, t := range p.topics {
		t.stop()
	}
	if p.busy == 0 {
		close(p.idle)
	}
	return nil
}

func (c *connection) close(ctx context.Context) error {
	err := c.queue.Close(ctx)
	if c.owned {
		err = errors.Join(err, c.store.Close())
	}
	return err
}

// goWork runs f in a goroutine that Close waits for. The caller holds mu.
func (p *DelayQueueController) goWork(f func()) {
	p.busy++
	go func() {
		defer p.workDone()
		f()
	}()
}

func (p *DelayQueueController) workDone() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy--
	if p.closing && p.busy == 0 {
		close(p.idle)
	}
}

// GetTime returns the time by the store's clock, in the local time zone. That clock does not run
// backwards, but for a step (storekit.ClockKeeper).
func (p *DelayQueueController) GetTime() (*time.Time, error) {
	ctx, end := context.WithTimeout(context.Background(), callTimeout)
	defer end()
	c, err := p.connection(ctx)
	if err != nil {
		return nil, err
	}
	now, err := c.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	now = now.Local()
	return &now, nil
}

// GetTimeUnix is GetTime in seconds, rounded down.
func (p *DelayQueueController) GetTimeUnix() (int64, error) {
	now, err := p.GetTime()
	if err != nil {
		return 0, err
	}
	return now.Unix(), nil
}
