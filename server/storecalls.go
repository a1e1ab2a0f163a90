package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/punctualmq/punctual"
	batching "github.com/punctualmq/punctual/internal/batch"
	"github.com/punctualmq/punctual/storekit"
)

// storeCalls is the store as the server calls it. It is the only wrapper of a store in this
// package; where the server keeps the answers, answers.Store stands above it, so that a request
// which is sent again comes to storeCalls once. Four things happen to a call, the outermost first:
//
//  1. Guard: a panic becomes the error of the one call. Where the server keeps the answers, calls
//     with a key run in goroutines of their own, in which net/http does not recover: without the
//     guard, one panic would end the server and every call under way.
//  2. Observe: the Observer is notified, as by a Queue and a Worker. It gets OnStart for each
//     message that a claim brought, OnSettle for each settlement, and OnLeaseLost for each
//     settlement that was refused because its token is not the current one or its message was
//     cancelled.
//  3. Gather, after gather was called: pushes, and settlements, of requests that arrive at the same
//     time become one call (coalesce.go), and each call but a claim ends after a limit.
//  4. Reach: where the store takes follow-ups for a family of topics alone, other follow-ups go
//     into envelopes (storekit.Settle), which a duty forwards.
//
// It has no Unwrap, because it changes calls. The server asks the store itself for its other
// interfaces, in the goroutines of requests, where ServeHTTP recovers a panic.
type storeCalls struct {
	store    punctual.Store
	log      *slog.Logger
	observer *punctual.Observer

	limit       time.Duration // how long a call may take, except a claim; 0 is no limit
	pushes      *batching.Batcher[[]punctual.NewMessage, []punctual.PushResult]
	settlements *batching.Batcher[[]punctual.Settlement, []error]
}

// newStoreCalls returns the calls of s. A nil observer is notified of nothing.
func newStoreCalls(s punctual.Store, log *slog.Logger, observer *punctual.Observer) *storeCalls {
	if observer == nil {
		observer = new(punctual.Observer)
	}
	return &storeCalls{store: s, log: log, observer: observer}
}

// gather has pushes and settlements go together, and each call except a claim end after limit. It
// is for the calls below answers.Store, whose contexts do not end with the request.
func (c *storeCalls) gather(limit time.Duration) {
	c.limit = limit
	c.pushes = newBatcher("push", limit, c.push, func(ms []punctual.NewMessage) string {
		return oneTopic(len(ms), func(i int) string { return ms[i].Topic })
	}, func(ms []punctual.NewMessage) int { return len(ms) })
	c.settlements = newBatcher("settle", limit, c.settle, topicOfSettlements, messagesOf)
}

