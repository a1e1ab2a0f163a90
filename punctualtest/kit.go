// Package punctualtest tests code that uses Punctual without waiting. A Kit has a store in memory
// whose clock stands still until the test moves it. Kit.Advance moves the clock and runs the
// handlers of the messages that become due.
//
//	kit := punctualtest.New(t)
//	kit.Handle("order.close", closeOrder)
//	PlaceOrder(ctx, kit.Queue, "4711")
//	kit.WantScheduled("order.close", "4711", 30*time.Minute)
//	kit.Advance(30 * time.Minute) // runs closeOrder
//
// All handlers run in the goroutine of the test, one after the other. Their order follows from the
// due times, and for messages that are due at the same stop of the clock from the order of the
// Handle calls, so every run of a test is the same. To test a program that runs its own
// worker.Worker, use a memstore with its default clock inside testing/synctest instead;
// TestVirtualTime in this package shows how.
package punctualtest

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/memstore"
	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/worker"
)

// TB is what the kit needs of a test. Every testing.TB has it.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// Kit is a queue with its handlers and a clock that the test moves. Make one with New. Any
// goroutine may use its fields. Its methods are for the goroutine of the test, and for handlers,
// which run in that goroutine. Handlers must call neither Advance nor AdvanceTo.
type Kit struct {
	// Queue pushes, cancels and reschedules: give it to the code under test.
	Queue *punctual.Queue
	// Store is the store behind Queue.
	Store *memstore.Store
	// Clock is the store's clock. Advance moves it and runs the handlers. A handler that moves the
	// Clock itself lets time pass during its work, without running other handlers.
	Clock *storekit.ManualClock

	tb     TB
	ctx    context.Context // ends with the test
	config worker.Config
	routes []route
	worker *worker.Worker // made by drain; nil when routes have changed since
	duty   *worker.Worker // stores the occurrences of the schedules of the topics in routes; made with worker, and nil when that is
	// scheduled says that duty has a topic. It has none if all topics in routes have an @ in their
	// names, because such topics have no schedules.
	scheduled bool
}

// route is one call of Handle.
type route struct {
	topic   string
	handler punctual.Handler
	opts    []worker.HandleOption
}

// Start is the time that the clock of a new kit shows unless StartAt says otherwise: a Monday
// morning.
var Start = time.Date(2026, time.March, 2, 9, 0, 0, 0, time.UTC)

// Option adjusts a kit.
type Option func(*options)

type options struct {
	start  time.Time
	worker worker.Config
}

// StartAt makes the clock start at t, rounded up to whole milliseconds.
func StartAt(t time.Time) Option {
	return func(o *options) { o.start = storekit.FromMillis(storekit.CeilMillis(t)) }
}

// Worker configures the worker that runs the handlers, for instance its middleware, its observer or
// the length of its leases. A worker without a Logger logs to the test.
func Worker(c worker.Config) Option {
	return func(o *options) { o.worker = c }
}

// New returns a kit that closes itself when the test ends.
func New(tb TB, opts ...Option) *Kit {
	o := options{start: Start}
	for _, opt := range opts {
		opt(&o)
	}
	if o.worker.Logger == nil {
		o.worker.Logger = testLogger(tb)
	}
	clock := storekit.NewManualClock(o.start)
	store := memstore.New(&memstore.Options{Clock: clock})
	ctx, cancel := context.WithCancel(context.Background())
	k := &Kit{
		Queue:  punctual.NewQueue(store, nil),
		Store:  store,
		Clock:  clock,
		tb:     tb,
		ctx:    ctx,
		config: o.worker,
	}
	tb.Cleanup(func() {
		k.close()
		cancel()
	})
	return k
}

func (k *Kit) close() {
	k.tb.Helper()
	if err := k.Queue.Close(k.ctx); err != nil {
		k.tb.Errorf("punctualtest: close: %v", err)
	}
	if err := k.Store.Close(); err != nil && !errors.Is(err, punctual.ErrClosed) {
		k.tb.Errorf("punctualtest: close: %v", err)
	}
}

// Handle registers the handler of a topic. A second call for the topic replaces the handler, for
// instance by one that succeeds, to test what happens after an outage. When a handler calls Handle,
// the change counts from the next due time on.
//
// The kit also stores the messages of the topic's schedules when their times come (schedule.Put),
// so that a year of a daily schedule takes milliseconds.
//
// A topic that has the default backoff gets that backoff without jitter, so that retries come after
// exactly 1 s, 2 s, 4 s and so on. Any other backoff stays as it is, also one that differs from the
// default in its Jitter alone.
func (k *Kit) Handle(topic string, h punctual.Handler, opts ...worker.HandleOption) {
	k.tb.Helper()
	k.steadyBackoff(topic)
	k.worker, k.duty = nil, nil
	r := route{topic: topic, handler: h, opts: opts}
	for i := range k.routes {
		if k.routes[i].topic == topic {
			k.routes[i] = r
			return
		}
	}
	k.routes = append(k.routes, r)
}

