package punctual

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/punctualmq/punctual/internal/batch"
	"github.com/punctualmq/punctual/limits"
)

// Queue is the client of programs that push messages. It stores messages, and cancels, reschedules,
// requeues and deletes them. Concurrent calls for single messages share batches: the calls that
// arrive while one batch is on its way to the store form the next batch, or a second one beside it
// when they are 32. No timer holds a call back: one that comes alone is sent at once, and if its
// context can never end, as context.Background, it calls the store on the caller's goroutine, which
// costs less. All methods are safe for concurrent use; calls made one after the other take effect
// in that order, unless the context of one ends before its answer.
//
// A call whose context ends while it waits for its batch to be sent certainly did nothing. When the
// context ends after the store has been given the batch, the error wraps ErrIndeterminate, because
// the operation may or may not have happened; repeat it with the same ID, or read the message with
// Get. Since a batch serves many callers, the values of their contexts do not reach the store.
//
// A Queue that is no longer used need not be closed, because nothing of it is left once its calls
// have returned: Close only refuses further pushes and amendments and waits for those under way,
// or, when its context ends, cuts the calls for single messages short.
type Queue struct {
	store    Store
	observer *Observer
	prepare  func(ctx context.Context, m *NewMessage) error // may be nil
	maxBatch int
	// refusal is what every call returns if the configuration is not valid.
	refusal error

	// pushes and amends turn calls for single messages into calls of Store.Push and Store.Amend;
	// nil beside a refusal.
	pushes *batch.Batcher[NewMessage, PushResult]
	amends *batch.Batcher[Amendment, Amended]
}

// QueueConfig adjusts a Queue. The zero value has the defaults.
type QueueConfig struct {
	// MaxBatch is the most items that one call of the store gets, 1 to limits.MaxBatch. Default
	// 1000.
	MaxBatch int
	// MaxPendingBytes is the most memory that pushes of single messages may hold until the store
	// has answered. Amendments of single messages may hold as much again. A call beyond it fails
	// with ErrOverloaded (P10), unless nothing else is under way. Default 64 MiB.
	MaxPendingBytes int64
	// Observer, if not nil, is told of pushes and amendments, as its OnPush and OnAmend say.
	Observer *Observer
	// Prepare, if not nil, is called with each message of a Push or PushMany before it is sent, on
	// the caller's goroutine and with its context. It may change m, for example add the headers of
	// a trace; m.Headers is a map of this message alone and not nil. An error refuses the message,
	// and in a PushMany all messages of the call. Prepare is called from many goroutines at once.
	Prepare func(ctx context.Context, m *NewMessage) error
}

const (
	defaultMaxBatch        = 1000
	defaultMaxPendingBytes = 64 << 20
	// maxBatchBytes is the most bytes of one call of the store, unless a single message is larger,
	// so that small messages do not wait long behind a batch of large ones.
	maxBatchBytes = 4 << 20
	// lateBatch is how long a call of the store may take before the calls that wait are sent
	// without waiting for its end, and the topics of the late call get batches of their own (P14).
	lateBatch = 200 * time.Millisecond
	// callsBeside is how many calls must wait for a call of the store before they are sent beside
	// it. With 64 goroutines that push one by one there are then two calls of the store at a time,
	// of 32 messages each: while one waits for a disk or a network, the other one is prepared.
	// Smaller calls cost more than they gain (decision 18).
	callsBeside = 32
	// itemBytes is how much memory an item is counted with beside its body, headers and names.
	itemBytes = 256
)

// NewQueue returns a Queue on s. A nil c is the zero QueueConfig. With a nil store or a
// configuration that is not valid every call of the Queue returns ErrInvalid.
func NewQueue(s Store, c *QueueConfig) *Queue {
	if c == nil {
		c = &QueueConfig{}
	}
	q := &Queue{store: s, observer: c.Observer, prepare: c.Prepare, maxBatch: c.MaxBatch, refusal: checkQueue(s, c)}
	if q.refusal != nil {
		return q
	}
	if q.maxBatch == 0 {
		q.maxBatch = defaultMaxBatch
	}
	pending := c.MaxPendingBytes
	if pending == 0 {
		pending = defaultMaxPendingBytes
	}
	q.pushes = batch.New(batch.Config[NewMessage, PushResult]{
		Op: "push", Run: s.Push, Size: messageBytes, Key: func(m NewMessage) string { return m.Topic },
		MaxItems: q.maxBatch, MaxBytes: maxBatchBytes, MaxPending: pending, Late: lateBatch, Beside: callsBeside,
		Closed: ErrClosed, Overloaded: ErrOverloaded, Indeterminate: ErrIndeterminate,
	})
	q.amends = batch.New(batch.Config[Amendment, Amended]{
		Op: "amend", Run: s.Amend, Size: amendmentBytes, Key: func(a Amendment) string { return a.Topic },
		MaxItems: q.maxBatch, MaxBytes: maxBatchBytes, MaxPending: pending, Late: lateBatch, Beside: callsBeside,
		Closed: ErrClosed, Overloaded: ErrOverloaded, Indeterminate: ErrIndeterminate,
	})
	return q
}

