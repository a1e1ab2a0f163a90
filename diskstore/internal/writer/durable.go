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

// A transaction is in the database, where the next one sees it, before its fsync is done; else pushes
// could not share one. So an answer may rest on something that a power cut would still take. Nobody
// answers before that is durable: "the ID is taken already" promises as much as "stored" does.
//
// Transactions become durable in the order of their numbers, since the database writes one log. So one
// number tells of all.

// durableTxns knows which transactions are durable, and who waits for which.
type durableTxns struct {
	mu sync.Mutex
	// last is the last transaction that is durable; so are all before it. Guarded by mu.
	last uint64
	// waiting has a channel for each transaction that somebody waits for, closed when it is durable.
	// Guarded by mu.
	waiting map[uint64]chan struct{}
}

// advance notes that the transactions up to num are durable.
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

// wait returns a channel that is closed when the transactions up to num are durable, or nil if they are.
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

// Awaited tells whether somebody waits until a transaction, or a later one, is durable.
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

// unlogged are the changes of memory that are not in the claim log yet.
type unlogged struct {
	mu    sync.Mutex
	under map[chan struct{}]struct{} // guarded by mu
}

// Logging is told before a settlement changes memory, which needs no write lock. The function that it returns is
// called when the claim log has the settlement, or cannot take it. Whoever may have met it waits for that: a
// kill would take it back.
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

// waitLogged waits for the settlements that are about to be written to the claim log.
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
	if len(under) > 0 && w.opt.State.HasFailed() { // perhaps because the claim log could not be written
		return w.opt.State.Failure()
	}
	return nil
}

// waitDurable waits until the transactions up to num are durable, and settlements in the claim log. It asks for no fsync:
// theirs is under way. The error says nothing of whether they happened, only that this call cannot answer.
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

// Observe is Locked that returns when all that the function may have seen is durable. Its errors are
// definite, since nothing is changed.
func (w *Writer) Observe(ctx context.Context, read func(tx *Tx) error) error {
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
