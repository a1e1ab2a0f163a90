// Package batch turns concurrent single calls into calls of many items. No timer holds a call back:
// a lone call is sent at once, and calls that arrive while a batch is under way form the next
// batch. Where many calls wait, a second batch goes beside the first one (Config.Beside). A batch
// that takes longer than Config.Late is overtaken: the calls that wait for it are sent without it,
// and each key of its items is isolated in a queue of its own. So one slow key delays the calls of
// other keys by no more than Config.Late, except those that are in one batch with it.
package batch

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// Config says what a Batcher does. Run, Size, the bounds and the errors are required.
type Config[T, R any] struct {
	// Op names the operation in errors.
	Op string
	// Run carries out a batch of at least one item. It returns one answer for each item, or an
	// error that every caller of the batch gets. Several calls of Run may be under way at once. Run
	// must not keep items after it has returned, because the Batcher uses the slice again.
	Run func(ctx context.Context, items []T) ([]R, error)
	// Size is an item's share of MaxBytes and MaxPending, at least 1.
	Size func(T) int64
	// Key returns the key of an item. Items of one key are isolated together when their batch is
	// late. A nil Key gives all items the same key.
	Key func(T) string
	// MaxItems and MaxBytes bound one batch; an item larger than MaxBytes is a batch of its own.
	MaxItems int
	MaxBytes int64
	// MaxPending bounds the size of all items that wait or are under way; beyond it Do returns
	// Overloaded. When nothing else waits or is under way, an item of any size is accepted.
	MaxPending int64
	// Late is how long a batch may take before the next batch is sent without waiting for it.
	Late time.Duration
	// Beside is how many calls must wait for one batch before they are sent beside it, as a second
	// batch, and the least number of calls that such batches are divided into. So while one batch
	// waits for a disk or a network, the next one is prepared. With 0 there is never a second
	// batch, except beside a late one.
	Beside int
	// Closed, Overloaded and Indeterminate are the errors that answers wrap: Closed after Close,
	// Overloaded when MaxPending is reached, Indeterminate when it is unknown whether Run has
	// carried out an item.
	Closed, Overloaded, Indeterminate error
}

// A Batcher coalesces concurrent calls into batches. All methods are safe for concurrent use. A
// Batcher that is dropped without Close leaks nothing, because it has no goroutine while nothing is
// under way.
//
// The calls of one goroutine take effect in their order, because each begins after the answer to
// the call before it. The exception is a call whose context ended: it may take effect after the
// next call.
type Batcher[T, R any] struct {
	cfg Config[T, R]
	// calls is the context of Run for every batch. It is not the context of a caller, because a
	// batch serves several callers. It ends when the context of Close ends before the last batch
	// has returned.
	calls    context.Context
	endCalls context.CancelCauseFunc
	// idleCalls and idleBatches keep calls and batches for reuse.
	idleCalls, idleBatches sync.Pool

	// mu guards the fields below, the queues, and call.inBatch.
	mu sync.Mutex
	// main holds the waiting calls of all keys that are not isolated.
	main callQueue[T, R]
	// isolated has a queue for each key that was in a late batch. A key leaves it when a batch of
	// its queue was in time, or when nothing of the key is under way any more.
	isolated map[string]*callQueue[T, R]
	// alarm is the timer that calls overtake; nil until it is set for the first time.
	alarm *time.Timer
	// pending is the size of all items that wait or are under way.
	pending int64
	// underWay counts the batches from their start to their last answer, and the calls between
	// Begin and End. While it is 0 no call waits.
	underWay int
	closed   bool
	// idle is made by a Close that has to wait, and closed and set to nil when underWay reaches 0.
	idle chan struct{}
}

// callQueue is a linked list of the calls that wait for one another: it has at most one current
// batch at a time, and main at most two if Config.Beside allows it. While calls wait in it, there
// is a current batch; Config.Beside or more wait in main only while there are two.
type callQueue[T, R any] struct {
	first, last *call[T, R]
	// waiting is the number of calls in the list.
	waiting int
	// current has the batches that the waiting calls wait for, the oldest one first.
	current []*batch[T, R]
	// key is the key of all calls in the queue; empty in main, which has calls of many keys.
	key string
	// overtaken counts the overtaken batches under way that have items of the key.
	overtaken int
}

// call is one Do under way.
type call[T, R any] struct {
	item  T
	size  int64
	queue *callQueue[T, R]
	// inBatch reports that the item is in a batch, so that its caller cannot withdraw it any more.
	inBatch    bool
	prev, next *call[T, R] // in queue, while the call waits

	// answer and err are written before the send on done, and read after the receive.
	answer R
	err    error
	done   chan struct{}
}

