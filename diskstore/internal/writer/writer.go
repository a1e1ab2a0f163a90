// Package writer changes the messages of a store: it has the write lock, makes transactions of
// memory and database together, and waits for the disk. It does not know why something changes.
//
// A transaction removes messages from memory before it changes them on disk. What it adds is in
// memory as pending until the change is durable, and can be claimed only then:
//
//	tx, err := w.Begin(ctx)         take the write lock
//	defer tx.Close(&err)            release it, whatever happens
//	...                             read, decide, change
//	return tx.Commit(ctx)           apply, release the write lock, wait for the fsync
//
// A live message that a transaction deletes or moves on disk is a memory.Detached, which only
// memory makes. If one of them is not used up, or a change is not committed, the store ends,
// because memory and disk differ then. (Clear and DeleteTopic delete all messages of a topic at
// once and need no Detached for each.)
package writer

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/diskstore/internal/database"
	"github.com/punctualmq/punctual/diskstore/internal/errkind"
	"github.com/punctualmq/punctual/diskstore/internal/failstop"
	"github.com/punctualmq/punctual/diskstore/internal/memory"
	"github.com/punctualmq/punctual/diskstore/internal/record"
	"github.com/punctualmq/punctual/diskstore/internal/topics"
	"github.com/punctualmq/punctual/event"
	"github.com/punctualmq/punctual/storekit"
)

// Options of New. All fields are needed.
type Options struct {
	State    *failstop.State
	DB       *database.DB
	Index    *memory.Index
	Topics   *topics.Registry
	ClaimLog ClaimLog
	// Died is called with the topic of each message that dies, with the write lock held.
	Died func(*topics.Topic)
	// Tell adds the message that tells of an event (punctual.Settings.Emit) to the transaction of
	// the change. An error of Tell ends the store.
	Tell func(*Tx, *topics.Topic, *event.Event) error
	// Now is the store's clock.
	Now func() time.Time
	// Timeout is how long a call may wait for a transaction to be durable before the store fails.
	Timeout time.Duration
	Dir     string // for the log
	Log     *slog.Logger
}

// ClaimLog is what the writer knows of the claim log. Times are Unix milliseconds.
type ClaimLog interface {
	// MarkDurable is called with the number and the time of each transaction that has become
	// durable. All transactions before it are durable, too, although the calls for some of them may
	// come later.
	MarkDurable(txn uint64, ms int64)
	// KeepClock makes sure that the clock does not start again before a time that is about to be
	// given out.
	KeepClock(ms int64) error
}

// Writer makes transactions, one at a time. Its methods are safe for concurrent use.
type Writer struct {
	opt Options
	// lock holds one token: the write lock. Whoever has the token may read and change the database.
	lock     chan struct{}
	durable  durableTxns
	unlogged unlogged
	// commits counts the commits under way. Add is called with the write lock held.
	commits sync.WaitGroup
}

// New returns a writer that is ready.
func New(o Options) *Writer {
	w := &Writer{opt: o, lock: make(chan struct{}, 1)}
	w.lock <- struct{}{}
	return w
}

// lockWait is how long a call waits for the write lock before it returns ErrOverloaded.
const lockWait = 10 * time.Second

// Begin waits for the write lock and begins a transaction. Close must be deferred.
func (w *Writer) Begin(ctx context.Context) (*Tx, error) {
	if err := w.opt.State.Usable(); err != nil {
		return nil, err
	}
	select {
	case <-w.lock:
	default:
		if err := w.waitForLock(ctx); err != nil {
			return nil, err
		}
	}
	begun := false
	defer func() {
		if !begun { // also when Options.Now panics
			w.lock <- struct{}{}
		}
	}()
	if err := w.opt.State.Usable(); err != nil {
		return nil, err
	}
	tx := w.newTx()
	begun = true
	return tx, nil
}

// newTx begins a transaction. Called with the write lock held.
func (w *Writer) newTx() *Tx {
	now := w.opt.Now()
	ms := storekit.Millis(now)
	return &Tx{w: w, disk: w.opt.DB.Begin(ms), Now: now, Ms: ms, held: true}
}

func (w *Writer) waitForLock(ctx context.Context) error {
	timer := time.NewTimer(lockWait)
	defer timer.Stop()
	select {
	case <-w.lock:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the store: %w", errkind.Ended(ctx))
	case <-w.opt.State.Ended():
		return w.opt.State.Usable()
	case <-timer.C:
		return fmt.Errorf("waited %v for the store's turn: %w", lockWait, punctual.ErrOverloaded)
	}
}