func (k *Kit) steadyBackoff(topic string) {
	k.tb.Helper()
	set, err := k.Store.Settings(k.ctx, topic)
	if err != nil {
		k.tb.Fatalf("punctualtest: handle %s: %v", topic, err)
	}
	steady := punctual.DefaultSettings().Backoff
	if !reflect.DeepEqual(set.Backoff, steady) {
		return
	}
	steady.Jitter = 0
	k.Configure(topic, punctual.SettingsPatch{Backoff: &steady})
}

// Configure changes a topic's settings.
func (k *Kit) Configure(topic string, p punctual.SettingsPatch) {
	k.tb.Helper()
	if _, err := k.Store.Configure(k.ctx, topic, p); err != nil {
		k.tb.Fatalf("punctualtest: configure %s: %v", topic, err)
	}
}

// Now returns what the clock shows.
func (k *Kit) Now() time.Time { return k.Clock.Now() }

// Advance moves the clock on by d and runs handlers, as AdvanceTo does. Advance(0) runs the
// handlers of the messages that are due now.
func (k *Kit) Advance(d time.Duration) (handled int) {
	k.tb.Helper()
	return k.AdvanceTo(k.Now().Add(d))
}

// AdvanceTo moves the clock to t. On the way it stops at each time at which messages become due,
// and runs their handlers. Messages that handlers push, retry or snooze are handled too, if they
// become due at t or before. AdvanceTo returns how many times a handler ran, failed attempts
// included.
func (k *Kit) AdvanceTo(t time.Time) (handled int) {
	k.tb.Helper()
	if t.Before(k.Now()) {
		k.tb.Fatalf("punctualtest: the clock stands at %v and cannot go back to %v", k.Now(), t)
	}
	handled = k.drain()
	for next, ok := k.next(); ok && !next.After(t); next, ok = k.next() {
		k.Clock.Set(next)
		handled += k.drain()
	}
	if k.Now().Before(t) { // otherwise a handler has moved the clock to t or beyond
		k.Clock.Set(t)
	}
	return handled
}

// next returns the earliest time ahead at which a message needs attention: in a topic with a
// handler, among the schedules of such a topic, or in a topic whose messages are copied for a group
// with a handler. Topics with a ready message are left out, because after a drain only those whose
// deliveries are paused have any.
func (k *Kit) next() (next time.Time, ok bool) {
	for _, r := range k.routes {
		topics := []string{r.topic, r.topic + schedule.Suffix}
		if parent, companion := storekit.Companion(r.topic); storekit.IsGroup(companion) {
			topics = append(topics, parent)
		}
		for _, topic := range topics {
			at, found := k.Store.NextAt(topic)
			if found && at.After(k.Now()) && (!ok || at.Before(next)) {
				next, ok = at, true
			}
		}
	}
	return next, ok
}

// drain runs the handlers of the messages that are due now.
func (k *Kit) drain() (handled int) {
	k.tb.Helper()
	if len(k.routes) == 0 {
		return 0
	}
	if k.worker == nil {
		k.worker = worker.New(k.Store, &k.config)
		k.duty = worker.New(k.Store, &worker.Config{Logger: k.config.Logger})
		scheduler := schedule.NewScheduler(k.Store)
		for _, r := range k.routes {
			k.worker.Handle(r.topic, r.handler, r.opts...)
			if !strings.Contains(r.topic, "@") {
				k.duty.Handle(r.topic+schedule.Suffix, scheduler)
				k.scheduled = true
			}
		}
	}
	work, duty := k.worker, k.duty // kept, because a handler may call Handle, which counts from the next due time on
	for {
		stored := 0
		if k.scheduled {
			var err error
			if stored, err = duty.Drain(k.ctx); err != nil {
				k.tb.Fatalf("punctualtest: schedules: %v", err)
			}
		}
		n, err := work.Drain(k.ctx)
		if err != nil {
			k.tb.Fatalf("punctualtest: %v", err)
		}
		handled += n
		if stored+n == 0 {
			return handled
		}
	}
}

// testLogger returns a Logger that logs to the test. It leaves out the time of day, because that is
// not the time of the kit's clock.
func testLogger(tb TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(testLog{tb}, &slog.HandlerOptions{
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}

type testLog struct{ tb TB }

// Write logs one line.
func (l testLog) Write(line []byte) (int, error) {
	l.tb.Logf("%s", strings.TrimSuffix(string(line), "\n"))
	return len(line), nil
}
