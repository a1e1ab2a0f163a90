package server

import (
	"context"
	"errors"
	"time"

	"github.com/punctualmq/punctual"
)

// observed tells an Observer what passes between the server and its store, as a Queue and a Worker do. It calls
// OnStart for each message that a claim brought, OnSettle for each settlement, and OnLeaseLost for each holder who
// was told so. A call that the store knows again counts again. Its optional interfaces are not those of the store.
type observed struct {
	punctual.Store
	observer *punctual.Observer
}

func (s observed) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	began := time.Now()
	rs, err := s.Store.Push(ctx, ms)
	if told := s.observer.OnPush; told != nil {
		took := time.Since(began)
		for i := range ms {
			r := punctual.PushResult{ID: ms[i].ID, Topic: ms[i].Topic, Err: err}
			if err == nil {
				r = rs[i]
			}
			told(ctx, r, took)
		}
	}
	return rs, err
}

func (s observed) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	began := time.Now()
	rs, err := s.Store.Amend(ctx, as)
	if told := s.observer.OnAmend; told != nil {
		took := time.Since(began)
		for i := range as {
			r := punctual.Amended{Err: err}
			if err == nil {
				r = rs[i]
			}
			told(ctx, as[i], r, took)
		}
	}
	return rs, err
}

func (s observed) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	began := time.Now()
	ds, err := s.Store.Claim(ctx, c)
	switch {
	case err == nil:
		if told := s.observer.OnClaim; told != nil {
			told(ctx, len(ds), time.Since(began))
		}
	case ctx.Err() == nil:
		if told := s.observer.OnError; told != nil {
			told(ctx, "claim", err)
		}
	}
	if told := s.observer.OnStart; told != nil {
		for i := range ds {
			told(ctx, &ds[i])
		}
	}
	return ds, err
}

func (s observed) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	began := time.Now()
	errs, err := s.Store.Settle(ctx, ss)
	took := time.Since(began)
	for i := range ss {
		item := err
		if err == nil {
			item = errs[i]
		}
		if told := s.observer.OnSettle; told != nil {
			told(ctx, ss[i], took, item)
		}
		if lost := errors.Is(item, punctual.ErrLeaseLost) || errors.Is(item, punctual.ErrCancelled); lost && s.observer.OnLeaseLost != nil {
			d := punctual.Delivery{Message: punctual.Message{Topic: ss[i].Topic, ID: ss[i].ID}, Token: ss[i].Token}
			s.observer.OnLeaseLost(ctx, &d, item)
		}
	}
	return errs, err
}
