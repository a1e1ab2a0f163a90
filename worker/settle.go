package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

const (
	// settleCall bounds one call that settles: it may take settleCall at least and twice as long at
	// most (settleDeadline). A renewal before a handler starts (Worker.extend) may take settleCall
	// at most.
	settleCall = 10 * time.Second
	// settleGrace is how long each try of a settlement may take at least. A settlement is tried
	// once even if its lease is over, because its token may still be the current one.
	settleGrace = time.Second
)

// maxSettleBytes bounds the follow-ups of one call that settles, unless those of one settlement are
// larger, so that small settlements do not wait long behind large follow-ups.
const maxSettleBytes = 4 << 20

// settlementBytes is the share of a settlement in maxSettleBytes.
func settlementBytes(s punctual.Settlement) int64 { return int64(1 + storekit.SizeOfThen(s.Then)) }

// settle settles m in the store, trying again with a growing delay while the lease lasts, and
// reports the result to the observer. end is when the lease ends by local time. It returns the
// outcome that was settled with, which is another one than o if the store has refused the
// follow-ups of o.
func (w *Worker) settle(m *message, o outcome, end time.Time) (outcome, error) {
	began := time.Now()
	var tries backoff
	s := m.settlement(o)
	done := func(err error) (outcome, error) {
		w.observer.OnSettle(m.ctx, s, time.Since(began), err)
		return o, err
	}
	for unsure := false; ; {
		ctx, free := w.settleBy.until(end)
		item, err := w.settler.Do(ctx, s)
		if free(); err == nil {
			err = item
		}
		switch {
		case err == nil:
			return done(nil)
		case unsure && errors.Is(err, punctual.ErrLeaseLost):
			return done(nil) // most likely an earlier try, whose answer did not arrive, has settled m
		case len(s.Then) > 0 && isRefusal(err, item != nil):
			// No try has settled m, because each had the same follow-ups, and a store refuses
			// well-formed ones only under a current token. m is settled without the follow-ups, or
			// with others.
			_, _ = done(fmt.Errorf("%s: %w", s.Verb, err))
			o = w.afterRefusal(m, o, err)
			s = m.settlement(o)
			continue
		case isFinal(err):
			return done(fmt.Errorf("%s: %w", s.Verb, err))
		}
		unsure = unsure || !punctual.Definite(err)
		wait := tries.next()
		end = w.inflight.endOf(m) // later than before if a renewal was answered meanwhile
		if time.Until(end) <= wait {
			return done(fmt.Errorf("%s: tried %d times until the lease ended: %w", s.Verb, tries.tries, err))
		}
		time.Sleep(wait)
	}
}

// settlement returns the settlement of m with the outcome o. storekit.SetAfter notes in the
// follow-ups what they came from.
func (m *message) settlement(o outcome) punctual.Settlement {
	s := m.lease
	s.Verb, s.Delay, s.Due, s.Error, s.Then = o.Verb, o.Delay, o.Due, o.text, o.Then
	storekit.SetAfter(&s)
	return s
}

// isFinal reports whether err is an error after which a settlement is not tried again.
func isFinal(err error) bool {
	return errors.Is(err, punctual.ErrLeaseLost) || errors.Is(err, punctual.ErrCancelled) ||
		errors.Is(err, punctual.ErrTooLarge) || errors.Is(err, punctual.ErrUnsupported) || unrecoverable(err)
}

// settleBatch sends a batch of settlements to the store. It ignores the context of the Batcher and
// uses the shared deadline, so that a call that hangs is ended.
func (w *Worker) settleBatch(_ context.Context, ss []punctual.Settlement) ([]error, error) {
	began := time.Now()
	answers, err := storekit.Settle(w.settleBy.shared(began), w.store, ss, w.forwarded)
	w.slots.settled(time.Since(began))
	return answers, err
}

// settleDeadline bounds how long one try to settle, and one call of the store for it, waits for its
// answer: for one to two times settleCall. Tries share a context, because a context with a timer
// for each try would cost more than the rest of settling. A try whose lease ends earlier has a
// context of its own. The zero value is ready to use.
type settleDeadline struct {
	mu sync.Mutex
	// ctx is the shared context, nil while there is none; it ends at the time at, and cancel frees
	// it. Guarded by mu.
	ctx    context.Context
	at     time.Time
	cancel context.CancelFunc
}

// until returns the context of a try for a lease that ends at end, and the function to call after
// it.
func (p *settleDeadline) until(end time.Time) (context.Context, context.CancelFunc) {
	now := time.Now()
	left := max(end.Sub(now), settleGrace)
	if left < 2*settleCall {
		return context.WithDeadline(context.Background(), now.Add(left))
	}
	return p.shared(now), func() {}
}

// shared returns a context that ends one to two times settleCall after now.
func (p *settleDeadline) shared(now time.Time) context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx == nil || p.at.Sub(now) < settleCall {
		// The context before is not cancelled, because some tries may still wait with it; it ends
		// by its deadline.
		p.at = now.Add(2 * settleCall)
		p.ctx, p.cancel = context.WithDeadline(context.Background(), p.at)
	}
	return p.ctx
}

// end frees the shared context. No try may be waiting with it.
func (p *settleDeadline) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx != nil {
		p.cancel()
		p.ctx = nil
	}
}