func checkQueue(s Store, c *QueueConfig) error {
	switch {
	case s == nil:
		return invalidf("queue has no store: give NewQueue one")
	case c.MaxBatch < 0 || c.MaxBatch > limits.MaxBatch:
		return invalidf("queue with MaxBatch %d: use 1 to %d, or 0 for %d", c.MaxBatch, limits.MaxBatch, defaultMaxBatch)
	case c.MaxPendingBytes < 0:
		return invalidf("queue with MaxPendingBytes %d: use a positive number, or 0 for %d", c.MaxPendingBytes, defaultMaxPendingBytes)
	}
	return nil
}

func messageBytes(m NewMessage) int64 {
	n := itemBytes + len(m.Topic) + len(m.ID) + len(m.Body)
	for name, value := range m.Headers {
		n += len(name) + len(value)
	}
	return int64(n)
}

func amendmentBytes(a Amendment) int64 { return int64(itemBytes + len(a.Topic) + len(a.ID)) }

// Store returns the store that the queue works on.
func (q *Queue) Store() Store {
	if q == nil {
		return nil
	}
	return q.store
}

// Push stores one message, due now unless an option says otherwise. When it returns without an
// error the message is as durable as the store promises (P1), and the Status of the result tells
// whether the message is new, a duplicate or a replacement. A message that the store refused is an
// error, too. The caller may change body after Push has returned, whatever the outcome.
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

// pushOne sends m with the next batch. If ctx can end, m.Body must not change even after the
// return, because the store may still read it then.
func (q *Queue) pushOne(ctx context.Context, m NewMessage) (PushResult, error) {
	if err := q.refused(); err != nil {
		return notPushed(m, err), err
	}
	start := time.Now()
	var r PushResult
	err := q.prepared(ctx, &m)
	if err == nil {
		err = q.copiesFit(ctx, &m)
	}
	if err == nil {
		r, err = q.pushes.Do(ctx, m)
	}
	if err != nil {
		r = notPushed(m, err)
	}
	if err = r.Err; err != nil {
		err = operation("push", err)
	}
	q.observer.pushed(ctx, r, time.Since(start))
	return r, err
}

// PushMany stores many messages, in order, and returns a result for each, in the same order. The
// result of a refused message has its Err set; the other messages are stored all the same.
//
// The error is nil only if every message was stored or kept. Otherwise it wraps a *BatchError that
// says how many were not, or, if the Queue refuses the call as a whole, because it is closed or not
// valid or Prepare has failed, the error that says so, with nil results. More than
// QueueConfig.MaxBatch messages, or 4 MiB, are sent in several calls of the store, and a call that
// fails does not stop the next one.
func (q *Queue) PushMany(ctx context.Context, ms []NewMessage) ([]PushResult, error) {
	if err := q.refused(); err != nil {
		return nil, err
	}
	if q.prepare != nil {
		ms = slices.Clone(ms)
		for i := range ms {
			if err := q.prepared(ctx, &ms[i]); err != nil {
				return nil, fmt.Errorf("message %d of %d: %w", i+1, len(ms), err)
			}
		}
	}
	start := time.Now()
	rs, err := q.pushAll(ctx, ms)
	took := time.Since(start)
	for _, r := range rs {
		q.observer.pushed(ctx, r, took)
	}
	if err != nil {
		err = operation("push", err)
	}
	return rs, err
}

// pushAll sends messages to the store in as many calls as it takes. A message that could not be
// copied to the groups of its topic is refused alone.
func (q *Queue) pushAll(ctx context.Context, ms []NewMessage) ([]PushResult, error) {
	var tooLarge []PushResult // one for each of ms, empty for those that fit; nil if all fit
	fitting := ms
	for i := range ms {
		if err := q.copiesFit(ctx, &ms[i]); err != nil {
			if tooLarge == nil {
				tooLarge = make([]PushResult, len(ms))
				fitting = slices.Clone(ms[:i])
			}
			tooLarge[i] = notPushed(ms[i], err)
		} else if tooLarge != nil {
			fitting = append(fitting, ms[i])
		}
	}
	rs, err := inParts(ctx, "push", q.pushes, fitting, notPushed, func(r PushResult) error { return r.Err })
	if tooLarge == nil || rs == nil && len(fitting) > 0 {
		return rs, err
	}
	errs := make([]error, len(ms))
	for i := range tooLarge {
		if tooLarge[i].Err == nil {
			tooLarge[i], rs = rs[0], rs[1:]
		}
		errs[i] = tooLarge[i].Err
	}
	return tooLarge, NewBatchError("push", errs)
}

