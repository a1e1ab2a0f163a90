package server

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/punctualmq/punctual"
)

// guarded is a store whose panic is the error of that one call. Calls run in goroutines of their own, where nobody else
// could recover: the whole server would end, and with it every other call. Its optional interfaces are not those of the store.
type guarded struct {
	punctual.Store
	log *slog.Logger
}

func (g guarded) Push(ctx context.Context, ms []punctual.NewMessage) (rs []punctual.PushResult, err error) {
	defer g.recover("push", &err)
	return g.Store.Push(ctx, ms)
}

func (g guarded) Claim(ctx context.Context, c punctual.Claim) (ds []punctual.Delivery, err error) {
	defer g.recover("claim", &err)
	return g.Store.Claim(ctx, c)
}

func (g guarded) Settle(ctx context.Context, ss []punctual.Settlement) (errs []error, err error) {
	defer g.recover("settle", &err)
	return g.Store.Settle(ctx, ss)
}

func (g guarded) Amend(ctx context.Context, as []punctual.Amendment) (rs []punctual.Amended, err error) {
	defer g.recover("amend", &err)
	return g.Store.Amend(ctx, as)
}

func (g guarded) Now(ctx context.Context) (now time.Time, err error) {
	defer g.recover("now", &err)
	return g.Store.Now(ctx)
}

// recover makes a panic an error, since the call may have happened. What the panic says, which may be a message, is for the
// log alone.
func (g guarded) recover(op string, err *error) {
	if cause := recover(); cause != nil {
		g.log.Error("a call made the store panic", "operation", op, "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
		*err = fmt.Errorf("%s: the store panicked, and the server's log says where: %w", op, punctual.ErrIndeterminate)
	}
}
