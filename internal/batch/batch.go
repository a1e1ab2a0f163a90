// Package batch turns concurrent single calls into calls of many items. No timer holds anything back: a lone call
// goes at once, and while one batch is under way the next gathers. A batch that takes long is overtaken, and what
// has the keys of its items goes separately from then on. So one slow key delays no other one by more than
// Config.Late.
package batch

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// Config says what a Batcher does. Run, Size, the bounds and the errors are required.
type Config[T, R any] struct {
	// Op names the operation in errors.
	Op string
	// Run carries out a batch of at least one item. It returns one answer for each, or an error that goes to
	// every caller of the batch. It may be called several times at once. The items are the Batcher's again
	// after return.
	Run func(ctx context.Context, items []T) ([]R, error)
	// Size is an item's share of MaxBytes and MaxPending, at least 1.
	Size func(T) int64
	// Key groups the items that are slow together. Nil gives all items the same key.
	Key func(T) string
	// MaxItems and MaxBytes bound one batch; an item larger than MaxBytes goes alone.
	MaxItems int
	MaxBytes int64
	// MaxPending bounds the size of all items that wait or are under way; beyond it Do returns
	// Overloaded. A single item passes however large it is.
	MaxPending int64
	// Late is how long a batch may take until the next one overtakes it.
	Late time.Duration
	// Closed, Overloaded and Indeterminate are what errors wrap: after Close, when MaxPending is reached, and
	// when nobody knows whether Run has carried out an item.
	Closed, Overloaded, Indeterminate error
}

// A Batcher gathers calls. All methods are safe for concurrent use. One that is dropped without Close leaves nothing
// behind, since it has no goroutine while nothing is under way.
//
// The calls that one goroutine makes take effect in their order, because each begins after the answer to the one
// before. Only a call whose context ended may take effect later than the next one.
type Batcher[T, R any] struct {
	cfg Config[T, R]
	// calls is the context of every Run. It is no caller's, since a batch serves many; it ends when Close runs
	// out of time.
	calls    context.Context
	endCalls context.CancelCauseFunc
	// idleCalls and idleBatches are there to be used again.
	idleCalls, idleBatches sync.Pool

	// mu guards what follows, the lanes, and which calls are taken.
	mu sync.Mutex
	// main has the calls of all keys that have no lane of their own.
	main lane[T, R]
	// apart has a lane for each key that was in a late batch. A lane ends when a batch of it was in time, or when
	// nothing of its key is under way any more.
	apart map[string]*lane[T, R]
	// alarm overtakes the batch of main; nil before the first.
	alarm *time.Timer
	// pending is the size of all items that wait or are under way.
	pending int64
	// underWay counts the batches between start and their last answer, and the calls between Begin and End.
	// While it is 0 nothing waits.
	underWay int
	closed   bool
	// idle is made by Close and closed when nothing is under way.
	idle chan struct{}
}

// lane is a line of calls that go one batch after the other. While calls wait one is under way.
type lane[T, R any] struct {
	first, last *call[T, R]
	// current is the batch that those who wait wait for.
	current *batch[T, R]
	// key is that of all its calls; empty in main.
	key string
	// behind counts the overtaken batches that have the key.
	behind int
}

// call is one Do under way.
type call[T, R any] struct {
	item T
	size int64
	lane *lane[T, R]
	// taken tells that the item is in a batch, so that its caller cannot take it back.
	taken      bool
	prev, next *call[T, R] // in lane, while it waits

	// answer and err are written before done receives, and read after.
	answer R
	err    error
	done   chan struct{}
}

// batch is a group of calls that go together. It belongs to the goroutine that carries it out, except as noted.
type batch[T, R any] struct {
	lane  *lane[T, R]
	calls []*call[T, R]
	items []T
	bytes int64
	began time.Time
	// late is when it is overtaken; zero while nobody waits behind it. Guarded by mu.
	late time.Time
	// overtaken tells that main has gone on without it, apart which lanes its keys got then. Guarded by mu.
	overtaken bool
	apart     []*lane[T, R]

	answers []R
	err     error
}

