package server

import (
	"context"
	"errors"
	"time"

	"github.com/punctualmq/punctual"
)

// observed is a store that notifies an Observer of the calls between the server and the store
// below, as a Queue and a Worker do. It calls OnStart for each message that a claim brought,
// OnSettle for each settlement, and OnLeaseLost for each settlement that was refused because its
// token is not the current one or its message was cancelled. A request that is sent again, because
// its answer was lost, counts again.
//
// It has no Unwrap. The server finds the other interfaces of the store in the store that it was
// given.
type observed struct {
	store    punctual.Store
	observer *punctual.Observer
}

// Push implements punctual.Store.
func (s observed) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	began := time.Now()
	rs, err := s.store.Push(ctx, ms)
	if notify := s.observer.OnPush; notify != nil {
		took := time.Since(began)
		for i := range ms {
			r := punctual.PushResult{ID: ms[i].ID, Topic: ms[i].Topic, Err: err}
			if err == nil {
				r = rs[i]
			}
			notify(ctx, r, took)
		}
	}
	return rs, err
}

// Amend implements punctual.Store.
func (s observed) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	began := time.Now()
	rs, err := s.store.Amend(ctx, as)
	if notify := s.observer.OnAmend; notify != nil {
		took := time.Since(began)
		for i := range as {
			r := punctual.Amended{Err: err}
			if err == nil {
				r = rs[i]
			}
			notify(ctx, as[i], r, took)
		}
	}
	return rs, err
}

// Claim implements punctual.Store.
func (s observed) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	began := time.Now()
	ds, err := s.store.Claim(ctx, c)
	switch {
	case err == nil:
		if notify := s.observer.OnClaim; notify != nil {
			notify(ctx, len(ds), time.Since(began))
		}
	case ctx.Err() == nil:
		if notify := s.observer.OnError; notify != nil {
			notify(ctx, "claim", err)
		}
	}
	if notify := s.observer.OnStart; notify != nil {
		for i := range ds {
			notify(ctx, &ds[i])
		}
	}
	return ds, err
}

// Settle implements punctual.Store.
func (s observed) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	began := time.Now()
	errs, err := s.store.Settle(ctx, ss)
	took := time.Since(began)
	for i := range ss {
		item := err
		if err == nil {
			item = errs[i]
		}
		if notify := s.observer.OnSettle; notify != nil {
			notify(ctx, ss[i], took, item)
		}
		if lost := errors.Is(item, punctual.ErrLeaseLost) || errors.Is(item, punctual.ErrCancelled); lost && s.observer.OnLeaseLost != nil {
			d := punctual.Delivery{Message: punctual.Message{Topic: ss[i].Topic, ID: ss[i].ID}, Token: ss[i].Token}
			s.observer.OnLeaseLost(ctx, &d, item)
		}
	}
	return errs, err
}

// Now implements punctual.Store. No hook of an Observer is about the clock.
func (s observed) Now(ctx context.Context) (time.Time, error) { return s.store.Now(ctx) }

// Close implements punctual.Store.
func (s observed) Close() error { return s.store.Close() }