// batch is the calls that one Run carries out. queue, calls, items and began do not change while
// the batch is a current one, so share, setAlarm and overtake may read them with mu held. The other
// fields belong to the goroutine that carries the batch out, except those that mu guards.
type batch[T, R any] struct {
	queue *callQueue[T, R]
	calls []*call[T, R]
	items []T
	bytes int64
	began time.Time
	// late is when the batch will be overtaken; zero until a call waits for it in main. Guarded by
	// mu.
	late time.Time
	// overtaken reports that main goes on without the batch; isolated has the queues of its keys
	// since then. Guarded by mu.
	overtaken bool
	isolated  []*callQueue[T, R]

	answers []R
	err     error
}

// New returns a Batcher. It does not check cfg.
func New[T, R any](cfg Config[T, R]) *Batcher[T, R] {
	b := &Batcher[T, R]{cfg: cfg}
	b.calls, b.endCalls = context.WithCancelCause(context.Background())
	b.idleCalls.New = func() any { return &call[T, R]{done: make(chan struct{}, 1)} }
	b.idleBatches.New = func() any { return new(batch[T, R]) }
	return b
}

// Do sends item with the next batch and returns its answer. When ctx ends while the item waits, Do
// withdraws the item and returns an error that wraps ctx.Err. When the item is under way already,
// the error wraps Indeterminate too, and Run may go on reading the item.
//
// When item has no batch to wait for and ctx can never end, as context.Background, Do calls Run on
// the caller's goroutine, because the caller waits for Run anyway and to hand the item over to
// another goroutine and back costs more than the rest of Do. If Run ends the goroutine
// (runtime.Goexit), that is then the caller's. A caller whose ctx can end needs another goroutine
// for Run, so that it can leave while Run still works.
func (b *Batcher[T, R]) Do(ctx context.Context, item T) (R, error) {
	var none R
	if ctx.Err() != nil {
		return none, fmt.Errorf("%s: %w", b.cfg.Op, contextError(ctx))
	}
	c, t, err := b.enqueue(item)
	if err != nil {
		return none, err
	}
	switch {
	case t == nil:
	case ctx.Done() == nil:
		b.carryOut(t)
	default:
		go b.drain(t)
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		if err := b.withdraw(ctx, c); err != nil {
			return none, err
		}
	}
	answer, err := c.answer, c.err
	*c = call[T, R]{done: c.done}
	b.idleCalls.Put(c)
	return answer, err
}

// enqueue appends item to its queue. If the item need not wait there, enqueue also returns its
// batch, which the caller has to carry out.
func (b *Batcher[T, R]) enqueue(item T) (*call[T, R], *batch[T, R], error) {
	size := b.cfg.Size(item)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, nil, fmt.Errorf("%s: %w", b.cfg.Op, b.cfg.Closed)
	}
	if b.pending > 0 && size > b.cfg.MaxPending-b.pending {
		return nil, nil, fmt.Errorf("%s: %d bytes are under way to the store already, at most %d are allowed: try again later: %w",
			b.cfg.Op, b.pending, b.cfg.MaxPending, b.cfg.Overloaded)
	}
	c := b.idleCalls.Get().(*call[T, R])
	c.item, c.size = item, size
	b.pending += size
	q := b.queueOf(item)
	q.append(c)
	if b.mayStart(q) {
		t := b.nextBatch(q)
		if c.inBatch {
			return c, t, nil
		}
		go b.drain(t) // the calls that came before fill the batch
	}
	if q == &b.main {
		b.setAlarm()
	}
	return c, nil, nil
}

// mayStart reports whether calls wait in q that are to be sent now. The caller holds mu.
func (b *Batcher[T, R]) mayStart(q *callQueue[T, R]) bool {
	if q == &b.main && len(q.current) == 1 {
		return b.cfg.Beside > 0 && q.waiting >= b.cfg.Beside
	}
	return len(q.current) == 0 && q.first != nil
}

// share returns how many calls the next batch of q may have: half of those that wait or are under
// way if there can be a second batch, so that both are about as large. The caller holds mu.
func (b *Batcher[T, R]) share(q *callQueue[T, R]) int {
	if q != &b.main || b.cfg.Beside == 0 {
		return b.cfg.MaxItems
	}
	all := q.waiting
	for _, t := range q.current {
		all += len(t.calls)
	}
	return min(b.cfg.MaxItems, max(b.cfg.Beside, (all+1)/2))
}

