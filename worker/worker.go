// Package worker runs the handlers of messages. It claims messages from a store when they are due,
// renews their leases while handlers work, and settles each message as its handler's error says
// (see [punctual.Handler]).
//
//	w := worker.New(store, nil)
//	worker.Handle(w, orders, closeUnpaid) // orders is a *punctual.Topic[Order]
//	err := w.Run(ctx)
package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/punctualmq/punctual"

	"github.com/punctualmq/punctual/internal/batch"
	"github.com/punctualmq/punctual/internal/duties"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// The files: first the set-up, then what a message passes and what accompanies it, then what stands
// beside that:
//
//	worker.go    what a user sets up: Config, New, Handle
//	poll.go      the poller: when it acts, and its state
//	claim.go     which topics a claim names, for how many messages it asks, and the call of the store
//	receive.go   gives the messages of a claim to the slots, and decides when its topics are asked for again
//	late.go      claims that take too long
//	slots.go     how many slots are free, and for whom
//	ahead.go     what is claimed before a slot is free
//	handle.go    one message in a slot: slot, work, attempt, finish
//	settle.go    the last step of a message: settle
//	refused.go   what becomes of a message whose follow-ups are refused
//	lease.go     the leases that the worker holds: which handler may start, and what follows when a lease is lost
//	renew.go     the renewer of leases
//	clock.go     the upper bound of the store's clock
//	context.go   the contexts of handlers
//	watch.go     the watcher, which ends a handler's context at its timeout or when its lease is over
//	run.go       Start, Run, Stop, Drain: a worker's life
//	order.go     in which order a claim names its topics
//	parts.go     a claim for more topics than one call may name, in parts
//	observer.go  the hooks of Config.Observer
//	panic.go     panics as errors
//	backoff.go   growing delays
//	quiet.go     middleware that snoozes what comes in quiet hours
//	events.go    handlers of what topics tell of their messages
//	duties.go    what the worker does for its topics beside the handlers: copies for groups, follow-ups to forward, schedules
//
// The goroutines, and what each owns:
//
//   - the poller (Worker.poller), one while the worker runs. It alone reserves free slots and
//     decides which claims are sent. At the end it waits for all slots and ends the renewer and the
//     watcher. Stop waits for it.
//   - a claim (begun in poller.send), one for each claim under way. A claim in parts has further
//     goroutines for the calls of Store.Claim that it makes side by side, and waits for them
//     (Worker.claimParts). One more goroutine reads the store's clock (Store.Now), at most once a
//     minute. The poller waits for them.
//   - the renewer (Worker.renewLeases), one while the worker runs or drains. It renews the leases
//     of messages in flight, and gives back messages that were claimed ahead and have got no slot
//     in time. Each renewal has a goroutine, which the renewer waits for. The poller, or Drain,
//     waits for the renewer.
//   - the watcher (Worker.watch), as long as the renewer. It ends the contexts of handlers at their
//     timeouts, at the end of leases that were not renewed, and when the time of Stop is up. It
//     never waits for the store.
//   - the slots (Worker.slot), started as they are needed, at most Concurrency. Each handles one
//     message after the other: it renews the lease if that may have ended, runs the handler and
//     settles the message. The poller ends them and waits for them. A handler that never returns
//     occupies its slot, and keeps the poller waiting, for ever; the error of Stop counts such
//     handlers. If a handler ends its goroutine, another goroutine replaces it.
//   - a settlement (Worker.pass), one for each message that is settled while its slot handles the
//     next message, because the store takes long. The poller waits for them.
//   - a release, one for each message that is given back without having had a slot
//     (Worker.giveBackAhead, poller.dispatchLate). The poller waits for it, or the renewer if that
//     has given the message back.
//   - the settler's (batch.Batcher.drain) while settlements are under way. The slots, settlements
//     and releases wait for its answers.
//   - the duties (Worker.runDuties), as long as the poller claims, unless the worker has none. It
//     ends the workers that it starts. The poller waits for it.
//   - a check for groups (Worker.checkGroups), one for each topic that must have no groups, at
//     Start and Drain. It ends when the store answers, or when its time is over before it has
//     asked. The poller, or Drain, waits for those that are late.

