package punctual

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
)

// A coalescer turns concurrent single calls into batches, as a bus turns passengers into
// a ride. No timer holds anything back: a lone call takes off at once, and while one
// batch is in flight the next gathers. One flight is under way at a time, so the calls of
// one goroutine take effect in the order in which they were made.
//
// do puts the item into the last batch waiting and waits itself. The flights are made by a
// goroutine that takes the first batch waiting, calls fly, hands out the answers, and so
// on until no batch waits; so there is no goroutine while there is nothing to do, and a
// coalescer that is dropped without close leaves nothing behind.
type coalescer[T, R any] struct {
	cfg  coalesceConfig
	size func(T) int64
	fly  func(ctx context.Context, items []T) ([]R, error)

	// flights is the context of every flight. It is nobody's call's, since a batch
	// serves many; it ends when close runs out of time.
	flights    context.Context
	endFlights context.CancelCauseFunc

	mu sync.Mutex
	// waiting holds the batches not yet in flight, in order of take-off; only the last
	// one still takes items. Guarded by mu.
	waiting []*batch[T, R]
	// pending is the size of all items waiting or in flight. Guarded by mu.
	pending int64
	// flying tells that there is a flight goroutine; whenever waiting is not empty
	// there is one. Guarded by mu.
	flying bool
	// apart counts the calls between begin and end. Guarded by mu.
	apart int
	// closed refuses further calls. Guarded by mu.
	closed bool
	// idle is made by close and closed when nothing is under way. Guarded by mu.
	idle chan struct{}
	// usual is the length of the last batch that took off. Guarded by mu.
	usual int
}

// coalesceConfig bounds a coalescer.
type coalesceConfig struct {
	// op names the operation in errors.
	op string
	// maxItems and maxBytes bound one batch; an item larger than maxBytes flies alone.
	maxItems int
	maxBytes int64
	// maxPending bounds the size of all items waiting or in flight; beyond it do
	// returns ErrOverloaded. A single item passes however large it is.
	maxPending int64
}

// batch is a group of items that fly together. Before take-off it is guarded by the
// coalescer's mu, then it is the flight's; once done is closed it does not change.
type batch[T, R any] struct {
	items []T
	bytes int64
	// gone holds the indices of callers that left before take-off; nil if none did.
	gone map[int]bool
	// inFlight tells that nobody can leave any more. Guarded by mu.
	inFlight bool
	// place maps a caller's index to that of its answer; nil when they are the same.
	place   []int
	answers []R
	err     error
	// returned tells that fly has returned, rather than panicked.
	returned bool
	done     chan struct{}
}

// newCoalescer returns a coalescer that calls fly, never twice at a time, with at least
// one item. fly returns one answer per item, or an error that goes to every caller of
// the batch. size is the item's share of the bounds, at least 1.
func newCoalescer[T, R any](cfg coalesceConfig, size func(T) int64, fly func(ctx context.Context, items []T) ([]R, error)) *coalescer[T, R] {
	c := &coalescer[T, R]{cfg: cfg, size: size, fly: fly}
	c.flights, c.endFlights = context.WithCancelCause(context.Background())
	return c
}

// do sends item with the next batch and returns its answer. When ctx ends while the item
// waits, it is taken out again and the error is definite; when its batch is in flight
// already, the error wraps ErrIndeterminate, and fly may go on reading the item.
func (c *coalescer[T, R]) do(ctx context.Context, item T) (R, error) {
	var none R
	if ctx.Err() != nil {
		return none, fmt.Errorf("%s: %w", c.cfg.op, contextError(ctx))
	}
	b, i, err := c.board(item)
	if err != nil {
		return none, err
	}
	select {
	case <-b.done:
		return b.answer(i)
	case <-ctx.Done():
		return c.leave(ctx, b, i)
	}
}

