package writer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/punctualmq/punctual/diskstore/internal/errkind"
)

// A transaction is in the database, where the next one sees it, before its fsync is done; otherwise
// pushes could not share an fsync. So an answer may rest on a transaction that a power cut would
// still undo. Therefore no call answers before the transactions that it has seen are durable: "the
// ID is already in use" promises as much as "stored" does.
//
// Transactions become durable in the order of their numbers, because the database writes one log.
// So one number says which transactions are durable.

// durableTxns has the number up to which transactions are durable, and the callers that wait for
// later ones.
type durableTxns struct {
	mu sync.Mutex
	// last is the last transaction that is known to be durable; all before it are durable, too.
	// Guarded by mu.
	last uint64
	// waiting has a channel for each transaction that a caller waits for. The channel is closed
	// when the transaction is durable. Guarded by mu.
	waiting map[uint64]chan struct{}
}

// advance records that the transactions up to num are durable.
func (y *durableTxns) advance(num uint64) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if num <= y.last {
		return
	}
	y.last = num
	for n, ready := range y.waiting {
		if n <= num {
			close(ready)
			delete(y.waiting, n)
		}
	}
}

// wait returns a channel that is closed when the transactions up to num are durable, or nil if they
// are.
func (y *durableTxns) wait(num uint64) <-chan struct{} {
	y.mu.Lock()
	defer y.mu.Unlock()
	if num <= y.last {
		return nil
	}
	ready := y.waiting[num]
	if ready == nil {
		if y.waiting == nil {
			y.waiting = make(map[uint64]chan struct{})
		}
		ready = make(chan struct{})
		y.waiting[num] = ready
	}
	return ready
}

// Awaited tells whether a call that has seen a transaction, or a later one, waits until that is
// durable. Tests use it.
func (w *Writer) Awaited(txn uint64) bool {
	w.durable.mu.Lock()
	defer w.durable.mu.Unlock()
	for n := range w.durable.waiting {
		if n >= txn {
			return true
		}
	}
	return false
}

// unlogged are the changes of memory that are not in the claim log, or not yet.
type unlogged struct {
	mu    sync.Mutex
	under map[chan struct{}]struct{} // guarded by mu: for each call of Logging a channel, which logged closes and removes
	// refused counts the writes of acks that the claim log has refused. The acked messages of the
	// first of these, as many as deleted says, are durably deleted from disk. Both are guarded by
	// mu.
	refused, deleted uint64
}

// Logging is called before a settlement changes memory without the write lock. The caller calls
// logged when the claim log has the settlement, or could not write it. Until then a kill would undo
// the settlement, so calls that may have seen its effect wait for logged before they answer.
func (w *Writer) Logging() (logged func()) {
	u, c := &w.unlogged, make(chan struct{})
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.under == nil {
		u.under = make(map[chan struct{}]struct{})
	}
	u.under[c] = struct{}{}
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.under, c)
		close(c)
	}
}

// AcksRefused is called when the claim log has refused acks, which are in force in memory all the
// same: before logged is called, and if a transaction made the acks, before it gives the write lock
// back. A kill undoes these acks until their messages are durably deleted from disk. The call that
// made the acks does that, but another call may see the acks earlier, or after that call has given
// up. So every call that may have seen them does it too, before it answers; see deleteRefused.
func (w *Writer) AcksRefused() {
	w.unlogged.mu.Lock()
	defer w.unlogged.mu.Unlock()
	w.unlogged.refused++
}

// deleteRefused deletes the messages whose acks the claim log has refused, and returns when they
// are durably deleted. As a rule there are none. An error does not say whether the messages are
// deleted, only that the caller cannot answer.
func (w *Writer) deleteRefused(ctx context.Context) error {
	w.unlogged.mu.Lock()
	done := w.unlogged.deleted == w.unlogged.refused
	w.unlogged.mu.Unlock()
	if done {
		return nil
	}
	err := w.Barrier(ctx)
	switch {
	case err == nil:
		return nil
	case w.opt.State.HasFailed():
		return w.opt.State.Failure()
	case ctx.Err() != nil:
		return fmt.Errorf("wait for the deletion of acked messages: %w", errkind.Ended(ctx))
	}
	return err
}

// Barrier calls DeleteAcked, and waits until all changes before it are durable, above all the
// deletions of acked messages that other transactions have made.
func (w *Writer) Barrier(ctx context.Context) error {
	u := &w.unlogged
	u.mu.Lock()
	refused := u.refused
	u.mu.Unlock()
	if err := w.DeleteAcked(ctx); err != nil {
		return err
	}
	if err := w.observe(ctx, func(*Tx) error { return nil }); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.deleted = max(u.deleted, refused)
	return nil
}

// waitLogged waits for the settlements that are being written to the claim log, until each of them
// is in the log or the log has refused it.
func (w *Writer) waitLogged(ctx context.Context) error {
	w.unlogged.mu.Lock()
	under := slices.Collect(maps.Keys(w.unlogged.under))
	w.unlogged.mu.Unlock()
	for _, c := range under {
		select {
		case <-c:
		case <-ctx.Done():
			return fmt.Errorf("wait for the claim log: %w", errkind.Ended(ctx))
		case <-w.opt.State.Failed():
			return w.opt.State.Failure()
		}
	}
	if len(under) > 0 && w.opt.State.HasFailed() { // perhaps because a settlement could not be written to the claim log
		return w.opt.State.Failure()
	}
	return nil
}

// waitDurable waits until the transactions up to num are durable, and the settlements before the
// call are in the claim log. It starts no fsync, because each transaction has its own under way. An
// error does not say whether the transactions happened, only that the caller cannot answer.
func (w *Writer) waitDurable(ctx context.Context, num uint64) error {
	if err := w.waitLogged(ctx); err != nil {
		return err
	}
	ready := w.durable.wait(num)
	if ready == nil {
		return nil
	}
	timer := time.NewTimer(w.opt.Timeout)
	defer timer.Stop()
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the disk: %w", errkind.Ended(ctx))
	case <-timer.C:
		w.opt.State.FailHung("sync the log")
	case <-w.opt.State.Failed():
	}
	return w.opt.State.Failure()
}

// Observe is Locked, and returns when all that the function may have seen is as durable as the
// store promises: transactions are durable, and settlements that need none are in the claim log.
// Its errors are definite, because the function changes nothing.
func (w *Writer) Observe(ctx context.Context, read func(tx *Tx) error) error {
	if err := w.observe(ctx, read); err != nil {
		return err
	}
	return w.deleteRefused(ctx)
}

// observe is Observe, but may return while there are acks that the claim log has refused.
func (w *Writer) observe(ctx context.Context, read func(tx *Tx) error) error {
	var seen uint64
	err := w.Locked(ctx, func(tx *Tx) error {
		seen = tx.disk.Num - 1
		return read(tx)
	})
	if err != nil {
		return err
	}
	return w.waitDurable(ctx, seen)
}

// WaitDurable returns when all transactions that were begun before are durable.
func (w *Writer) WaitDurable(ctx context.Context) error {
	return w.Observe(ctx, func(*Tx) error { return nil })
}
