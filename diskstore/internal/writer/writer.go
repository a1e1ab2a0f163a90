// Package writer changes the messages of a store: it has the write lock, makes transactions of memory and database together,
// and waits for the disk. It does not know why something changes.
//
// A transaction takes messages out of memory before it changes them on disk, and brings them there when the
// change is durable:
//
//	tx, err := w.Begin(ctx)         take the write lock
//	defer tx.Close(&err)            give it back, whatever happens
//	...                             read, decide, change
//	return tx.Commit(ctx)           apply, give the write lock back, wait for the fsync
//
// What leaves the disk, or moves on it, is a memory.Detached, which only memory makes. One that is not used up, and a change that
// is not committed, end the store: memory does not tell the truth any more.
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
	"github.com/punctualmq/punctual/diskstore/internal/topics"
	"github.com/punctualmq/punctual/storekit"
)

// Options of New. All fields are needed.
type Options struct {
	State    *failstop.State
	DB       *database.DB
	Index    *memory.Index
	Topics   *topics.Registry
	ClaimLog ClaimLog
	// Died is told of each topic in which a message died, with the write lock held.
	Died func(*topics.Topic)
	// Now is the store's clock.
	Now func() time.Time
	// Timeout is how long a commit may wait for the disk before the store is taken for failed.
	Timeout time.Duration
	Dir     string // for the log
	Log     *slog.Logger
}

// ClaimLog is what the writer knows of the claim log. Times are Unix milliseconds.
type ClaimLog interface {
	// MarkDurable is told of transactions that are durable, in order of their numbers, with their time.
	MarkDurable(txn uint64, ms int64)
	// KeepClock sees to it that a time which is about to be given out is not forgotten.
	KeepClock(ms int64) error
}

// Writer makes transactions, one at a time. Its methods are safe for concurrent use.
type Writer struct {
	opt Options
	// lock holds one token: the write lock. Whoever has it may read and change the database.
	lock     chan struct{}
	durable  durableTxns
	unlogged unlogged
	// commits are those on their way; added to with the write lock held.
	commits sync.WaitGroup
}

// New returns a writer that is ready.
func New(o Options) *Writer {
	w := &Writer{opt: o, lock: make(chan struct{}, 1)}
	w.lock <- struct{}{}
	return w
}

// lockWait is how long a call waits for its turn before it is refused as overload.
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
		if !begun { // also when the given clock panics
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

// Locked runs a function with the write lock held. It changes nothing but memory.
func (w *Writer) Locked(ctx context.Context, do func(tx *Tx) error) (err error) {
	tx, err := w.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Close(&err)
	return do(tx)
}

// Do makes one transaction. When do fails the store ends: a part of the change may have been made, in memory above all.
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

// txBytes is the size at which a transaction takes no further items. Beyond half of its buffer the
// database treats a batch apart, beyond 4 GiB it panics; and while one is written, nobody else is served.
const txBytes = 8 << 20

// Some makes one transaction of the items from the given one on: up to the one at end, but fewer when
// they hold much. It returns which item is next. After an error that is the first item, and
// whether the transaction happened is what the error says.
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

// run runs a commit to its end, in a goroutine of its own because the database may hang, or stop it
// (failstop.BlockForever). The order of its steps is what the store promises. The next transaction need not wait for
// this fsync. Nothing can be claimed, and nobody answers, before it is done. The claim log knows it first. done is
// buffered.
func (w *Writer) run(tx *Tx, expected memory.Expected, done chan<- error) {
	defer w.commits.Done()
	defer func() {
		if cause := recover(); cause != nil { // nobody else could, and the user's program would end
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

// Close takes the write lock for good, makes a last transaction and waits for all. It returns when the store fails.
func (w *Writer) Close(last func(tx *Tx)) {
	select {
	case <-w.lock:
	case <-w.opt.State.Failed():
		return
	}
	tx := w.newTx()
	last(tx)
	tx.disk.SetClock()
	tx.start() // its error is a failure of the store
	w.commits.Wait()
}