// Push implements punctual.Store. Gathered pushes are waited for even when ctx has ended, because a
// caller that left early would not know whether its messages are stored. The wait ends because each
// call of the store ends after the limit.
func (c *storeCalls) Push(ctx context.Context, ms []punctual.NewMessage) (rs []punctual.PushResult, err error) {
	defer c.guard("push", &err)
	began := time.Now()
	if c.pushes != nil {
		rs, err = c.pushes.Do(context.WithoutCancel(ctx), ms)
	} else {
		rs, err = c.push(ctx, ms)
	}
	if notify := c.observer.OnPush; notify != nil {
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

// push is one push of the store.
func (c *storeCalls) push(ctx context.Context, ms []punctual.NewMessage) (rs []punctual.PushResult, err error) {
	defer c.guard("push", &err)
	return c.store.Push(ctx, ms)
}

// Claim implements punctual.Store. Each claim is a call by itself, because requests differ in
// topics, lease and wait. It needs no limit, because answers.Store ends a claim when its last
// caller leaves.
func (c *storeCalls) Claim(ctx context.Context, q punctual.Claim) (ds []punctual.Delivery, err error) {
	defer c.guard("claim", &err)
	began := time.Now()
	ds, err = c.claim(ctx, q)
	switch {
	case err == nil:
		if notify := c.observer.OnClaim; notify != nil {
			notify(ctx, len(ds), time.Since(began))
		}
	case ctx.Err() == nil:
		if notify := c.observer.OnError; notify != nil {
			notify(ctx, "claim", err)
		}
	}
	if notify := c.observer.OnStart; notify != nil {
		for i := range ds {
			notify(ctx, &ds[i])
		}
	}
	return ds, err
}

// claim is one claim of the store.
func (c *storeCalls) claim(ctx context.Context, q punctual.Claim) (ds []punctual.Delivery, err error) {
	defer c.guard("claim", &err)
	return c.store.Claim(ctx, q)
}

// Settle implements punctual.Store. It waits as Push does.
func (c *storeCalls) Settle(ctx context.Context, ss []punctual.Settlement) (errs []error, err error) {
	defer c.guard("settle", &err)
	began := time.Now()
	if c.settlements != nil {
		errs, err = c.settlements.Do(context.WithoutCancel(ctx), ss)
	} else {
		errs, err = c.settle(ctx, ss)
	}
	took := time.Since(began)
	for i := range ss {
		item := err
		if err == nil {
			item = errs[i]
		}
		if notify := c.observer.OnSettle; notify != nil {
			notify(ctx, ss[i], took, item)
		}
		if lost := errors.Is(item, punctual.ErrLeaseLost) || errors.Is(item, punctual.ErrCancelled); lost && c.observer.OnLeaseLost != nil {
			d := punctual.Delivery{Message: punctual.Message{Topic: ss[i].Topic, ID: ss[i].ID}, Token: ss[i].Token}
			c.observer.OnLeaseLost(ctx, &d, item)
		}
	}
	return errs, err
}

// settle makes settlements in one call of the store, those with follow-ups out of its reach in
// envelopes.
func (c *storeCalls) settle(ctx context.Context, ss []punctual.Settlement) (errs []error, err error) {
	defer c.guard("settle", &err)
	return storekit.Settle(ctx, c.store, ss, func(x *punctual.Settlement, envelopes int) {
		c.log.Debug("follow-ups are forwarded", "topic", x.Topic, "id", x.ID, "forwarded", envelopes)
	})
}

// Amend implements punctual.Store. Each request is a call by itself, because amendments are few.
func (c *storeCalls) Amend(ctx context.Context, as []punctual.Amendment) (rs []punctual.Amended, err error) {
	defer c.guard("amend", &err)
	began := time.Now()
	rs, err = c.amend(ctx, as)
	if notify := c.observer.OnAmend; notify != nil {
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

// amend makes amendments in one call of the store, which ends after the limit.
func (c *storeCalls) amend(ctx context.Context, as []punctual.Amendment) (rs []punctual.Amended, err error) {
	defer c.guard("amend", &err)
	ctx, end := c.limited(ctx)
	defer end()
	rs, err = c.store.Amend(ctx, as)
	return rs, storeError(ctx, err)
}

// Now implements punctual.Store. It has the limit unless ctx has a deadline of its own, because
// answers.Store reads the clock once more after a call, when the request may have ended.
func (c *storeCalls) Now(ctx context.Context) (now time.Time, err error) {
	defer c.guard("now", &err)
	if _, ok := ctx.Deadline(); !ok {
		limited, end := c.limited(ctx)
		defer end()
		ctx = limited
	}
	now, err = c.store.Now(ctx)
	return now, storeError(ctx, err)
}

// limited returns ctx with the limit, if there is one.
func (c *storeCalls) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.limit == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, c.limit, errStoreTime)
}

// Close closes the store, which ends the calls under way, and waits for those calls.
func (c *storeCalls) Close() (err error) {
	defer c.guard("close", &err)
	return errors.Join(c.store.Close(), c.drain())
}

// drain waits for gathered calls under way and refuses further ones. The store stays open.
func (c *storeCalls) drain() error {
	if c.limit == 0 {
		return nil
	}
	if err := c.pushes.Close(context.Background()); err != nil {
		return err
	}
	return c.settlements.Close(context.Background())
}

// guard turns a panic into an ErrIndeterminate, because the store may have carried the call out
// before it panicked. The text of the panic goes to the log alone, since it may contain a message.
func (c *storeCalls) guard(op string, err *error) {
	if cause := recover(); cause != nil {
		c.log.Error("a call made the store panic", "operation", op, "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
		*err = fmt.Errorf("%s: the store panicked, and the server's log says where: %w", op, punctual.ErrIndeterminate)
	}
}
