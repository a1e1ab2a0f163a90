package worker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// A worker keeps the leases of the messages that it has claimed until their handlers have returned.
// One goroutine, the renewer, renews them in batches. Another one, the watcher (watch.go), ends a
// handler's context when the lease is over.
//
// The upper bound of the store's clock (clock.go) shows until when a lease surely holds, so that it
// does not matter which time the local wall clock shows (P8). After a renewal the lease surely
// holds for its length counted from when the renewal was sent, because the store granted it later.
// One tick is subtracted, because the store rounds its clock down.
//
// A handler starts only under a lease that surely holds (P3). The worker cannot be sure of that
// when the answer to the claim took long to arrive, or when the process paused. Then it renews the
// lease first, and the store answers whether the lease is still this worker's. If the lease is lost
// the message is dropped; if the renewal fails otherwise the message is given back unstarted
// (ensureLease).
//
// Once the handler runs, the end of the lease by local time (message.endsAt) only decides when the
// handler's context ends and for how long renewals and settlements are tried. Whether a settlement
// is accepted is the store's decision.

// message is one message in flight: its delivery, its handler's context and the state of its lease.
type message struct {
	delivery *punctual.Delivery
	// lease has the topic, ID and token as claimed; attempt is the number of the attempt.
	lease   punctual.Settlement
	attempt int
	route   *route
	// length is the length of the lease as claimed. Each renewal asks for the same length, also if
	// the topic's settings have changed meanwhile.
	length time.Duration
	// received is when the claim returned, began when the handler was called, took how long the
	// handler ran. Only the goroutine that runs the handler uses began and took.
	received, began time.Time
	took            time.Duration

	// ctx is the context of the handler. stop is session.handlers, which ends when all handlers are
	// to give up.
	ctx  *handlerContext
	stop context.Context

	// The rest is guarded by inflight.mu.

	// started reports that the lease surely held when the handler was about to be called.
	started bool
	// renewed is when the latest renewal that succeeded was sent; zero before the first.
	renewed time.Time
	// renewAt is when to renew the lease, endsAt when it ends by local time.
	renewAt, endsAt time.Time
	// renewing reports that a renewal by the renewer is under way; isolate clears it when that
	// renewal is late, and prolong when another one has succeeded.
	renewing bool
	// timeout is when the handler's context ends because of its timeout; zero without a timeout,
	// and once it has ended for that.
	timeout time.Time
	// over is why the lease ended before the handler returned; nil as long as no reason is known.
	over error
	// lost reports that the store has answered ErrLeaseLost.
	lost bool
	// returned reports that the handler has returned, or that the message is given back unstarted.
	// From then on over and lost do not change and need no lock.
	returned bool
	// index is the message's index in inflight.held until returned is set.
	index int
}

// inflight is the set of messages from their claim until their handlers have returned or they are
// given back unstarted.
type inflight struct {
	mu   sync.Mutex
	held []*message // in no order; guarded by mu
	// clock is the upper bound of the store's clock. Guarded by mu.
	clock clockBound
	// renewals wakes the renewer; ends wakes the watcher.
	renewals, ends alarm
	// isolated has the topics whose leases are renewed in calls of their own, because a call for
	// several topics took long. A topic leaves it when a renewal of it was in time. Guarded by mu.
	isolated map[string]bool
	// failing has the topics whose latest call for renewals had a failure, of this topic or of
	// another one. Guarded by mu.
	failing map[string]bool
}

// alarm wakes the one goroutine that waits for it (inflight.sleep).
type alarm struct {
	// at is when the goroutine wakes without a signal; zero for never. Guarded by inflight.mu.
	at time.Time
	// moved has room for one signal that at has become earlier.
	moved chan struct{}
}

// notLaterThan sets the alarm to t unless it is set to t or earlier already, and reports whether it
// did. The caller holds inflight.mu.
func (a *alarm) notLaterThan(t time.Time) bool {
	if !a.at.IsZero() && !t.Before(a.at) {
		return false
	}
	a.at = t
	return true
}

// wakeBy sets the alarm as notLaterThan does, and signals that to the goroutine that waits. The
// caller holds inflight.mu.
func (a *alarm) wakeBy(t time.Time) {
	if !a.notLaterThan(t) {
		return
	}
	select {
	case a.moved <- struct{}{}:
	default:
	}
}

func (f *inflight) init() {
	f.clock.wall = func(t time.Time) time.Time { return t.Round(0) }
	f.renewals.moved = make(chan struct{}, 1)
	f.ends.moved = make(chan struct{}, 1)
	f.isolated, f.failing = make(map[string]bool), make(map[string]bool)
}

// begin returns a message in flight for each delivery of a claim.
func (w *Worker) begin(s *session, got *claimed) []*message {
	ms := make([]*message, len(got.deliveries))
	// Two allocations for all messages are cheaper than one for each. The contexts are not part of
	// the messages, so that a handler which keeps its context does not keep the messages in memory.
	together, contexts := make([]message, len(ms)), make([]handlerContext, len(ms))
	for i := range ms {
		d, m := &got.deliveries[i], &together[i]
		ms[i] = m
		m.delivery, m.lease, m.attempt = d, punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token}, d.Attempt
		m.route, m.length, m.stop = w.routes[d.Topic], d.LeaseUntil.Sub(d.Delivered), s.handlers
		m.received = got.received
		if d := m.mayTake(); d > 0 {
			m.timeout = got.received.Add(d)
		}
		left := d.LeaseUntil.Sub(got.clock)
		m.renewAt, m.endsAt = got.received.Add(left/3), got.received.Add(left)
		m.ctx = &contexts[i]
		m.ctx.init(s, m.timeout)
	}
	w.inflight.add(ms)
	if s.handlers.Err() != nil { // the watcher may have ended the contexts in flight before these were added
		endHandlers(ms, s)
	}
	return ms
}

