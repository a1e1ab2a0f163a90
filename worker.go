package punctual

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"
)

// The handler side in one picture:
//
//	worker.go          what a user sets up: WorkerConfig, NewWorker, Handle
//	worker_deliver.go  one message's way: claimLoop, claim, begin, handOut, hand, work, attempt,
//	                   finish
//	worker_settle.go   its last step: settle
//	worker_lease.go    the leases held: renewal, loss, the local count of time
//	worker_context.go  the contexts of handlers and their ends
//	worker_run.go      Start, Run, Stop, Drain: a worker's life
//	worker_order.go    which topic is asked first
//	worker_panic.go    panics as errors
//	worker_pace.go     growing delays
//
// The goroutines, and what each owns:
//
//   - the claimer (Worker.claimer), one while the worker runs: it alone takes
//     free hands, calls Store.Claim, and at the end takes all hands home and ends the
//     renewer and the watcher. Stop waits for it.
//   - the renewer (Worker.renewLeases), one while the worker runs or drains: it alone calls
//     Store.Settle with SettleExtend. The claimer, or Drain, waits for it.
//   - the watcher (Worker.watch), as long as the renewer: it ends the contexts of handlers at their
//     timeouts, when leases have lasted their length, and when a stop's time is up. It never waits
//     for the store.
//   - the hands (Worker.hand), started as they are needed, at most Concurrency: each takes one
//     message after the other, runs its handler and settles it. The claimer ends them and waits for
//     them. A handler that never returns keeps its hand, and the claimer, for ever; Stop tells how
//     many there are. One that ends its goroutine has it replaced.
//   - a flight of the settler (coalescer.flight) while settlements are on their way.

// WorkerConfig configures a Worker. The zero value is ready to use.
type WorkerConfig struct {
	// Concurrency is the number of hands: messages handled at the same time, 1 to
	// MaxClaim. Default 16.
	Concurrency int
	// Strict asks for the topics in the order of their Handle calls: a later one is only
	// served when the earlier ones have nothing due. Otherwise each claim asks in a random
	// order drawn by Weight, so that no topic starves.
	Strict bool
	// Lease overrides the topics' lease length, MinLease to MaxLease. A lease is renewed as
	// long as its handler runs, so it need not be longer than a handler; it is how long
	// a message waits after its worker died. Default 0: as the topic's settings say.
	Lease time.Duration
	// Timeout is how long a handler may run unless its Handle says otherwise: then its
	// context ends with context.DeadlineExceeded and its lease is not renewed any more, so
	// that a stuck handler does not hold its message for ever. It keeps its hand until it
	// returns. Default 1 h; a negative Timeout sets no limit.
	Timeout time.Duration
	// ShutdownTimeout is how long Run waits for running handlers at its end. Default 25 s,
	// within the 30 s that container platforms usually leave.
	ShutdownTimeout time.Duration
	// Middleware wraps every handler, the first one outermost.
	Middleware []Middleware
	// Logger receives what goes wrong: failed attempts, panics, lost leases, store errors.
	// Message bodies are never logged. Default slog.Default() at the time of NewWorker; use
	// slog.New(slog.DiscardHandler) for silence.
	Logger *slog.Logger
	// Observer is told of every claim, start, finish and loss. Default none.
	Observer *Observer
}

const (
	defaultConcurrency     = 16
	defaultHandlerTimeout  = time.Hour
	defaultShutdownTimeout = 25 * time.Second
)