// board puts item into the last batch waiting and sees that there is a flight.
func (c *coalescer[T, R]) board(item T) (*batch[T, R], int, error) {
	n := c.size(item)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, 0, errorf(ErrClosed, "%s", c.cfg.op)
	}
	if c.pending > 0 && n > c.cfg.maxPending-c.pending {
		return nil, 0, errorf(ErrOverloaded, "%s: %d bytes are under way to the store already, at most %d are allowed: try again later",
			c.cfg.op, c.pending, c.cfg.maxPending)
	}
	b := c.gathering(n)
	b.items = append(b.items, item)
	b.bytes += n
	c.pending += n
	if !c.flying {
		c.flying = true
		go c.flight()
	}
	return b, len(b.items) - 1, nil
}

// gathering returns the batch that takes the next item, of size n. The caller holds mu.
func (c *coalescer[T, R]) gathering(n int64) *batch[T, R] {
	if last := len(c.waiting) - 1; last >= 0 {
		b := c.waiting[last]
		if len(b.items) < c.cfg.maxItems && (b.bytes+n <= c.cfg.maxBytes || len(b.items) == 0) {
			return b
		}
	}
	b := &batch[T, R]{items: make([]T, 0, max(c.usual, 1)), done: make(chan struct{})}
	c.waiting = append(c.waiting, b)
	return b
}

// leave takes the caller at index i out of b because its ctx has ended. If b has landed
// meanwhile, its answer stands.
func (c *coalescer[T, R]) leave(ctx context.Context, b *batch[T, R], i int) (R, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-b.done:
		return b.answer(i)
	default:
	}
	var none R
	if b.inFlight {
		return none, fmt.Errorf("%s: %w: %w", c.cfg.op, ErrIndeterminate, contextError(ctx))
	}
	if b.gone == nil {
		b.gone = make(map[int]bool)
	}
	b.gone[i] = true
	n := c.size(b.items[i])
	b.bytes -= n
	c.pending -= n
	var empty T
	b.items[i] = empty // its body is the caller's again
	return none, fmt.Errorf("%s: %w", c.cfg.op, contextError(ctx))
}

// flight takes the waiting batches to the store, one after the other. It is the only
// goroutine of a coalescer, kept while there is work because its stack has grown to fit.
func (c *coalescer[T, R]) flight() {
	c.letBoard()
	for b := c.takeOff(); b != nil; b = c.takeOff() {
		c.ride(b)
		c.letBoard()
	}
}

// letBoard lets those run who are ready to, if the last batch was of several: its callers
// have their answers and often come back at once. All of them then fly together, instead of
// in two groups that wait for each other. Nothing is waited for, and a lone call never yields.
func (c *coalescer[T, R]) letBoard() {
	c.mu.Lock()
	several := c.usual > 1
	c.mu.Unlock()
	if several {
		runtime.Gosched()
	}
}

func (c *coalescer[T, R]) ride(b *batch[T, R]) {
	defer c.land(b)
	b.answers, b.err = c.call(c.flights, b.items)
	b.returned = true
}

// call calls fly and checks that there is an answer for each item.
func (c *coalescer[T, R]) call(ctx context.Context, items []T) ([]R, error) {
	answers, err := c.fly(ctx, items)
	if err == nil && len(answers) != len(items) {
		return nil, errorf(ErrIndeterminate, "%s: the store gave %d answers for %d items", c.cfg.op, len(answers), len(items))
	}
	return answers, err
}

// callInTime is call unless ctx has ended, which is then a definite error.
func (c *coalescer[T, R]) callInTime(ctx context.Context, items []T) ([]R, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s: %w", c.cfg.op, contextError(ctx))
	}
	return c.call(ctx, items)
}

// partLen returns how many of items, at least one, make up a part within the bounds of
// one batch.
func (c *coalescer[T, R]) partLen(items []T) int {
	bytes := int64(0)
	for i, item := range items[:min(len(items), c.cfg.maxItems)] {
		if bytes += c.size(item); bytes > c.cfg.maxBytes && i > 0 {
			return i
		}
	}
	return min(len(items), c.cfg.maxItems)
}