// New returns a Batcher.
func New[T, R any](cfg Config[T, R]) *Batcher[T, R] {
	b := &Batcher[T, R]{cfg: cfg}
	b.calls, b.endCalls = context.WithCancelCause(context.Background())
	b.idleCalls.New = func() any { return &call[T, R]{done: make(chan struct{}, 1)} }
	b.idleBatches.New = func() any { return new(batch[T, R]) }
	return b
}

// Do sends item with the next batch and returns its answer. When ctx ends while the item waits, it is taken out
// again and the error is ctx's. When it is under way already, the error wraps Indeterminate too, and Run may go on
// reading the item.
func (b *Batcher[T, R]) Do(ctx context.Context, item T) (R, error) {
	var none R
	if ctx.Err() != nil {
		return none, fmt.Errorf("%s: %w", b.cfg.Op, contextError(ctx))
	}
	c, err := b.enqueue(item)
	if err != nil {
		return none, err
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		if err := b.leave(ctx, c); err != nil {
			return none, err
		}
	}
	answer, err := c.answer, c.err
	*c = call[T, R]{done: c.done}
	b.idleCalls.Put(c)
	return answer, err
}

// enqueue puts item into its lane and sees that a batch is under way there.
func (b *Batcher[T, R]) enqueue(item T) (*call[T, R], error) {
	size := b.cfg.Size(item)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, fmt.Errorf("%s: %w", b.cfg.Op, b.cfg.Closed)
	}
	if b.pending > 0 && size > b.cfg.MaxPending-b.pending {
		return nil, fmt.Errorf("%s: %d bytes are under way to the store already, at most %d are allowed: try again later: %w",
			b.cfg.Op, b.pending, b.cfg.MaxPending, b.cfg.Overloaded)
	}
	c := b.idleCalls.Get().(*call[T, R])
	c.item, c.size = item, size
	b.pending += size
	l := b.laneOf(item)
	l.append(c)
	if l.current == nil {
		go b.drain(b.take(l))
	} else if l == &b.main {
		b.setAlarm()
	}
	return c, nil
}

// laneOf returns the lane of item. The caller holds mu.
func (b *Batcher[T, R]) laneOf(item T) *lane[T, R] {
	if len(b.apart) > 0 {
		if l := b.apart[b.key(item)]; l != nil {
			return l
		}
	}
	return &b.main
}

func (b *Batcher[T, R]) key(item T) string {
	if b.cfg.Key == nil {
		return ""
	}
	return b.cfg.Key(item)
}

// leave takes the call out because ctx has ended. The error is nil when the answer is there all the same.
func (b *Batcher[T, R]) leave(ctx context.Context, c *call[T, R]) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-c.done:
		return nil
	default:
	}
	if c.taken {
		return fmt.Errorf("%s: %w: %w", b.cfg.Op, b.cfg.Indeterminate, contextError(ctx))
	}
	c.lane.remove(c)
	b.pending -= c.size
	return fmt.Errorf("%s: %w", b.cfg.Op, contextError(ctx))
}

// take makes a batch of the calls that wait first in l, of which there is one, and makes it current. The caller
// holds mu.
func (b *Batcher[T, R]) take(l *lane[T, R]) *batch[T, R] {
	t := b.idleBatches.Get().(*batch[T, R])
	t.lane, t.began = l, time.Now()
	for c := l.first; c != nil && len(t.calls) < b.cfg.MaxItems; c = l.first {
		if t.bytes+c.size > b.cfg.MaxBytes && len(t.calls) > 0 {
			break
		}
		l.remove(c)
		c.taken = true
		t.calls, t.items = append(t.calls, c), append(t.items, c.item)
		t.bytes += c.size
	}
	l.current = t
	b.underWay++
	if l == &b.main && l.first != nil {
		b.setAlarm()
	}
	return t
}