// queueOf returns the queue in which item has to wait. The caller holds mu.
func (b *Batcher[T, R]) queueOf(item T) *callQueue[T, R] {
	if len(b.isolated) > 0 {
		if q := b.isolated[b.key(item)]; q != nil {
			return q
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

// withdraw removes c from its queue because ctx has ended, and returns the error for its caller. It
// returns nil when the answer of c has arrived meanwhile.
func (b *Batcher[T, R]) withdraw(ctx context.Context, c *call[T, R]) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-c.done:
		return nil
	default:
	}
	if c.inBatch {
		return fmt.Errorf("%s: %w: %w", b.cfg.Op, b.cfg.Indeterminate, contextError(ctx))
	}
	c.queue.remove(c)
	b.pending -= c.size
	return fmt.Errorf("%s: %w", b.cfg.Op, contextError(ctx))
}

// nextBatch moves the first calls of q, which is not empty, into a batch that becomes a current
// one. The caller holds mu.
func (b *Batcher[T, R]) nextBatch(q *callQueue[T, R]) *batch[T, R] {
	t := b.idleBatches.Get().(*batch[T, R])
	t.queue, t.began = q, time.Now()
	most := b.share(q)
	for c := q.first; c != nil && len(t.calls) < most; c = q.first {
		if t.bytes+c.size > b.cfg.MaxBytes && len(t.calls) > 0 {
			break
		}
		q.remove(c)
		c.inBatch = true
		t.calls, t.items = append(t.calls, c), append(t.items, c.item)
		t.bytes += c.size
	}
	q.current = append(q.current, t)
	b.underWay++
	if q == &b.main && q.first != nil {
		b.setAlarm()
	}
	return t
}

// drain carries out t and then the batches that answer returns, one after the other. It is the
// whole work of a goroutine.
func (b *Batcher[T, R]) drain(t *batch[T, R]) {
	growStack(-1)
	for t != nil {
		b.run(t)
		t = b.answer(t)
	}
}

// carryOut carries out t on the goroutine of a caller. The calls that have come meanwhile go on
// without that caller, so that it has its answer at once.
func (b *Batcher[T, R]) carryOut(t *batch[T, R]) {
	b.run(t)
	if next := b.answer(t); next != nil {
		go b.drain(next)
	}
}

// growStack has the stack of a new goroutine grow to 16 KiB, which most calls of a store need, in
// one step. Otherwise the stack grows several times while Run calls deeper and deeper, and each
// time what is on it has to be copied and adjusted. Go makes room for the whole frame when the
// function is called, so at is below 0 and the frame is never used.
//
//go:noinline
func growStack(at int) byte {
	if at < 0 {
		return 0
	}
	var frame [12 << 10]byte
	for i := range frame {
		frame[i] = byte(at >> (i % 8))
	}
	return frame[at]
}

// run calls Run for t. If Run panics or ends the goroutine (runtime.Goexit), the callers get an
// error that wraps Indeterminate; after a Goexit another goroutine carries on, because this one
// cannot. A caller that carries out t itself gets no error then, because its goroutine ends.
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
	b.pending -= t.bytes // before the answers, so that a caller's next item is not refused because of this one
	b.mu.Unlock()
	for i, c := range t.calls {
		if c.err = t.err; t.err == nil {
			c.answer = t.answers[i]
		}
		c.done <- struct{}{} // has room
	}
	if len(t.calls) > 1 {
		// The callers often have a next item at once. If they run first, their items form one
		// batch; otherwise the callers split into two groups, each of which waits for the batch of
		// the other.
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

// finish ends t, and returns the batch to carry out next, or nil. The caller holds mu.
func (b *Batcher[T, R]) finish(t *batch[T, R]) *batch[T, R] {
	q := t.queue
	if t.overtaken {
		for _, q := range t.isolated {
			q.overtaken--
			b.drop(q)
		}
		return nil
	}
	q.ended(t)
	switch {
	case q != &b.main && time.Since(t.began) < b.cfg.Late:
		b.rejoin(q)
	case b.mayStart(q):
		return b.nextBatch(q)
	case q.first != nil:
		b.setAlarm() // for the other batch of main, because the calls wait for that now
	default:
		b.drop(q)
	}
	return nil
}

// drop ends the isolation of q's key when nothing of the key is under way. The caller holds mu.
func (b *Batcher[T, R]) drop(q *callQueue[T, R]) {
	if len(q.current) == 0 && q.overtaken == 0 && b.isolated[q.key] == q {
		delete(b.isolated, q.key)
	}
}

// setAlarm sets the timer that overtakes the oldest current batch of main once it is late. A call
// waits for that batch. The caller holds mu.
func (b *Batcher[T, R]) setAlarm() {
	t := b.main.current[0]
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

// overtake isolates the keys of the oldest current batch of main if that batch is late: each key
// gets a queue of its own, to which its waiting calls move, and the other calls of main go on
// without waiting for the batch. The alarm calls it.
func (b *Batcher[T, R]) overtake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.main.current) == 0 {
		return // the batch for which the alarm was set has ended
	}
	t := b.main.current[0]
	if t.late.IsZero() || time.Now().Before(t.late) {
		return // the alarm was set for an earlier batch
	}
	t.overtaken = true
	b.main.ended(t)
	if b.isolated == nil {
		b.isolated = make(map[string]*callQueue[T, R])
	}
	seen := make(map[string]bool)
	for _, item := range t.items {
		key := b.key(item)
		if seen[key] {
			continue
		}
		seen[key] = true
		q := b.isolated[key]
		if q == nil {
			q = &callQueue[T, R]{key: key}
			b.isolated[key] = q
		}
		q.overtaken++
		t.isolated = append(t.isolated, q)
	}
	for c, next := b.main.first, (*call[T, R])(nil); c != nil; c = next {
		next = c.next
		if q := b.queueOf(c.item); q != &b.main {
			b.main.remove(c)
			q.append(c)
		}
	}
	b.goOn()
	for _, q := range t.isolated {
		if b.mayStart(q) {
			go b.drain(b.nextBatch(q))
		}
	}
}

// goOn sends the calls of main that need not wait, and sets the alarm for those that have to. The
// caller holds mu.
func (b *Batcher[T, R]) goOn() {
	for b.mayStart(&b.main) {
		go b.drain(b.nextBatch(&b.main))
	}
	if b.main.first != nil {
		b.setAlarm()
	}
}

// rejoin ends the isolation of q's key, because the last batch of q was in time, and moves the
// calls of q to main. The caller holds mu.
func (b *Batcher[T, R]) rejoin(q *callQueue[T, R]) {
	delete(b.isolated, q.key)
	if q.first == nil {
		return
	}
	for c := q.first; c != nil; c = q.first {
		q.remove(c)
		b.main.append(c)
	}
	b.goOn()
}

// Begin announces a call of the store that does not pass through the Batcher, so that Close waits
// for it. It fails with an error that wraps Closed after Close. Each Begin that succeeds needs one
// End.
func (b *Batcher[T, R]) Begin() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return fmt.Errorf("%s: %w", b.cfg.Op, b.cfg.Closed)
	}
	b.underWay++
	return nil
}

