package server

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/punctualmq/punctual"
)

// guarded is a store whose panic becomes the error of the one call that made it panic. Where the
// server keeps the answers, calls with a key run in goroutines of their own, in which net/http does
// not recover: without guarded, one panic would end the server and every call under way.
//
// It has no Unwrap. The server calls other interfaces of the store, such as its Inspector, in the
// goroutines of requests, where ServeHTTP recovers a panic.
type guarded struct {
	store punctual.Store
	log   *slog.Logger
}

// Push implements punctual.Store.
func (g guarded) Push(ctx context.Context, ms []punctual.NewMessage) (rs []punctual.PushResult, err error) {
	defer g.recover("push", &err)
	return g.store.Push(ctx, ms)
}

// Claim implements punctual.Store.
func (g guarded) Claim(ctx context.Context, c punctual.Claim) (ds []punctual.Delivery, err error) {
	defer g.recover("claim", &err)
	return g.store.Claim(ctx, c)
}

// Settle implements punctual.Store.
func (g guarded) Settle(ctx context.Context, ss []punctual.Settlement) (errs []error, err error) {
	defer g.recover("settle", &err)
	return g.store.Settle(ctx, ss)
}

// Amend implements punctual.Store.
func (g guarded) Amend(ctx context.Context, as []punctual.Amendment) (rs []punctual.Amended, err error) {
	defer g.recover("amend", &err)
	return g.store.Amend(ctx, as)
}

// Now implements punctual.Store.
func (g guarded) Now(ctx context.Context) (now time.Time, err error) {
	defer g.recover("now", &err)
	return g.store.Now(ctx)
}

// Close implements punctual.Store.
func (g guarded) Close() (err error) {
	defer g.recover("close", &err)
	return g.store.Close()
}

// recover turns a panic into an ErrIndeterminate, because the store may have carried the call out
// before it panicked. The text of the panic goes to the log alone, since it may contain a message.
func (g guarded) recover(op string, err *error) {
	if cause := recover(); cause != nil {
		g.log.Error("a call made the store panic", "operation", op, "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
		*err = fmt.Errorf("%s: the store panicked, and the server's log says where: %w", op, punctual.ErrIndeterminate)
	}
}