// drain carries out one batch after the other until no call waits in their lane.
func (b *Batcher[T, R]) drain(t *batch[T, R]) {
	for t != nil {
		b.run(t)
		t = b.answer(t)
	}
}

// run calls Run. One that panics, or ends the goroutine, leaves nobody waiting.
func (b *Batcher[T, R]) run(t *batch[T, R]) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if p := recover(); p != nil {
			t.err = fmt.Errorf("%s: the store panicked: %v\n%s: %w", b.cfg.Op, p, debug.Stack(), b.cfg.Indeterminate)
			return
		}
		t.err = fmt.Errorf("%s: the store ended the goroutine of the call: %w", b.cfg.Op, b.cfg.Indeterminate)
		go b.drain(b.answer(t))
	}()
	t.answers, t.err = b.Call(b.calls, t.items)
	returned = true
}

// answer gives the callers of t their answers and returns the batch to carry out next, or nil.
func (b *Batcher[T, R]) answer(t *batch[T, R]) (next *batch[T, R]) {
	b.mu.Lock()
	b.pending -= t.bytes // before the answers: a caller's next item must not be refused for the room of this one
	b.mu.Unlock()
	for i, c := range t.calls {
		if c.err = t.err; t.err == nil {
			c.answer = t.answers[i]
		}
		c.done <- struct{}{} // has room
	}
	if len(t.calls) > 1 {
		// The callers often come back at once. Letting them run first makes one batch of them, instead of two
		// groups that wait for each other. A lone call never yields.
		runtime.Gosched()
	}
	b.mu.Lock()
	next = b.finish(t)
	b.end()
	b.mu.Unlock()
	clear(t.calls)
	clear(t.items)
	*t = batch[T, R]{calls: t.calls[:0], items: t.items[:0]}
	b.idleBatches.Put(t)
	return next
}

// finish takes t out of its lane and returns the batch that the same goroutine carries out next, or nil. The caller
// holds mu.
func (b *Batcher[T, R]) finish(t *batch[T, R]) *batch[T, R] {
	l := t.lane
	switch {
	case t.overtaken:
		for _, l := range t.apart {
			l.behind--
			b.drop(l)
		}
		return nil
	case l != &b.main && time.Since(t.began) < b.cfg.Late:
		l.current = nil
		b.rejoin(l)
		return nil
	case l.first != nil:
		return b.take(l)
	}
	l.current = nil
	b.drop(l)
	return nil
}

// drop forgets a lane that is not needed any more. The caller holds mu.
func (b *Batcher[T, R]) drop(l *lane[T, R]) {
	if l.current == nil && l.behind == 0 && b.apart[l.key] == l {
		delete(b.apart, l.key)
	}
}

// setAlarm has the batch under way in main overtaken when it is late. The caller holds mu.
func (b *Batcher[T, R]) setAlarm() {
	t := b.main.current
	if !t.late.IsZero() {
		return
	}
	t.late = t.began.Add(b.cfg.Late)
	if b.alarm == nil {
		b.alarm = time.AfterFunc(time.Until(t.late), b.overtake)
		return
	}
	b.alarm.Reset(time.Until(t.late))
}

// overtake gives the keys of a late batch lanes of their own, and lets those that wait behind it go on. The alarm
// calls it.
func (b *Batcher[T, R]) overtake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.main.current
	if t == nil || t.late.IsZero() || time.Now().Before(t.late) {
		return // it was an earlier batch's alarm
	}
	t.overtaken = true
	b.main.current = nil
	if b.apart == nil {
		b.apart = make(map[string]*lane[T, R])
	}
	seen := make(map[string]bool)
	for _, item := range t.items {
		key := b.key(item)
		if seen[key] {
			continue
		}
		seen[key] = true
		l := b.apart[key]
		if l == nil {
			l = &lane[T, R]{key: key}
			b.apart[key] = l
		}
		l.behind++
		t.apart = append(t.apart, l)
	}
	for c, next := b.main.first, (*call[T, R])(nil); c != nil; c = next {
		next = c.next
		if l := b.laneOf(c.item); l != &b.main {
			b.main.remove(c)
			l.append(c)
		}
	}
	if b.main.first != nil {
		go b.drain(b.take(&b.main))
	}
	for _, l := range t.apart {
		if l.first != nil && l.current == nil {
			go b.drain(b.take(l))
		}
	}
}

