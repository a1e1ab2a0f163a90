package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
)

const (
	// settleCall bounds one call that settles.
	settleCall = 10 * time.Second
	// settleGrace is what a settlement gets for its first try when its lease is over already:
	// the token may still be the current one.
	settleGrace = time.Second
)

// settle tells the store the outcome, again and again with a growing delay while the lease lasts, and the observer what the store
// said. end is when the lease ends as far as known.
func (w *Worker) settle(m *message, o outcome, end time.Time) (err error) {
	s := m.lease
	s.Verb, s.Delay, s.Error = o.Verb, o.Delay, o.text
	began := time.Now()
	defer func() { w.observer.OnSettle(m.ctx, s, time.Since(began), err) }()
	var tries backoff
	for unsure := false; ; {
		ctx, done := w.settleBy.until(end)
		item, err := w.settler.Do(ctx, s)
		if done(); err == nil {
			err = item
		}
		switch {
		case err == nil:
			return nil
		case unsure && errors.Is(err, punctual.ErrLeaseLost):
			return nil // by an earlier try whose answer did not arrive
		case isFinal(err):
			return fmt.Errorf("%s: %w", s.Verb, err)
		}
		unsure = unsure || !punctual.Definite(err)
		wait := tries.next()
		end = w.inflight.endOf(m) // a renewal may still have arrived
		if time.Until(end) <= wait {
			return fmt.Errorf("%s: tried %d times until the lease ended: %w", s.Verb, tries.tries, err)
		}
		time.Sleep(wait)
	}
}

// isFinal tells errors after which a settlement is not tried again.
func isFinal(err error) bool {
	return errors.Is(err, punctual.ErrLeaseLost) || errors.Is(err, punctual.ErrCancelled) ||
		errors.Is(err, punctual.ErrTooLarge) || errors.Is(err, punctual.ErrUnsupported) || unrecoverable(err)
}

// settleBatch is the one way of settlements to the store. A call that hangs is ended, with the deadline that the
// settlements share.
func (w *Worker) settleBatch(_ context.Context, ss []punctual.Settlement) ([]error, error) {
	began := time.Now()
	answers, err := w.store.Settle(w.settleBy.shared(began), ss)
	w.slots.settled(time.Since(began))
	return answers, err
}

// settleDeadline bounds how long one try to settle, and one call that settles, waits for its answer: one to two settleCall.
// It comes with a context that all share, since one for each, with its timer, costs more than all else that settling takes.
// Where a lease ends earlier, the try has a context of its own. The zero value is ready to use.
type settleDeadline struct {
	mu sync.Mutex
	// ctx ends at at, and cancel frees it; nil before the first. Guarded by mu.
	ctx    context.Context
	at     time.Time
	cancel context.CancelFunc
}

// until returns the context of a try for a lease that ends at end, and the function to call after it.
func (p *settleDeadline) until(end time.Time) (context.Context, context.CancelFunc) {
	now := time.Now()
	left := max(end.Sub(now), settleGrace)
	if left < 2*settleCall {
		return context.WithDeadline(context.Background(), now.Add(left))
	}
	return p.shared(now), func() {}
}

// shared returns a context that ends one to two settleCall after now.
func (p *settleDeadline) shared(now time.Time) context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx == nil || p.at.Sub(now) < settleCall {
		// The one before ends by itself; some may still wait with it.
		p.at = now.Add(2 * settleCall)
		p.ctx, p.cancel = context.WithDeadline(context.Background(), p.at)
	}
	return p.ctx
}

// end frees the shared context. Nobody may be waiting with it.
func (p *settleDeadline) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx != nil {
		p.cancel()
		p.ctx = nil
	}
}
