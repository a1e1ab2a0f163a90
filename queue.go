package punctual

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// Queue is the push side: it stores messages and changes those that wait. It gathers
// concurrent single calls into batches for the store, without a timer: while one batch
// is on its way the next gathers, and a lone call goes at once. All methods are safe for
// concurrent use; calls made one after the other take effect in that order.
//
// A call whose context ends while it waits for its turn definitely did nothing. When the
// store has the call already, the error wraps ErrIndeterminate: it may or may not have
// happened. Repeat it with the same ID, or look. Since a batch serves many callers, the
// values of a caller's context do not reach the store.
//
// A Queue that is no longer used needs no Close, which only waits for what is under way.
type Queue struct {
	store    Store
	observer *Observer
	maxBatch int
	// refusal is what every call returns if the configuration is not valid.
	refusal error

	pushes *coalescer[NewMessage, PushResult]
	amends *coalescer[Amendment, Outcome]
}

// QueueConfig adjusts a Queue. The zero value has the defaults.
type QueueConfig struct {
	// MaxBatch is the number of items that go to the store in one call, 1 to the
	// constant MaxBatch. Default 1000.
	MaxBatch int
	// MaxPendingBytes bounds what single pushes under way to the store hold in memory, and
	// once more single amendments; beyond it they fail with ErrOverloaded (P10). A call
	// that finds nothing under way passes whatever its size. Default 64 MiB.
	MaxPendingBytes int64
	// Observer, if not nil, is told of every push and amendment.
	Observer *Observer
}

const (
	defaultMaxBatch        = 1000
	defaultMaxPendingBytes = 64 << 20
	// maxBatchBytes bounds one call to the store, unless a single message is larger, so
	// that a batch of large bodies does not keep small ones waiting for long.
	maxBatchBytes = 4 << 20
	// itemBytes is what an item takes in memory beside its body, headers and names.
	itemBytes = 256
)

// NewQueue returns a Queue on s. A nil c is the zero QueueConfig. With a nil store or a
// configuration that is not valid every call of the Queue returns ErrInvalid.
func NewQueue(s Store, c *QueueConfig) *Queue {
	if c == nil {
		c = &QueueConfig{}
	}
	q := &Queue{store: s, observer: c.Observer, maxBatch: c.MaxBatch, refusal: checkQueue(s, c)}
	if q.maxBatch == 0 {
		q.maxBatch = defaultMaxBatch
	}
	pending := c.MaxPendingBytes
	if pending == 0 {
		pending = defaultMaxPendingBytes
	}
	cfg := coalesceConfig{maxItems: q.maxBatch, maxBytes: maxBatchBytes, maxPending: pending}
	cfg.op = "push"
	q.pushes = newCoalescer(cfg, messageBytes, q.storePush)
	cfg.op = "amend"
	q.amends = newCoalescer(cfg, amendmentBytes, q.storeAmend)
	return q
}

func checkQueue(s Store, c *QueueConfig) error {
	switch {
	case s == nil:
		return invalidf("queue has no store: give NewQueue one")
	case c.MaxBatch < 0 || c.MaxBatch > MaxBatch:
		return invalidf("queue with MaxBatch %d: use 1 to %d, or 0 for %d", c.MaxBatch, MaxBatch, defaultMaxBatch)
	case c.MaxPendingBytes < 0:
		return invalidf("queue with MaxPendingBytes %d: use a positive number, or 0 for %d", c.MaxPendingBytes, defaultMaxPendingBytes)
	}
	return nil
}

func messageBytes(m NewMessage) int64 {
	return int64(itemBytes + len(m.Topic) + len(m.ID) + len(m.Body) + headerBytes(m.Headers))
}

func amendmentBytes(a Amendment) int64 { return int64(itemBytes + len(a.Topic) + len(a.ID)) }

// Store returns the store that the queue works on.
func (q *Queue) Store() Store { return q.store }