func (c *WorkerConfig) withDefaults() WorkerConfig {
	var out WorkerConfig
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

func (c *WorkerConfig) check() error {
	if c.Concurrency < 1 || c.Concurrency > MaxClaim {
		return invalidf("concurrency %d: use 1 to %d, or 0 for %d", c.Concurrency, MaxClaim, defaultConcurrency)
	}
	if c.ShutdownTimeout < 0 {
		return invalidf("shutdown timeout %v: use a positive duration, or 0 for %v", c.ShutdownTimeout, defaultShutdownTimeout)
	}
	for i, m := range c.Middleware {
		if m == nil {
			return invalidf("middleware %d is nil", i+1)
		}
	}
	return nil
}

// Worker claims the messages of some topics and runs their handlers. It lives once: make
// it, register handlers with Handle, then either Run (or Start and Stop) it, or Drain it. All methods
// are safe for concurrent use.
//
// It claims only as many messages as it has free hands, renews their leases at a third of
// the lease's length while their handlers run, and settles each as the handler's error
// says (see Handler). It works with any Store, also one that is reached over a network:
// store errors are retried, and what could not be settled is delivered again when its lease ends.
type Worker struct {
	store   Store
	cfg     WorkerConfig
	settler *coalescer[Settlement, error]

	// hands holds one token for each hand that is free; the claimer takes them, the hand
	// that is done puts its own back.
	hands chan struct{}

	// routes and topics do not change once there is a session; until then guarded by mu.
	routes map[string]*route
	topics []string // in order of Handle

	mu sync.Mutex
	// mistakes are the errors of Handle calls, reported by Start, Run and Drain. Guarded by mu.
	mistakes []error
	// stopped tells that Stop was called; no session begins any more. Guarded by mu.
	stopped bool
	// session is the run or drain under way, or the one that was; nil before the
	// first. Guarded by mu.
	session *session

	leases   leases
	patience patience
}

// route is what Handle registered for one topic. It does not change.
type route struct {
	handler Handler
	weight  int
	timeout time.Duration // negative: no limit
	// timedOut is the cause with which the context of a handler ends at its timeout.
	timedOut error
}

// NewWorker returns a worker on s. A nil configuration stands for the defaults. A malformed
// one is reported by Start, Run and Drain.
func NewWorker(s Store, c *WorkerConfig) *Worker {
	w := &Worker{store: s, cfg: c.withDefaults(), routes: make(map[string]*route)}
	w.leases.init()
	bounds := coalesceConfig{op: "settle", maxItems: MaxBatch, maxBytes: math.MaxInt64, maxPending: math.MaxInt64}
	w.settler = newCoalescer(bounds, func(Settlement) int64 { return 1 }, w.settleBatch)
	if err := w.cfg.check(); err != nil {
		w.mistakes = append(w.mistakes, err)
		return w
	}
	w.hands = make(chan struct{}, w.cfg.Concurrency)
	w.freeHands(w.cfg.Concurrency)
	return w
}

// HandleOption adjusts how a worker treats one topic.
type HandleOption interface{ applyHandle(*route) error }

type handleOption func(*route) error

func (o handleOption) applyHandle(r *route) error { return o(r) }

// Weight gives a topic n shares, 1 to 1000; the default is 1. A topic is the first one asked in as
// many claims as its share of all shares. Without effect under WorkerConfig.Strict and Drain.
func Weight(n int) HandleOption {
	return handleOption(func(r *route) error {
		if n < 1 || n > 1000 {
			return invalidf("weight %d: use 1 to 1000", n)
		}
		r.weight = n
		return nil
	})
}

// Timeout overrides WorkerConfig.Timeout for one topic; a negative d sets no limit.
func Timeout(d time.Duration) HandleOption {
	return handleOption(func(r *route) error {
		if d == 0 {
			return invalidf("handler timeout 0: use a positive duration, or a negative one for no limit")
		}
		r.timeout = d
		return nil
	})
}

// Handle registers the handler of a topic. A malformed call (a bad topic name, a nil handler, a topic
// registered twice) is reported by Start, Run and Drain. Handle panics once
// the worker has been started or drained, since there is nobody left to tell.
func (w *Worker) Handle(topic string, h Handler, opts ...HandleOption) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.session != nil {
		panic("punctual: Worker.Handle(" + topic + ") after the worker was started: register every handler first")
	}
	if err := w.register(topic, h, opts); err != nil {
		w.mistakes = append(w.mistakes, fmt.Errorf("handle %q: %w", topic, err))
	}
}

func (w *Worker) register(topic string, h Handler, opts []HandleOption) error {
	if err := CheckTopic(topic); err != nil {
		return err
	}
	if h == nil {
		return invalidf("the handler is nil")
	}
	if w.routes[topic] != nil {
		return invalidf("the topic has a handler already")
	}
	r := &route{handler: h, weight: 1, timeout: w.cfg.Timeout}
	for _, o := range opts {
		if err := o.applyHandle(r); err != nil {
			return err
		}
	}
	r.timedOut = errorf(context.DeadlineExceeded, "the handler ran longer than its timeout of %v", r.timeout)
	if w.cfg.check() == nil {
		for i := len(w.cfg.Middleware) - 1; i >= 0; i-- {
			r.handler = w.cfg.Middleware[i](r.handler)
		}
	}
	w.routes[topic] = r
	w.topics = append(w.topics, topic)
	return nil
}

// check returns every mistake made while the worker was set up. The caller holds mu.
func (w *Worker) check() error {
	if len(w.mistakes) > 0 {
		return errors.Join(w.mistakes...)
	}
	if w.store == nil {
		return invalidf("worker without a store")
	}
	if len(w.topics) == 0 {
		return invalidf("worker without a handler: call Handle before it starts")
	}
	first := w.claimOf(w.topics, w.cfg.Concurrency)
	return first.Check()
}