// observe updates the bound of the store's clock from an answer that showed it, unless shown is
// zero. It returns the latest time that the store's clock can show at received.
func (f *inflight) observe(sent, received, shown time.Time) (latest time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !shown.IsZero() {
		f.clock.observe(sent, received, shown)
	}
	return f.clock.latestAt(received)
}

// start marks m as started if its lease surely holds at now, and reports whether it does. If the
// lease is known to be over, over is the reason.
func (f *inflight) start(m *message, now time.Time) (ok bool, over error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case m.over != nil:
		return false, m.over
	case m.renewed.IsZero():
		ok = f.clock.latestAt(now).Before(m.delivery.LeaseUntil)
	default:
		ok = f.clock.passed(m.renewed, now) < m.length-tick
	}
	m.started = ok
	return ok, nil
}

// ensureLease returns nil when the handler of m may start, because its lease surely holds. If that
// is not sure, ensureLease renews the lease, once. The error says why the handler must not start;
// it has been reported.
func (w *Worker) ensureLease(m *message) error {
	sent := time.Now()
	ok, err := w.inflight.start(m, sent)
	if ok || err != nil {
		return err
	}
	if err = w.extend(m); err == nil {
		w.inflight.prolong(m, sent)
		if ok, err = w.inflight.start(m, time.Now()); ok || err != nil {
			return err
		}
		err = errors.New("it was renewed, and the answer came too late")
	}
	if !errors.Is(err, punctual.ErrLeaseLost) && !errors.Is(err, punctual.ErrCancelled) {
		err = storekit.Errorf(punctual.ErrLeaseLost, "the lease may have ended before the handler could start: %v", err)
		w.loseRunning(m, err, false)
		return err
	}
	w.loseRunning(m, err, errors.Is(err, punctual.ErrLeaseLost))
	return err
}

// extend renews the lease of m through the settler, in one batch with the settlements of that
// moment. The renewer is not involved.
func (w *Worker) extend(m *message) error {
	s := m.lease
	s.Verb, s.Delay = punctual.SettleExtend, m.length
	ctx, cancel := context.WithTimeout(context.Background(), min(m.length, settleCall)) // after m.length the renewed lease is over, too
	defer cancel()
	item, err := w.settler.Do(ctx, s)
	if err != nil {
		return err
	}
	return item
}

// doubtful reports whether the lease of m may have ended before its handler has started. Then the
// renewer and the watcher leave m to its slot, which renews the lease itself (ensureLease). The
// caller holds inflight.mu.
func (m *message) doubtful(now time.Time) bool { return !m.started && !m.endsAt.After(now) }

// add adds ms to held and makes the renewer and the watcher wake in time for them.
func (f *inflight) add(ms []*message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range ms {
		m.index = len(f.held)
		f.held = append(f.held, m)
		f.renewals.wakeBy(m.renewAt)
		f.ends.wakeBy(m.nextEnd())
	}
}

// renewBy makes the renewer wake at t or before.
func (f *inflight) renewBy(t time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.renewals.wakeBy(t)
}

// drop removes m from held, because its handler has returned or because m is given back unstarted,
// and returns when its lease ends by local time.
func (f *inflight) drop(m *message) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	m.returned = true
	last := len(f.held) - 1
	f.held[m.index] = f.held[last]
	f.held[m.index].index = m.index
	f.held[last] = nil
	f.held = f.held[:last]
	return m.endsAt
}

// all returns a copy of held.
func (f *inflight) all() []*message {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.held)
}

// running returns how many handlers are running. Messages in flight whose handlers have not started
// do not count.
func (f *inflight) running() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.held {
		if m.started {
			n++
		}
	}
	return n
}

// endOf returns when the lease of m ends by local time.
func (f *inflight) endOf(m *message) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return m.endsAt
}

// sleep waits until the time of the alarm, a signal that the alarm is earlier now, the end of ctx,
// or the close of over.
func (f *inflight) sleep(ctx context.Context, a *alarm, over <-chan struct{}) {
	f.mu.Lock()
	at := a.at
	f.mu.Unlock()
	var timer <-chan time.Time
	if !at.IsZero() {
		t := time.NewTimer(time.Until(at))
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-timer:
	case <-a.moved:
	case <-over:
	case <-ctx.Done():
	}
}

// loseRunning ends the context of the handler of m because the lease is over, for the reason err.
// lost says that the store has answered ErrLeaseLost.
func (w *Worker) loseRunning(m *message, err error, lost bool) {
	if w.inflight.lose(m, err, lost) {
		m.ctx.end(context.Canceled, err)
		w.reportLoss(m, err)
	}
}

// lose notes why the lease of m is over, and reports whether m was still in flight and its lease
// not known to be over.
func (f *inflight) lose(m *message, err error, lost bool) (news bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m.returned {
		return false
	}
	m.lost = m.lost || lost
	if m.over != nil {
		return false
	}
	m.over = err
	return true
}

func (w *Worker) reportLoss(m *message, err error) {
	w.observer.OnLeaseLost(m.ctx, m.delivery, err)
	w.log(m, slog.LevelWarn, "the lease of the message is lost", "err", err)
}