// Push stores one message, due now unless an option says otherwise. When it returns
// without an error the message is as durable as the store promises (P1). A message that
// was refused is an error, too; the result's Status tells a new message from one that was
// kept or replaced. body is the caller's again after return, whatever the outcome.
func (q *Queue) Push(ctx context.Context, topic string, body []byte, opts ...PushOption) (PushResult, error) {
	m, err := Compose(topic, body, opts...)
	if err != nil {
		return PushResult{Topic: topic, Err: err}, fmt.Errorf("push: %w", err)
	}
	if ctx.Done() != nil {
		m.Body = bytes.Clone(body) // the call may return while the store still reads
	}
	return q.pushOne(ctx, m)
}

// pushOne sends m with the next batch. m.Body must not change, even after return.
func (q *Queue) pushOne(ctx context.Context, m NewMessage) (PushResult, error) {
	if q.refusal != nil {
		return notPushed(m, q.refusal), q.refusal
	}
	start := time.Now()
	r, err := q.pushes.do(ctx, m)
	if err != nil {
		r = notPushed(m, err)
	} else if r.Err != nil {
		err = fmt.Errorf("push: %w", r.Err)
	}
	q.observer.pushed(r, time.Since(start))
	return r, err
}

// PushMany stores many messages and returns a result for each, in order. Messages take
// effect in order. A message that is refused has its PushResult.Err set and does not
// stop the others.
//
// More than QueueConfig.MaxBatch messages, or 4 MiB, go to the store in several parts.
// The error is not nil when a part failed as a whole; its messages then have that error
// as PushResult.Err while the results of other parts stand. If some parts did not fail,
// the error wraps ErrIndeterminate: look at the results.
func (q *Queue) PushMany(ctx context.Context, ms []NewMessage) ([]PushResult, error) {
	if q.refusal != nil {
		return nil, q.refusal
	}
	start := time.Now()
	rs, err := inParts(ctx, q.pushes, ms, notPushed)
	took := time.Since(start)
	for _, r := range rs {
		q.observer.pushed(r, took)
	}
	return rs, err
}

func notPushed(m NewMessage, err error) PushResult {
	return PushResult{ID: m.ID, Topic: m.Topic, Err: err}
}

// Cancel removes a message that nobody works on yet. The outcome is definite (P5):
// Cancelled, TooLate (leased: no further attempt will follow the one under way) or
// NotFound.
func (q *Queue) Cancel(ctx context.Context, topic, id string) (Outcome, error) {
	return q.amendOne(ctx, Amendment{Change: ChangeCancel, Topic: topic, ID: id})
}

// CancelMany is Cancel for a list of IDs, with an outcome for each, in order. Errors
// are as those of PushMany.
func (q *Queue) CancelMany(ctx context.Context, topic string, ids []string) ([]Outcome, error) {
	return q.amendMany(ctx, ChangeCancel, topic, ids, When{})
}

// Reschedule moves the due time of a scheduled or ready message to w, earlier or later,
// in one step; ID, body and attempts stay. The outcome is Rescheduled, TooLate (leased:
// nothing was changed) or NotFound.
func (q *Queue) Reschedule(ctx context.Context, topic, id string, w When) (Outcome, error) {
	return q.amendAt(ctx, Amendment{Change: ChangeReschedule, Topic: topic, ID: id}, w)
}

// RescheduleMany is Reschedule for a list of IDs, with an outcome for each, in order.
// Errors are as those of PushMany.
func (q *Queue) RescheduleMany(ctx context.Context, topic string, ids []string, w When) ([]Outcome, error) {
	return q.amendMany(ctx, ChangeReschedule, topic, ids, w)
}

// Requeue schedules a dead message for w, its attempts starting anew. The outcome is
// Requeued, NotDead or NotFound.
func (q *Queue) Requeue(ctx context.Context, topic, id string, w When) (Outcome, error) {
	return q.amendAt(ctx, Amendment{Change: ChangeRequeue, Topic: topic, ID: id}, w)
}

