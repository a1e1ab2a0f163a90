package duties

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/punctualmq/punctual"
)

// lossy is a wrapper of a store that loses the answer of every every-th call of Settle: the
// settlements are made, and the caller gets ErrIndeterminate.
type lossy struct {
	Store punctual.Store
	every int64
	made  atomic.Int64
}

// Unwrap returns the store.
func (l *lossy) Unwrap() punctual.Store { return l.Store }

// Settle implements punctual.Store.
func (l *lossy) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	errs, err := l.Store.Settle(ctx, ss)
	if l.made.Add(1)%l.every == 0 && err == nil {
		return nil, punctual.ErrIndeterminate
	}
	return errs, err
}

// Push implements punctual.Store.
func (l *lossy) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	return l.Store.Push(ctx, ms)
}

// Claim implements punctual.Store.
func (l *lossy) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	return l.Store.Claim(ctx, c)
}

// Amend implements punctual.Store.
func (l *lossy) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	return l.Store.Amend(ctx, as)
}

// Now implements punctual.Store.
func (l *lossy) Now(ctx context.Context) (time.Time, error) { return l.Store.Now(ctx) }

// Close implements punctual.Store.
func (l *lossy) Close() error { return l.Store.Close() }

// standing is a wrapper of a store that stands still before its first settlement with follow-ups,
// until goes is closed. Until then its extensions wait, too, and once it stands still it claims
// nothing any more.
type standing struct {
	Store  punctual.Store
	once   sync.Once
	stands chan struct{}
	goes   chan struct{}

	mu sync.Mutex
	// answer is that of the settlement, once there is one. Guarded by mu.
	answer []error
}

// Unwrap returns the store.
func (s *standing) Unwrap() punctual.Store { return s.Store }

func (s *standing) answered() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answer != nil
}

func (s *standing) late() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answer[0]
}

// Settle implements punctual.Store.
func (s *standing) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	first := false
	if len(ss[0].Then) > 0 {
		s.once.Do(func() { first = true })
	}
	if first {
		close(s.stands)
		<-s.goes
		ctx = context.WithoutCancel(ctx)
	} else if ss[0].Verb == punctual.SettleExtend {
		<-s.goes
	}
	errs, err := s.Store.Settle(ctx, ss)
	if first && err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.answer = errs
	}
	return errs, err
}

// Push implements punctual.Store.
func (s *standing) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	return s.Store.Push(ctx, ms)
}

// Claim implements punctual.Store.
func (s *standing) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	select {
	case <-s.stands: // a process that stands still makes no claims
		<-ctx.Done()
		return nil, ctx.Err()
	default:
		return s.Store.Claim(ctx, c)
	}
}

// Amend implements punctual.Store.
func (s *standing) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	return s.Store.Amend(ctx, as)
}

// Now implements punctual.Store.
func (s *standing) Now(ctx context.Context) (time.Time, error) { return s.Store.Now(ctx) }

// Close implements punctual.Store.
func (s *standing) Close() error { return s.Store.Close() }