// rejoin puts the calls of l, whose last batch was in time, into main. The caller holds mu.
func (b *Batcher[T, R]) rejoin(l *lane[T, R]) {
	delete(b.apart, l.key)
	if l.first == nil {
		return
	}
	for c := l.first; c != nil; c = l.first {
		l.remove(c)
		b.main.append(c)
	}
	if b.main.current == nil {
		go b.drain(b.take(&b.main))
	} else {
		b.setAlarm()
	}
}

// Begin announces calls that are made beside the batches, so that Close waits for them. Each Begin that succeeds
// needs its End.
func (b *Batcher[T, R]) Begin() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return fmt.Errorf("%s: %w", b.cfg.Op, b.cfg.Closed)
	}
	b.underWay++
	return nil
}

// End ends what Begin announced.
func (b *Batcher[T, R]) End() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.end()
}

// end notes that something is not under way any more. The caller holds mu.
func (b *Batcher[T, R]) end() {
	b.underWay--
	if b.idle != nil && b.underWay == 0 {
		close(b.idle)
		b.idle = nil
	}
}

// Call calls Run unless ctx has ended, which is then a definite error, and checks that there is an answer for each item.
func (b *Batcher[T, R]) Call(ctx context.Context, items []T) ([]R, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s: %w", b.cfg.Op, contextError(ctx))
	}
	answers, err := b.cfg.Run(ctx, items)
	if err == nil && len(answers) != len(items) {
		return nil, fmt.Errorf("%s: the store gave %d answers for %d items: %w", b.cfg.Op, len(answers), len(items), b.cfg.Indeterminate)
	}
	return answers, err
}

// Fits returns how many of items, at least one, make up a batch within the bounds.
func (b *Batcher[T, R]) Fits(items []T) int {
	bytes := int64(0)
	for i, item := range items[:min(len(items), b.cfg.MaxItems)] {
		if bytes += b.cfg.Size(item); bytes > b.cfg.MaxBytes && i > 0 {
			return i
		}
	}
	return min(len(items), b.cfg.MaxItems)
}

// Close refuses further calls and waits for those under way, those that wait included. When ctx ends first, Close
// refuses those that wait as well, ends the context of Run, and returns ctx's error without waiting any longer. It
// may be called again to wait further.
func (b *Batcher[T, R]) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	if b.underWay == 0 {
		b.mu.Unlock()
		return nil
	}
	if b.idle == nil {
		b.idle = make(chan struct{})
	}
	idle := b.idle
	b.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuse(&b.main)
	for _, l := range b.apart {
		b.refuse(l)
	}
	b.endCalls(b.cfg.Closed)
	return fmt.Errorf("%s: calls are still under way: %w", b.cfg.Op, contextError(ctx))
}

// refuse answers those that wait in l that the Batcher is closed. The caller holds mu.
func (b *Batcher[T, R]) refuse(l *lane[T, R]) {
	for c := l.first; c != nil; c = l.first {
		l.remove(c)
		b.pending -= c.size
		c.err = fmt.Errorf("%s: %w", b.cfg.Op, b.cfg.Closed)
		c.done <- struct{}{} // has room
	}
}

func (l *lane[T, R]) append(c *call[T, R]) {
	c.lane, c.prev = l, l.last
	if l.last == nil {
		l.first = c
	} else {
		l.last.next = c
	}
	l.last = c
}

func (l *lane[T, R]) remove(c *call[T, R]) {
	if c.prev == nil {
		l.first = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		l.last = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.prev, c.next = nil, nil
}

// contextError returns an error that wraps ctx.Err, and the cause if it is another.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == err {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}