// Config configures a Worker. The zero value is ready to use.
type Config struct {
	// Concurrency is the number of slots, that is of messages handled at the same time: 1 to
	// limits.MaxClaim. Default 16.
	Concurrency int
	// Strict asks for the topics in the order of their Handle calls: a claim takes messages of a
	// later topic only when the earlier ones have nothing due or have got all slots that they may
	// have. So a slot stays free for each other topic, as MaxSlots says. The MaxSlots of one topic
	// bounds what a claim that names it takes of each topic. Without Strict, claims ask in a random
	// order drawn by Weight, so that no topic starves. The order is drawn anew for each claim; with
	// more than 256 topics it is kept for 20 µs a topic, at most half a second.
	Strict bool
	// Lease overrides the topics' lease length, limits.MinLease to limits.MaxLease. A lease is
	// renewed until its handler has returned or the handler's context has ended, so it need not be
	// as long as a handler takes. When a worker dies, its messages are delivered again once their
	// leases end. Default 0: as the topic's settings say.
	Lease time.Duration
	// Timeout is how long a handler may run, counted from the claim of its message, unless its
	// Handle or the message (punctual.Timeout) says otherwise. After that the handler's context
	// ends with context.DeadlineExceeded and its lease is not renewed any more, so that a stuck
	// handler does not hold its message for ever. The handler occupies its slot until it returns.
	// Default 1 h; a negative Timeout sets no limit.
	Timeout time.Duration
	// ShutdownTimeout is how long Run waits for running handlers at its end, before it ends their
	// contexts. Default 25 s, within the 30 s that container platforms usually leave.
	ShutdownTimeout time.Duration
	// Schedules has the worker also store the occurrences of the schedules of its topics
	// (schedule.Schedule). That takes no slots from the handlers. Any number of workers may store
	// the occurrences of the same topics, and 'punctual serve' stores those of all topics. Over a
	// server that does the duties of its store the worker leaves them to the server. Default false.
	Schedules bool
	// Middleware wraps every handler, the first one outermost.
	Middleware []Middleware
	// Logger receives what goes wrong: failed attempts, panics, lost leases, store errors.
	// Message bodies are never logged. Default slog.Default() at the time of New; use
	// slog.New(slog.DiscardHandler) for silence.
	Logger *slog.Logger
	// Observer is notified of claims, starts, finishes, settlements, lost leases, errors and steps
	// of schedules. Default none.
	Observer *punctual.Observer
}

// lateCall is how long a call to the store may take, beyond the wait that it asks for, before its
// topics are considered slow and are served by other calls (P14). A claim may take somewhat longer
// (ask.mayTake).
const lateCall = 200 * time.Millisecond

const (
	defaultConcurrency     = 16
	defaultHandlerTimeout  = time.Hour
	defaultShutdownTimeout = 25 * time.Second
)

func (c *Config) withDefaults() Config {
	var out Config
	if c != nil {
		out = *c
	}
	if out.Concurrency == 0 {
		out.Concurrency = defaultConcurrency
	}
	if out.Timeout == 0 {
		out.Timeout = defaultHandlerTimeout
	}
	if out.ShutdownTimeout == 0 {
		out.ShutdownTimeout = defaultShutdownTimeout
	}
	if out.Logger == nil {
		out.Logger = slog.Default()
	}
	return out
}

func (c *Config) check() error {
	if c.Concurrency < 1 || c.Concurrency > limits.MaxClaim {
		return storekit.Invalidf("concurrency %d: use 1 to %d, or 0 for %d", c.Concurrency, limits.MaxClaim, defaultConcurrency)
	}
	if c.ShutdownTimeout < 0 {
		return storekit.Invalidf("shutdown timeout %v: use a positive duration, or 0 for %v", c.ShutdownTimeout, defaultShutdownTimeout)
	}
	if c.Lease != 0 && (c.Lease < limits.MinLease || c.Lease > limits.MaxLease) {
		return storekit.Invalidf("lease %v: use %v to %v, or 0 for the topics'", c.Lease, limits.MinLease, limits.MaxLease)
	}
	for i, m := range c.Middleware {
		if m == nil {
			return storekit.Invalidf("middleware %d is nil", i+1)
		}
	}
	return nil
}

