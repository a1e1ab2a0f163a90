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

// answer is what the last reading returned.
type answer[T any] struct {
	value T
	// read is when value was read by the clock of this machine; zero when there is none yet.
	read time.Time
	took time.Duration
	// err is why the last reading failed; value is then of the last one that succeeded.
	err error
}

// cached is an answer that many callers share. It is read by one goroutine at a time, and used
// again while it is fresh.
type cached[T any] struct {
	mu sync.Mutex
	answer[T]
	fresh   time.Time     // guarded by mu: until when the answer is used
	running chan struct{} // guarded by mu: closed when the reading under way ends; nil when there is none
	used    time.Time     // guarded by mu: when somebody asked last
	// expired says that expire was called during the reading under way. rests is then the least
	// times that expire was given. Both are guarded by mu.
	expired bool
	rests   time.Duration
}

// policy says how long a reading may take, and how long its answer is used.
type policy struct {
	timeout time.Duration
	// fresh returns how long an answer is used that took so long.
	fresh func(took time.Duration) time.Duration
}

// begin starts a reading unless the answer is fresh or a reading is under way. It returns a channel
// that is closed when the reading ends, or nil when there is nothing to wait for.
func (c *cached[T]) begin(r *Reader, p policy, read func(context.Context) (T, error)) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used = time.Now()
	if c.running != nil || c.used.Before(c.fresh) {
		return c.running
	}
	running := make(chan struct{})
	if !r.start(func() { c.run(r.ctx, p, guarded(r.o.Logger, read), running) }) {
		c.err = errClosed
		return nil
	}
	c.running = running
	return running
}

// await waits until running is closed or ctx ends, and returns the newest answer. When ctx ends
// first, that is an older answer or an empty one.
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

// run makes one reading and keeps its answer. It has a goroutine of its own, whose context
// Reader.Close ends and for which it waits; callers wait for a reading only briefly.
func (c *cached[T]) run(ctx context.Context, p policy, read func(context.Context) (T, error), running chan struct{}) {
	bounded, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	began := time.Now()
	value, err := read(bounded)
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
	if c.expired && err == nil {
		c.fresh = earlier(c.fresh, now.Add(c.rests*c.took))
	}
	c.running, c.expired = nil, false
	close(running)
}

// guarded turns a panic of the store into the error of that reading. The reading has a goroutine of
// its own, in which nobody else could recover, so the panic would end the whole process.
func guarded[T any](log *slog.Logger, read func(context.Context) (T, error)) func(context.Context) (T, error) {
	return func(ctx context.Context) (value T, err error) {
		defer func() {
			if cause := recover(); cause != nil {
				log.Error("the store panicked while it was read", "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
				err = errPanicked
			}
		}()
		return read(ctx)
	}
}

var errPanicked = errors.New("the store panicked, and the log says where")

// expire makes the next caller read anew, but not before the last answer is so many times as old as
// it took. A reading that is under way goes on. Its answer may lack what has changed, so it goes to
// those who wait for it, and the next caller reads anew.
func (c *cached[T]) expire(times time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fresh = earlier(c.fresh, c.read.Add(times*c.took))
	if c.running != nil {
		if c.rests = min(c.rests, times); !c.expired {
			c.expired, c.rests = true, times
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// place returns the answer that is kept under a key, or a new one. When there are most of them
// already, the answer that was not used for longest makes room.
func place[K comparable, T any](all map[K]*cached[T], key K, most int) *cached[T] {
	if c := all[key]; c != nil {
		return c
	}
	if len(all) >= most {
		var oldest K
		var since time.Time
		for k, c := range all {
			if used := c.lastUsed(); since.IsZero() || used.Before(since) {
				oldest, since = k, used
			}
		}
		delete(all, oldest)
	}
	c := &cached[T]{used: time.Now()}
	all[key] = c
	return c
}

func (c *cached[T]) lastUsed() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used
}

// freshFor returns a policy.fresh: an answer is used for share times as long as it took and at most
// for most, but in any case for a second and for four times as long as it took.
func freshFor(most, share time.Duration) func(time.Duration) time.Duration {
	return func(took time.Duration) time.Duration {
		return max(leastAge, min(share*took, most), 4*took)
	}
}