// Locked runs a function with the write lock held. The function must not change the database.
func (w *Writer) Locked(ctx context.Context, do func(tx *Tx) error) (err error) {
	tx, err := w.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Close(&err)
	return do(tx)
}

// Do makes one transaction. If do fails the store ends, because a part of the change may have been
// made in memory already.
func (w *Writer) Do(ctx context.Context, do func(tx *Tx) error) (err error) {
	tx, err := w.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Close(&err)
	if err := do(tx); err != nil {
		w.opt.State.Fail(fmt.Errorf("a change could not be finished because reading failed: %w", err))
		return w.opt.State.Failure()
	}
	return tx.Commit(ctx)
}

// StepClock makes a step of the store's clock, and the transaction that records it. step makes the
// step in memory, by the transaction's number, and returns false if there was none. Because step
// runs with the write lock held, no transaction is decided by the time before the step and applied
// after it.
func (w *Writer) StepClock(ctx context.Context, step func(txn uint64) (record.Step, bool)) (err error) {
	tx, err := w.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Close(&err)
	s, stepped := step(tx.disk.Num)
	if !stepped {
		return nil
	}
	tx.Now, tx.Ms = storekit.FromMillis(s.To), s.To
	tx.disk.StepClock(s)
	return tx.Commit(context.WithoutCancel(ctx)) // because the step has happened
}

// txBytes is the size at which a transaction accepts no further items. It is small because no other
// transaction can run while a batch is written. Besides, the database handles a batch larger than
// half of its buffer separately, and panics beyond 4 GiB.
const txBytes = 8 << 20

// Some makes one transaction of the items [from, end), or of fewer when they are large. It returns
// the index of the next item. After an error next is from, and the error says whether the
// transaction may have happened.
func (w *Writer) Some(ctx context.Context, from, end int, item func(tx *Tx, i int) error) (next int, err error) {
	if ctx.Err() != nil {
		return from, errkind.Ended(ctx)
	}
	next = from
	err = w.Do(ctx, func(tx *Tx) error {
		for ; next < end && !tx.Full(); next++ {
			if err := item(tx, next); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return from, err
	}
	return next, nil
}

// run runs a commit to its end, in a goroutine of its own because the database may hang, or stop
// the goroutine (failstop.BlockForever). The promises of the store rest on the order of the steps.
// The write lock is given back before the wait for the fsync, so that the next transaction need not
// wait for it. Only after the fsync, and after the claim log has recorded the transaction as
// durable, can its messages be claimed and its callers answer. done is buffered.
func (w *Writer) run(tx *Tx, expected memory.Expected, done chan<- error) {
	defer w.commits.Done()
	defer func() {
		if cause := recover(); cause != nil { // otherwise the user's program would end
			w.opt.Log.Error("a commit panicked", "dir", w.opt.Dir, "panic", cause, "stack", string(debug.Stack()))
			w.opt.State.Fail(fmt.Errorf("a commit panicked, which is a mistake in this program or in its database: %v", cause))
		}
	}()
	err := tx.disk.Apply(expected.Tokens)
	if err == nil {
		w.lock <- struct{}{}
		err = tx.disk.Wait()
	}
	if err != nil {
		w.opt.State.Fail(errkind.Classify("write to the log", err))
		done <- w.opt.State.Indeterminate()
		return
	}
	w.opt.ClaimLog.MarkDurable(tx.disk.Num, tx.Ms)
	w.opt.Index.Publish(expected, storekit.Millis(w.opt.Now()))
	w.durable.advance(tx.disk.Num)
	done <- nil
}

// Close makes the last transactions and waits for all commits. last fills one of them, and tells
// whether there is to be another. No other transaction may begin any more. If the store fails while
// Close waits for the write lock, Close returns. A commit that hangs, or was stopped because the
// store has failed, makes Close hang.
func (w *Writer) Close(last func(tx *Tx) (more bool)) {
	for more := true; more; {
		select {
		case <-w.lock:
		case <-w.opt.State.Failed():
			return
		}
		tx := w.newTx()
		more = last(tx)
		tx.disk.SetClock()
		tx.start() // nobody reads the error of the commit, because with an error the store has failed
	}
	w.commits.Wait()
}
