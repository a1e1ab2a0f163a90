package punctual

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// settleCall bounds one call that settles.
	settleCall = 10 * time.Second
	// settleGrace is what a settlement gets for its first try when its lease is over already:
	// the token may still be the current one.
	settleGrace = time.Second
)

// settle sends the outcome to the store, again and again with a growing delay while the lease lasts;
// end is when it ends as far as known.
func (w *Worker) settle(h *hold, o outcome, end time.Time) error {
	s := h.lease
	s.Verb, s.Delay, s.Error = o.verb, o.delay, o.text
	var pace pacing
	for unsure := false; ; {
		err := w.settleOnce(s, end)
		switch {
		case err == nil:
			return nil
		case unsure && errors.Is(err, ErrLeaseLost):
			return nil // by an earlier try whose answer did not arrive
		case isFinal(err):
			return fmt.Errorf("%s: %w", s.Verb, err)
		}
		unsure = unsure || !Definite(err)
		wait := pace.next()
		end = w.leases.endOf(h) // a renewal may still have arrived
		if time.Until(end) <= wait {
			return fmt.Errorf("%s: tried %d times until the lease ended: %w", s.Verb, pace.tries, err)
		}
		time.Sleep(wait)
	}
}

func (w *Worker) settleOnce(s Settlement, end time.Time) error {
	ctx, cancel := w.patience.until(end)
	defer cancel()
	item, err := w.settler.do(ctx, s)
	if err != nil {
		return err
	}
	return item
}

// isFinal tells errors after which a settlement is not tried again.
func isFinal(err error) bool {
	return errors.Is(err, ErrLeaseLost) || errors.Is(err, ErrCancelled) ||
		errors.Is(err, ErrTooLarge) || errors.Is(err, ErrUnsupported) || unrecoverable(err)
}

// settleBatch is the one way of settlements to the store. A call that hangs is ended, so
// that those behind it get their chance while their leases last.
func (w *Worker) settleBatch(ctx context.Context, ss []Settlement) ([]error, error) {
	ctx, cancel := context.WithTimeout(ctx, settleCall)
	defer cancel()
	return w.store.Settle(ctx, ss)
}

// patience bounds how long one try to settle waits for its answer: until its lease ends, or for
// one to two settleCall where that is shorter, which is time enough for the batch under way and the next
// one. The latter comes with a context that many tries share, since one for each, with its
// timer, costs more than all else that settling takes. The zero value is ready to use.
type patience struct {
	mu sync.Mutex
	// shared ends at at, and cancel frees it; nil before the first. Guarded by mu.
	shared context.Context
	at     time.Time
	cancel context.CancelFunc
}

// until returns the context of a try for a lease that ends at end, and the function to call after it.
func (p *patience) until(end time.Time) (context.Context, context.CancelFunc) {
	now := time.Now()
	left := max(end.Sub(now), settleGrace)
	if left < 2*settleCall {
		return context.WithDeadline(context.Background(), now.Add(left))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shared == nil || p.at.Sub(now) < settleCall {
		// The one before ends by itself; some may still wait with it.
		p.at = now.Add(2 * settleCall)
		p.shared, p.cancel = context.WithDeadline(context.Background(), p.at)
	}
	return p.shared, func() {}
}

// end frees the shared context. Nobody may be waiting with it.
func (p *patience) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shared != nil {
		p.cancel()
		p.shared = nil
	}
}
