package punctual

import (
	"context"
	"slices"
	"time"
)

// Observer is told what a Queue or a Worker does, for metrics and traces. Each function may be nil. They are called
// synchronously, from any goroutine and from several at once. They are on the way of the message, so they must be
// quick and must not block. What they are given is theirs to read during the call, not to keep or to change.
//
// ctx carries the values of the one that it is about. That is the caller of a Queue, the handler of
// a message, or else the worker. It may have ended.
//
// An Observer must not be changed once a Queue or Worker has it.
type Observer struct {
	// OnPush is called once for each message pushed, when its outcome is known to the caller. r.Status says what was
	// stored, r.Err what was refused or is not known. took is the time that the whole call took.
	OnPush func(ctx context.Context, r PushResult, took time.Duration)
	// OnAmend is called once for each cancel, reschedule, requeue and delete. r.Err says what it
	// met, was refused for, or that its outcome is not known. took is the time of the whole call.
	OnAmend func(ctx context.Context, a Amendment, r Amended, took time.Duration)

	// OnClaim is called after each claim that did not fail, n being the number of
	// messages it brought. took includes the time spent waiting for the first to be due.
	OnClaim func(ctx context.Context, n int, took time.Duration)
	// OnStart is called before a handler is given d. d.Late() says how late it is.
	OnStart func(ctx context.Context, d *Delivery)
	// OnFinish is called when the handler of d is done and v has been decided. err is what the handler returned (nil
	// for SettleAck), took how long it ran.
	OnFinish func(ctx context.Context, d *Delivery, v Verb, took time.Duration, err error)
	// OnSettle is called once for each settlement when its outcome is known: err is what the store
	// said of it, nil when it was done. took includes repetitions. A worker tells of what ends a lease,
	// a server also of extensions.
	OnSettle func(ctx context.Context, s Settlement, took time.Duration, err error)
	// OnLeaseLost is called when a worker learns that d is not its own any more: err
	// wraps ErrLeaseLost, or ErrCancelled when somebody cancelled it meanwhile. It may come
	// instead of OnStart: no handler starts under a lease that may have ended.
	OnLeaseLost func(ctx context.Context, d *Delivery, err error)
	// OnError is called for an error that no caller is there to receive: op is "claim",
	// "settle" or "extend".
	OnError func(ctx context.Context, op string, err error)
}

func (o *Observer) pushed(ctx context.Context, r PushResult, took time.Duration) {
	if o != nil && o.OnPush != nil {
		o.OnPush(ctx, r, took)
	}
}

func (o *Observer) amended(ctx context.Context, a Amendment, r Amended, took time.Duration) {
	if o != nil && o.OnAmend != nil {
		o.OnAmend(ctx, a, r, took)
	}
}

// JoinObservers returns an Observer that tells each of those given, in their order. Those that are nil are left out.
func JoinObservers(observers ...*Observer) *Observer {
	all := slices.DeleteFunc(slices.Clone(observers), func(o *Observer) bool { return o == nil })
	return &Observer{
		OnPush: func(ctx context.Context, r PushResult, took time.Duration) {
			for _, o := range all {
				if o.OnPush != nil {
					o.OnPush(ctx, r, took)
				}
			}
		},
		OnAmend: func(ctx context.Context, a Amendment, r Amended, took time.Duration) {
			for _, o := range all {
				if o.OnAmend != nil {
					o.OnAmend(ctx, a, r, took)
				}
			}
		},
		OnClaim: func(ctx context.Context, n int, took time.Duration) {
			for _, o := range all {
				if o.OnClaim != nil {
					o.OnClaim(ctx, n, took)
				}
			}
		},
		OnStart: func(ctx context.Context, d *Delivery) {
			for _, o := range all {
				if o.OnStart != nil {
					o.OnStart(ctx, d)
				}
			}
		},
		OnFinish: func(ctx context.Context, d *Delivery, v Verb, took time.Duration, err error) {
			for _, o := range all {
				if o.OnFinish != nil {
					o.OnFinish(ctx, d, v, took, err)
				}
			}
		},
		OnSettle: func(ctx context.Context, s Settlement, took time.Duration, err error) {
			for _, o := range all {
				if o.OnSettle != nil {
					o.OnSettle(ctx, s, took, err)
				}
			}
		},
		OnLeaseLost: func(ctx context.Context, d *Delivery, err error) {
			for _, o := range all {
				if o.OnLeaseLost != nil {
					o.OnLeaseLost(ctx, d, err)
				}
			}
		},
		OnError: func(ctx context.Context, op string, err error) {
			for _, o := range all {
				if o.OnError != nil {
					o.OnError(ctx, op, err)
				}
			}
		},
	}
}