// Worker claims the messages of some topics and runs their handlers. A Worker is run once: make it,
// register handlers with Handle, then either Run (or Start and Stop) it, or Drain it, as often as
// needed. All methods are safe for concurrent use.
//
// It claims messages for its free slots. When there is a backlog and handlers are quick, it claims
// some milliseconds of work ahead of free slots, and more the longer the store takes to answer. If
// the process dies, these messages have used an attempt. It renews a lease after at most a third of
// its length, until the handler has returned or its context has ended, and settles each message as
// the handler's error says (see punctual.Handler). It works with any Store, also one that is
// reached over a network. After a store error that may pass it tries again. A message that could
// not be settled is delivered again when its lease ends, unless it has no attempt left or was
// cancelled.
type Worker struct {
	store    punctual.Store
	cfg      Config
	observer punctual.Observer // see observing
	settler  *batch.Batcher[punctual.Settlement, error]

	slots slots

	// routes and topics do not change once there is a session; until then guarded by mu.
	routes map[string]*route
	topics []string // in order of Handle

	mu sync.Mutex
	// mistakes are the errors of the configuration and of Handle calls, reported by Start, Run and
	// Drain. Guarded by mu.
	mistakes []error
	// stopped reports that Stop was called, so that no session may begin any more. Guarded by mu.
	stopped bool
	// session is the latest run or drain, which may be under way; nil before the first. Guarded by
	// mu.
	session *session

	inflight inflight
	settleBy settleDeadline
	// runner does the duties of the topics, and has what settling after a refusal needs of the
	// store.
	runner *duties.Runner
	// outage is the log of outages of the runner, or of the one whose duty this worker does.
	outage *duties.Outage
}

// route is what Handle registered for one topic. Only busy changes once the worker has started.
type route struct {
	topic    string
	maxSlots int // 0: no limit
	// busy counts the topic's messages that have a slot. Guarded by slots.mu.
	busy int

	handler punctual.Handler
	weight  int
	timeout time.Duration // negative: no limit
	// duty reports that the handler is that of a duty.
	duty bool
}

// New returns a worker on s. A nil configuration stands for the defaults. A malformed
// one is reported by Start, Run and Drain.
func New(s punctual.Store, c *Config) *Worker {
	w := &Worker{store: s, cfg: c.withDefaults(), routes: make(map[string]*route)}
	w.observer = observing(w.cfg.Observer)
	w.inflight.init()
	w.runner = duties.NewRunner(s, w.cfg.Logger, w.cfg.Observer)
	w.outage = w.runner.LogOutage()
	w.settler = batch.New(batch.Config[punctual.Settlement, error]{
		Op: "settle", Run: w.settleBatch, Size: settlementBytes, Key: func(s punctual.Settlement) string { return s.Topic },
		MaxItems: limits.MaxBatch, MaxBytes: maxSettleBytes, MaxPending: math.MaxInt64, Late: lateCall,
		Closed: punctual.ErrClosed, Overloaded: punctual.ErrOverloaded, Indeterminate: punctual.ErrIndeterminate,
	})
	if err := w.cfg.check(); err != nil {
		w.mistakes = append(w.mistakes, err)
		return w
	}
	w.slots.init(w.cfg.Concurrency)
	return w
}

// Middleware wraps a Handler in another one, for what all handlers share: tracing,
// locks, translation of errors.
type Middleware = func(punctual.Handler) punctual.Handler

// HandleOption adjusts how a worker treats one topic.
type HandleOption interface{ applyHandle(*route) error }