// takeOff returns the first batch waiting that still has items, or nil when there is
// none and the goroutine is to end.
func (c *coalescer[T, R]) takeOff() *batch[T, R] {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.waiting) > 0 {
		b := c.waiting[0]
		c.waiting[0] = nil
		c.waiting = c.waiting[1:]
		b.inFlight = true
		b.closeRanks()
		if len(b.items) > 0 {
			c.usual = len(b.items)
			return b
		}
	}
	c.flying = false
	c.rest()
	return nil
}

// land hands out the answers. It is deferred, so that a store that panics, or ends the
// goroutine, leaves nobody waiting.
func (c *coalescer[T, R]) land(b *batch[T, R]) {
	if !b.returned {
		p := recover()
		b.err = crashError(c.cfg.op, p)
		if p == nil { // this goroutine ends
			go c.flight()
		}
	}
	c.mu.Lock()
	c.pending -= b.bytes
	c.mu.Unlock()
	close(b.done) // after that, or a caller's next item could be refused for the room of this one
}

// rest tells close when nothing is under way. The caller holds mu.
func (c *coalescer[T, R]) rest() {
	if c.idle != nil && !c.flying && c.apart == 0 {
		close(c.idle)
		c.idle = nil
	}
}

// begin announces a call that goes to the store apart from the batches, so that close
// waits for it. Each begin that succeeds needs its end.
func (c *coalescer[T, R]) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errorf(ErrClosed, "%s", c.cfg.op)
	}
	c.apart++
	return nil
}

func (c *coalescer[T, R]) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.apart--
	c.rest()
}

// close refuses further calls with ErrClosed and waits for those under way, waiting
// batches included. When ctx ends first, the batches that wait are refused as well, the
// context of the flight is ended, and close returns ctx's error without waiting for the
// store any longer; it may be called again to do so.
func (c *coalescer[T, R]) close(ctx context.Context) error {
	idle := c.shut()
	if idle == nil {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		c.refuseWaiting()
		return fmt.Errorf("%s: calls are still under way: %w", c.cfg.op, contextError(ctx))
	}
}

// shut sets closed and returns a channel that is closed when nothing is under way, or
// nil when nothing is.
func (c *coalescer[T, R]) shut() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if !c.flying && c.apart == 0 {
		return nil
	}
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	return c.idle
}

func (c *coalescer[T, R]) refuseWaiting() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range c.waiting {
		b.err = errorf(ErrClosed, "%s", c.cfg.op)
		c.pending -= b.bytes
		close(b.done)
	}
	c.waiting = nil
	c.endFlights(errorf(ErrClosed, "%s", c.cfg.op))
}

// closeRanks removes the items of callers that left and notes the place of the others.
func (b *batch[T, R]) closeRanks() {
	if b.gone == nil {
		return
	}
	kept := b.items[:0]
	b.place = make([]int, len(b.items))
	for i, item := range b.items {
		if !b.gone[i] {
			b.place[i] = len(kept)
			kept = append(kept, item)
		}
	}
	b.items = kept
}

// answer returns what the caller at index i gets. b.done must be closed.
func (b *batch[T, R]) answer(i int) (R, error) {
	if b.err != nil {
		var none R
		return none, b.err
	}
	if b.place != nil {
		i = b.place[i]
	}
	return b.answers[i], nil
}

// crashError describes a call of the store that did not return: p is what it panicked
// with, nil if it ended its goroutine.
func crashError(op string, p any) error {
	if p == nil {
		return errorf(ErrIndeterminate, "%s: the store ended the goroutine of the call", op)
	}
	return errorf(ErrIndeterminate, "%s: the store panicked: %v\n%s", op, p, debug.Stack())
}

// contextError returns an error that wraps ctx.Err, and the cause if it is another.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == err {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}
