package punctual

import (
	"context"
	"slices"
	"time"
)

// Observer has functions that a Queue, a Worker, a Scheduler or a server calls for what it does,
// for metrics and traces. Each function may be nil. They are called synchronously, from any
// goroutine and from several at once. The message waits for them, so they must be quick and must
// not block. They may read their arguments during the call, but neither change nor keep them.
//
// ctx carries the values of the context of the Queue's caller or of the message's handler; for
// calls that belong to neither, those of the context of the Worker. It may have ended.
//
// An Observer must not be changed once a Queue, a Worker, a Scheduler or a server has it.
type Observer struct {
	// OnPush is called once for each message pushed, just before the call returns. It is not called
	// for a push with an invalid option, nor for a PushMany that returns no results. r.Err, if not
	// nil, says why the message was refused or that its outcome is not known; otherwise r.Status
	// says what became of it. took is the time that the whole call took, and 0 in a Backfill.
	OnPush func(ctx context.Context, r PushResult, took time.Duration)
	// OnAmend is called once for each cancel, reschedule, requeue and delete, except for a call
	// with an invalid due time and for one that returns no results. r.Err, if not nil, says why the
	// change was not made or that its outcome is not known. took is the time that the whole call
	// took, and 0 in a Bulk.
	OnAmend func(ctx context.Context, a Amendment, r Amended, took time.Duration)

	// OnClaim is called after each claim that did not fail; n is the number of messages that it
	// returned. took includes the time spent waiting until a message was due.
	OnClaim func(ctx context.Context, n int, took time.Duration)
	// OnStart is called before the handler of d is called. A server calls OnStart for each message
	// that a claim brings.
	OnStart func(ctx context.Context, d *Delivery)
	// OnFinish is called when the handler of d has returned. v is how its message will be settled,
	// or was settled by the handler itself (Settled). err is what the handler returned, nil for
	// SettleAck, and took is how long the handler ran. A server never calls OnFinish, because the
	// handlers run in its clients.
	OnFinish func(ctx context.Context, d *Delivery, v Verb, took time.Duration, err error)
	// OnSettle is called once for each settlement when its outcome is known: err is the store's
	// error, nil when the settlement was made. took includes repeated tries. A worker calls
	// OnSettle for settlements that end a lease, a server also for extensions.
	OnSettle func(ctx context.Context, s Settlement, took time.Duration, err error)
	// OnLeaseLost is called when a worker learns that it does not hold the lease of d any more, and
	// by a server for each settlement that fails so; the server's d has only the topic, the ID and
	// the token. err wraps ErrLeaseLost, or ErrCancelled when somebody cancelled the message
	// meanwhile. A worker may call OnLeaseLost without an OnStart before, because no handler starts
	// under a lease that may have ended.
	OnLeaseLost func(ctx context.Context, d *Delivery, err error)
	// OnError is called for an error that a worker returns to no caller, and by a server for a
	// claim that failed. op is "claim", "settle" or "extend".
	OnError func(ctx context.Context, op string, err error)
	// OnSchedule is called when a duty has decided about times of a schedule, before the store has
	// what was decided. If storing it fails the times are decided again, and OnSchedule is called
	// again.
	OnSchedule func(ctx context.Context, s ScheduleStep)
}

// ScheduleCounts say how many times of a schedule were decided how.
type ScheduleCounts struct {
	// Stored are those whose occurrence was stored.
	Stored int64
	// Missed are those that no duty got to in time, and that Schedule.Missed did not make up for.
	Missed int64
	// Skipped are those that were left out on purpose: by Overlap, a pause or schedule.Skip.
	Skipped int64
}

// ScheduleStep says how many times of a schedule a duty has decided about at once, and how.
type ScheduleStep struct {
	// Topic and Name are those of the schedule.
	Topic, Name string
	// Counts are what is added to the counts of the schedule.
	Counts ScheduleCounts
	// Paused is set when the schedule was paused because its last occurrences are dead
	// (Schedule.MaxDead).
	Paused bool
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

// JoinObservers returns an Observer that calls the functions of each of the observers, in the order
// given. Observers that are nil are left out.
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
		OnSchedule: func(ctx context.Context, s ScheduleStep) {
			for _, o := range all {
				if o.OnSchedule != nil {
					o.OnSchedule(ctx, s)
				}
			}
		},
	}
}