// End notes that the call that Begin announced has returned.
func (b *Batcher[T, R]) End() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.end()
}

// end counts a batch or an announced call as ended, and wakes Close after the last one. The caller
// holds mu.
func (b *Batcher[T, R]) end() {
	b.underWay--
	if b.idle != nil && b.underWay == 0 {
		close(b.idle)
		b.idle = nil
	}
}

// Call calls Run, past all queues, and checks that Run returned an answer for each item. If ctx has
// ended already, Call does not call Run, and the error does not wrap Indeterminate.
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

// Fits returns how many of items, counted from the first, one batch may have within MaxItems and
// MaxBytes. The first item always fits.
func (b *Batcher[T, R]) Fits(items []T) int {
	bytes := int64(0)
	for i, item := range items[:min(len(items), b.cfg.MaxItems)] {
		if bytes += b.cfg.Size(item); bytes > b.cfg.MaxBytes && i > 0 {
			return i
		}
	}
	return min(len(items), b.cfg.MaxItems)
}

// Close refuses further calls, and waits until the calls that wait and those under way have their
// answers. When ctx ends first, Close refuses the calls that wait as well, ends the context of Run,
// and returns an error that wraps ctx.Err without waiting for Run to return. A further Close waits
// again.
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
	for _, q := range b.isolated {
		b.refuse(q)
	}
	b.endCalls(b.cfg.Closed)
	return fmt.Errorf("%s: calls are still under way: %w", b.cfg.Op, contextError(ctx))
}

// refuse answers the calls that wait in q with Closed. The caller holds mu.
func (b *Batcher[T, R]) refuse(q *callQueue[T, R]) {
	for c := q.first; c != nil; c = q.first {
		q.remove(c)
		b.pending -= c.size
		c.err = fmt.Errorf("%s: %w", b.cfg.Op, b.cfg.Closed)
		c.done <- struct{}{} // has room
	}
}

func (q *callQueue[T, R]) append(c *call[T, R]) {
	q.waiting++
	c.queue, c.prev = q, q.last
	if q.last == nil {
		q.first = c
	} else {
		q.last.next = c
	}
	q.last = c
}

func (q *callQueue[T, R]) remove(c *call[T, R]) {
	q.waiting--
	if c.prev == nil {
		q.first = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		q.last = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.prev, c.next = nil, nil
}

// ended takes t out of the current batches.
func (q *callQueue[T, R]) ended(t *batch[T, R]) {
	q.current = slices.DeleteFunc(q.current, func(other *batch[T, R]) bool { return other == t })
}

// contextError returns an error that wraps ctx.Err, and also context.Cause of ctx if that is
// another error.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == err {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}
