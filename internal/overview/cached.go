package overview

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// answer is what the last look brought.
type answer[T any] struct {
	value T
	// read is when value was read by the clock of this machine; zero when there is none yet.
	read time.Time
	took time.Duration
	// err says why the last look brought nothing; value is then an older one.
	err error
}

// cached is an answer that many share: one look at a time, used again while it is fresh.
type cached[T any] struct {
	mu sync.Mutex
	answer[T]
	fresh   time.Time     // guarded by mu: until when nobody looks again
	running chan struct{} // guarded by mu: closed when the look under way ends; nil when there is none
	used    time.Time     // guarded by mu: when somebody asked last
}

// policy says how a look is made and how long its answer is used.
type policy struct {
	timeout time.Duration
	// fresh is how long an answer is used when the look took that long.
	fresh func(took time.Duration) time.Duration
}

// begin has one look made unless the answer is fresh or a look is under way. It returns what is closed when that has ended, or nil
// when there is nothing to wait for.
func (c *cached[T]) begin(r *Reader, p policy, look func(context.Context) (T, error)) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used = time.Now()
	if c.running != nil || c.used.Before(c.fresh) {
		return c.running
	}
	running := make(chan struct{})
	if !r.start(func() { c.look(r.ctx, p, guarded(r.o.Logger, look), running) }) {
		c.err = errClosed
		return nil
	}
	c.running = running
	return running
}

// await returns the answer once running is closed, or what there is when ctx ends. What a store takes long for comes
// with a later call.
func (c *cached[T]) await(ctx context.Context, running <-chan struct{}) answer[T] {
	if running != nil {
		select {
		case <-running:
		case <-ctx.Done():
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answer
}

// look makes one look, and keeps what it brought.
func (c *cached[T]) look(ctx context.Context, p policy, look func(context.Context) (T, error), running chan struct{}) {
	bounded, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	began := time.Now()
	value, err := look(bounded)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("no answer in %v: is the store at hand? %w", p.timeout, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.took, c.err = now.Sub(began), err
	if err == nil {
		c.value, c.read = value, now
	}
	if c.fresh = now.Add(p.fresh(c.took)); err != nil {
		c.fresh = now.Add(max(leastAge, c.took))
	}
	c.running = nil
	close(running)
}

// guarded makes a panic the error of that look. The look has a goroutine of its own, where nobody else could recover, and the
// whole server would end.
func guarded[T any](log *slog.Logger, look func(context.Context) (T, error)) func(context.Context) (T, error) {
	return func(ctx context.Context) (value T, err error) {
		defer func() {
			if cause := recover(); cause != nil {
				log.Error("a look made the store panic", "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
				err = errPanicked
			}
		}()
		return look(ctx)
	}
}

var errPanicked = errors.New("the store panicked, and the log says where")

// expire has the next caller look again, once the last answer is older than so many times as long as it took.
func (c *cached[T]) expire(times time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if rested := c.read.Add(times * c.took); rested.Before(c.fresh) {
		c.fresh = rested
	}
}