// copiesFit is CheckCopies with the settings of the store.
func (q *Queue) copiesFit(ctx context.Context, m *NewMessage) error {
	err := CheckCopies(m, func() (Settings, error) {
		i, err := q.inspector()
		if err != nil {
			return Settings{}, err // a store without settings has no groups
		}
		return i.Settings(ctx, m.Topic)
	})
	if err != nil {
		return fmt.Errorf("push: %w", err)
	}
	return nil
}

// refused returns why the Queue cannot work at all, or nil. Every method asks it before it uses the
// store, so that the zero Queue returns an error instead of a panic.
func (q *Queue) refused() error {
	if q == nil || q.store == nil && q.refusal == nil {
		return invalidf("queue was not made by NewQueue: use that")
	}
	return q.refusal
}

// prepared calls QueueConfig.Prepare, if any, with m, after giving m a header map that no other
// message has.
func (q *Queue) prepared(ctx context.Context, m *NewMessage) error {
	if q.prepare == nil {
		return nil
	}
	m.Headers = maps.Clone(m.Headers)
	if m.Headers == nil {
		m.Headers = make(map[string]string)
	}
	if err := q.prepare(ctx, m); err != nil {
		return fmt.Errorf("push: prepare: %w", err)
	}
	return nil
}

func notPushed(m NewMessage, err error) PushResult {
	return PushResult{ID: m.ID, Topic: m.Topic, Err: err}
}

// Cancel removes a message that is scheduled or ready (P5). nil says that no claim will ever return
// the message. ErrLeased says that somebody works on the message now and that no further attempt
// will follow. ErrNotFound says that there is no such message, or that it is dead.
func (q *Queue) Cancel(ctx context.Context, topic, id string) error {
	return q.amendOne(ctx, Amendment{Change: ChangeCancel, Topic: topic, ID: id}).Err
}

// CancelMany is Cancel for a list of IDs, with an answer for each, in order. Errors
// are as those of PushMany.
func (q *Queue) CancelMany(ctx context.Context, topic string, ids []string) ([]Amended, error) {
	return q.amendMany(ctx, ChangeCancel, topic, ids, When{})
}

// Reschedule moves the due time of a scheduled or ready message to w, earlier or later, in one
// atomic step, and returns the new due time. ID, body, attempts and history stay. ErrLeased says
// that somebody works on the message now; nothing was changed. ErrNotFound says that there is no
// such message, or that it is dead.
func (q *Queue) Reschedule(ctx context.Context, topic, id string, w When) (time.Time, error) {
	return q.amendAt(ctx, Amendment{Change: ChangeReschedule, Topic: topic, ID: id}, w)
}

// RescheduleMany is Reschedule for a list of IDs, with an answer for each, in order.
// Errors are as those of PushMany.
func (q *Queue) RescheduleMany(ctx context.Context, topic string, ids []string, w When) ([]Amended, error) {
	return q.amendMany(ctx, ChangeReschedule, topic, ids, w)
}

// Requeue schedules a dead message for w and returns the due time. The message has all its attempts
// again, and its history stays. ErrNotDead says that the message is scheduled, ready or leased;
// ErrNotFound says that there is none.
func (q *Queue) Requeue(ctx context.Context, topic, id string, w When) (time.Time, error) {
	return q.amendAt(ctx, Amendment{Change: ChangeRequeue, Topic: topic, ID: id}, w)
}

// RequeueMany is Requeue for a list of IDs, with an answer for each, in order. Errors
// are as those of PushMany.
func (q *Queue) RequeueMany(ctx context.Context, topic string, ids []string, w When) ([]Amended, error) {
	return q.amendMany(ctx, ChangeRequeue, topic, ids, w)
}

// Delete removes a message in any state, as Inspector.Purge does: the store keeps no finished
// record of the message, and its ID may be used again at once. A worker that holds the message gets
// ErrLeaseLost. ErrNotFound says that there is no such message. To stop a message that is to be
// delivered use Cancel, which never takes a message away from a worker.
func (q *Queue) Delete(ctx context.Context, topic, id string) error {
	return q.amendOne(ctx, Amendment{Change: ChangeDelete, Topic: topic, ID: id}).Err
}