type handleOption func(*route) error

func (o handleOption) applyHandle(r *route) error { return o(r) }

// Weight gives a topic n shares, 1 to 1000; the default is 1. On average, a topic is the first one
// asked in as many claims as its share of all shares. Without effect under Config.Strict and Drain.
func Weight(n int) HandleOption {
	return handleOption(func(r *route) error {
		if n < 1 || n > 1000 {
			return storekit.Invalidf("weight %d: use 1 to 1000", n)
		}
		r.weight = n
		return nil
	})
}

// MaxSlots bounds how many messages of a topic are handled at the same time, 1 to limits.MaxClaim.
// By default a topic may have all slots except one for each other topic that has none, or one for
// all of these where topics outnumber the slots. A worker with a single slot keeps none. Without
// effect under Drain, which handles one message at a time.
func MaxSlots(n int) HandleOption {
	return handleOption(func(r *route) error {
		if n < 1 || n > limits.MaxClaim {
			return storekit.Invalidf("max slots %d: use 1 to %d", n, limits.MaxClaim)
		}
		r.maxSlots = n
		return nil
	})
}

// Timeout overrides Config.Timeout for one topic; a negative d sets no limit. A message with a
// punctual.Timeout has its own.
func Timeout(d time.Duration) HandleOption {
	return handleOption(func(r *route) error {
		if d == 0 {
			return storekit.Invalidf("handler timeout 0: use a positive duration, or a negative one for no limit")
		}
		r.timeout = d
		return nil
	})
}

// Handle registers the handler of a topic. A malformed call (a bad topic name, a nil handler, a
// topic registered twice, a malformed option) is reported by Start, Run and Drain. Handle panics
// once the worker has been started or drained, because its topics do not change after that and
// nothing would report the mistake.
func (w *Worker) Handle(topic string, h punctual.Handler, opts ...HandleOption) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.session != nil {
		panic("worker: Handle(" + topic + ") after the worker was started: register every handler first")
	}
	if err := w.register(topic, h, opts); err != nil {
		w.mistakes = append(w.mistakes, fmt.Errorf("handle %q: %w", topic, err))
	}
}

func (w *Worker) register(topic string, h punctual.Handler, opts []HandleOption) error {
	if w.routes == nil {
		return storekit.Invalidf("the worker was not made by New: use that")
	}
	if err := storekit.CheckTopic(topic); err != nil {
		return err
	}
	if h == nil {
		return storekit.Invalidf("the handler is nil")
	}
	if w.routes[topic] != nil {
		return storekit.Invalidf("the topic has a handler already")
	}
	r := &route{topic: topic, handler: h, weight: 1, timeout: w.cfg.Timeout}
	if d, ok := h.(duties.Handler); ok {
		r.duty, w.outage = true, d.LogOutage()
	}
	for _, o := range opts {
		if err := o.applyHandle(r); err != nil {
			return err
		}
	}
	if w.cfg.check() == nil {
		for i := len(w.cfg.Middleware) - 1; i >= 0; i-- {
			r.handler = w.cfg.Middleware[i](r.handler)
		}
	}
	w.routes[topic] = r
	w.topics = append(w.topics, topic)
	return nil
}

// Handle registers f as the handler of a typed topic: w.Handle(t.Name(), t.Handler(f), opts...).
func Handle[T any](w *Worker, t *punctual.Topic[T], f func(ctx context.Context, v T, d *punctual.Delivery) error, opts ...HandleOption) {
	w.Handle(t.Name(), t.Handler(f), opts...)
}

// check returns the mistakes made while the worker was set up, joined; if there are none, an error
// that says what the worker lacks, or nil. The caller holds mu.
func (w *Worker) check() error {
	if len(w.mistakes) > 0 {
		return errors.Join(w.mistakes...)
	}
	if w.store == nil {
		return storekit.Invalidf("worker without a store")
	}
	if len(w.topics) == 0 {
		return storekit.Invalidf("worker without a handler: call Handle before it starts")
	}
	return nil
}