// RequeueMany is Requeue for a list of IDs, with an outcome for each, in order. Errors
// are as those of PushMany.
func (q *Queue) RequeueMany(ctx context.Context, topic string, ids []string, w When) ([]Outcome, error) {
	return q.amendMany(ctx, ChangeRequeue, topic, ids, w)
}

func (q *Queue) amendAt(ctx context.Context, a Amendment, w When) (Outcome, error) {
	if w.err != nil {
		return Outcome{Err: w.err}, fmt.Errorf("%s: %w", a.Change, w.err)
	}
	a.Due, a.Delay = w.due, w.delay
	return q.amendOne(ctx, a)
}

func (q *Queue) amendOne(ctx context.Context, a Amendment) (Outcome, error) {
	if q.refusal != nil {
		return Outcome{Err: q.refusal}, q.refusal
	}
	start := time.Now()
	o, err := q.amends.do(ctx, a)
	if err != nil {
		err = fmt.Errorf("%s: %w", a.Change, err)
		o = Outcome{Err: err}
	} else if o.Err != nil {
		err = fmt.Errorf("%s: %w", a.Change, o.Err)
	}
	q.observer.amended(a, o, time.Since(start))
	return o, err
}

func (q *Queue) amendMany(ctx context.Context, c Change, topic string, ids []string, w When) ([]Outcome, error) {
	if err := errors.Join(q.refusal, w.err); err != nil {
		return nil, fmt.Errorf("%s: %w", c, err)
	}
	as := make([]Amendment, len(ids))
	for i, id := range ids {
		as[i] = Amendment{Change: c, Topic: topic, ID: id, Due: w.due, Delay: w.delay}
	}
	start := time.Now()
	outs, err := inParts(ctx, q.amends, as, func(_ Amendment, err error) Outcome { return Outcome{Err: err} })
	took := time.Since(start)
	for i, o := range outs {
		q.observer.amended(as[i], o, took)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", c, err)
	}
	return outs, err
}

// Close refuses further calls with ErrClosed and waits for those under way; it does not
// close the store. When ctx ends first, single calls that still wait for their turn are
// refused as well, and Close returns an error that wraps ctx's; it may be called again.
func (q *Queue) Close(ctx context.Context) error {
	return errors.Join(q.pushes.close(ctx), q.amends.close(ctx))
}

func (q *Queue) storePush(ctx context.Context, ms []NewMessage) ([]PushResult, error) {
	rs, err := q.store.Push(ctx, ms)
	if err != nil {
		return nil, fmt.Errorf("push: %w", err)
	}
	return rs, nil
}

func (q *Queue) storeAmend(ctx context.Context, as []Amendment) ([]Outcome, error) {
	outs, err := q.store.Amend(ctx, as)
	if err != nil {
		return nil, fmt.Errorf("amend: %w", err)
	}
	return outs, nil
}

// inParts takes items to the store in parts within the bounds of c, apart from its
// batches, and returns an answer for each. A part that fails does not stop the next
// ones, so that each item's answer is what the store said of it; failed makes the answer
// of an item whose part failed. The error is that of the first part that failed, made
// indefinite if another one did not.
func inParts[T, R any](ctx context.Context, c *coalescer[T, R], items []T, failed func(T, error) R) ([]R, error) {
	if err := c.begin(); err != nil {
		return nil, err
	}
	defer c.end()
	answers := make([]R, 0, len(items))
	var first error
	lost := 0
	for rest := items; len(rest) > 0; {
		part := rest[:c.partLen(rest)]
		rest = rest[len(part):]
		got, err := c.callInTime(ctx, part)
		if err == nil {
			answers = append(answers, got...)
			continue
		}
		first = cmp.Or(first, err)
		lost += len(part)
		for _, item := range part {
			answers = append(answers, failed(item, err))
		}
	}
	if first == nil || lost == len(items) {
		return answers, first
	}
	return answers, fmt.Errorf("%d of %d items failed, the results tell which: %w: %w", lost, len(items), ErrIndeterminate, first)
}