// DeleteMany is Delete for a list of IDs, with an answer for each, in order. Errors
// are as those of PushMany.
func (q *Queue) DeleteMany(ctx context.Context, topic string, ids []string) ([]Amended, error) {
	return q.amendMany(ctx, ChangeDelete, topic, ids, When{})
}

func (q *Queue) amendAt(ctx context.Context, a Amendment, w When) (time.Time, error) {
	if w.err != nil {
		return time.Time{}, fmt.Errorf("%s: %w", a.Change, w.err)
	}
	a.Due, a.Delay = w.due, w.delay
	r := q.amendOne(ctx, a)
	return r.Due, r.Err
}

func (q *Queue) amendOne(ctx context.Context, a Amendment) Amended {
	if err := q.refused(); err != nil {
		return Amended{Err: err}
	}
	start := time.Now()
	r, err := q.amends.Do(ctx, a)
	if err != nil {
		r = Amended{Err: err}
	}
	if r.Err != nil {
		r = Amended{Err: operation(a.Change.String(), r.Err)}
	}
	q.observer.amended(ctx, a, r, time.Since(start))
	return r
}

func (q *Queue) amendMany(ctx context.Context, c Change, topic string, ids []string, w When) ([]Amended, error) {
	if err := errors.Join(q.refused(), w.err); err != nil {
		return nil, fmt.Errorf("%s: %w", c, err)
	}
	as := make([]Amendment, len(ids))
	for i, id := range ids {
		as[i] = Amendment{Change: c, Topic: topic, ID: id, Due: w.due, Delay: w.delay}
	}
	rs, err := q.AmendMany(ctx, as)
	if err != nil {
		err = operation(c.String(), err)
	}
	return rs, err
}

// AmendMany makes changes of any kind, each as Store.Amend does, in calls of the store within the
// bounds of the Queue. It returns an answer for each change, and a BatchError if any of them
// failed.
func (q *Queue) AmendMany(ctx context.Context, as []Amendment) ([]Amended, error) {
	if err := q.refused(); err != nil {
		return nil, err
	}
	start := time.Now()
	rs, err := inParts(ctx, "amend", q.amends, as,
		func(_ Amendment, err error) Amended { return Amended{Err: err} }, func(r Amended) error { return r.Err })
	took := time.Since(start)
	for i, r := range rs {
		q.observer.amended(ctx, as[i], r, took)
	}
	return rs, err
}

// Close refuses further pushes and amendments with ErrClosed and waits for those under way. It does
// not close the store, so calls such as Get and Configure still reach it. When ctx ends first,
// Close also refuses the calls for single messages that have not been sent yet, and ends the
// context of the calls of the store that carry the others, so that these may fail with
// ErrIndeterminate. It then returns an error that wraps ctx's. Close may be called again.
func (q *Queue) Close(ctx context.Context) error {
	if q == nil || q.pushes == nil {
		return q.refused()
	}
	var amends error
	var closing sync.WaitGroup
	closing.Go(func() { amends = q.amends.Close(ctx) }) // beside the pushes, because Close of them may wait
	pushes := q.pushes.Close(ctx)
	closing.Wait()
	return errors.Join(pushes, amends)
}

// operation returns err with the name of the operation in front, unless the text of err begins with
// that name already.
func operation(op string, err error) error {
	if strings.HasPrefix(err.Error(), op+": ") {
		return err
	}
	return fmt.Errorf("%s: %w", op, err)
}

// inParts sends items to the store in calls within the bounds of c, which do not wait for the
// batches of c, and returns an answer for each item. A call that fails does not stop the next one.
// failed makes the answer of an item whose call failed, and errOf returns the error in an answer,
// or nil.
func inParts[T, R any](ctx context.Context, op string, c *batch.Batcher[T, R], items []T, failed func(T, error) R, errOf func(R) error) ([]R, error) {
	if err := c.Begin(); err != nil {
		return nil, err
	}
	defer c.End()
	answers := make([]R, 0, len(items))
	for rest := items; len(rest) > 0; {
		part := rest[:c.Fits(rest)]
		rest = rest[len(part):]
		got, err := c.Call(ctx, part)
		if err == nil {
			answers = append(answers, got...)
			continue
		}
		for _, item := range part {
			answers = append(answers, failed(item, err))
		}
	}
	errs := make([]error, len(answers))
	for i, a := range answers {
		errs[i] = errOf(a)
	}
	return answers, NewBatchError(op, errs)
}
