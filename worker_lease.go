package punctual

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// A worker keeps the leases of the messages in its hands: one goroutine, the renewer, renews them
// in batches, another one, the watcher (worker_context.go), ends a handler's context when the lease is over.
//
// How long a lease is, is the difference of two times of the store (LeaseUntil - Delivered); how
// much of it is gone is counted on the local monotonic clock. So it does not matter what
// the local wall clock says (P8). The count must begin no later than the lease. After a renewal it
// begins when the renewal was sent, which is surely before the store granted it. For a claim
// the time of sending says too little, since the claim may have waited long: there the
// count begins a sixth of the lease before the answer came, or when the claim was sent if that was
// later. That is safe unless an answer travels for longer than a sixth of the lease
// (5 s of 30 s). And if it does, tokens fence (P4).
//
// The local count only decides when a handler is told to give up. Whether a settlement is
// good is for the store to say.

// hold is one message in hand: a delivery, its handler's context and what is known of its lease.
type hold struct {
	delivery *Delivery
	// lease has the topic, ID and token as claimed, attempt the number of the attempt.
	lease   Settlement
	attempt int
	route   *route
	// length is that of the lease as claimed; each renewal asks for as much again, also if the
	// topic's settings have changed meanwhile.
	length time.Duration
	// started tells that its handler was called, at began. The hand's.
	began   time.Time
	started bool

	// ctx is the handler's. It ends by root at its timeout or with stop, the session's end of all
	// handlers; by cancel when the lease is over, and when everything is done.
	ctx, stop context.Context
	root      *contextRoot
	cancel    context.CancelCauseFunc

	// The rest is guarded by leases.mu.

	// renewAt is when to renew, endsAt when the lease ends by the local count.
	renewAt, endsAt time.Time
	// timeout is when its handler is to give up; zero for never, and once it has been told.
	timeout time.Time
	// over is why the lease ended while the handler ran, as far as known.
	over error
	// lost tells that it was the store that said so, with ErrLeaseLost.
	lost bool
	// returned tells that the handler has returned: over and lost do not change any
	// more and need no lock.
	returned bool
	// place is its index in leases.held until then.
	place int
}

// leases is the set of messages whose handlers run.
type leases struct {
	mu   sync.Mutex
	held []*hold // in no order; guarded by mu
	// renewals wakes the renewer, ends the watcher.
	renewals, ends alarm
}

// alarm wakes the one goroutine that waits for it (leases.sleep).
type alarm struct {
	// at is when it wakes by itself, zero for never. Guarded by leases.mu.
	at time.Time
	// moved has room for one signal that at is earlier than it was.
	moved chan struct{}
}

// notLaterThan sets the alarm to t unless it is earlier already, and reports whether it did. The caller holds
// leases.mu.
func (a *alarm) notLaterThan(t time.Time) bool {
	if !a.at.IsZero() && !t.Before(a.at) {
		return false
	}
	a.at = t
	return true
}

// wakeBy is notLaterThan for others than the goroutine that waits.
func (a *alarm) wakeBy(t time.Time) {
	if !a.notLaterThan(t) {
		return
	}
	select {
	case a.moved <- struct{}{}:
	default:
	}
}

func (l *leases) init() {
	l.renewals.moved = make(chan struct{}, 1)
	l.ends.moved = make(chan struct{}, 1)
}

// begin takes the deliveries of a claim in hand.
func (w *Worker) begin(s *session, got *claimed) []*hold {
	hs := make([]*hold, len(got.deliveries))
	together := make([]hold, len(hs)) // in one piece, which is cheaper
	for i := range hs {
		hs[i] = &together[i]
		w.take(s, got, &got.deliveries[i], hs[i])
	}
	w.leases.add(hs)
	if s.handlers.Err() != nil { // the watcher may have come by before they were there
		endHandlers(hs, s)
	}
	return hs
}

// take fills h with what is known of a delivery.
func (w *Worker) take(s *session, got *claimed, d *Delivery, h *hold) {
	*h = hold{
		delivery: d, lease: Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token}, attempt: d.Attempt,
		route: w.routes[d.Topic], length: d.LeaseUntil.Sub(d.Delivered), stop: s.handlers,
	}
	if h.route.timeout > 0 {
		h.timeout = got.received.Add(h.route.timeout)
	}
	h.ctx, h.root, h.cancel = newHandlerContext(s, h.timeout)
	from := got.received.Add(-h.length / 6)
	if got.sent.After(from) {
		from = got.sent
	}
	h.renewAt, h.endsAt = got.received.Add(h.length/3), from.Add(h.length)
}

// renewable tells whether h is to be renewed: not once the lease is over, nor when the
// handler has been told to give up. The caller holds leases.mu.
func (h *hold) renewable() bool { return h.over == nil && h.ctx.Err() == nil }

// add puts hs among the held and sees that the renewer and the watcher wake in time for them.
func (l *leases) add(hs []*hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range hs {
		h.place = len(l.held)
		l.held = append(l.held, h)
		l.renewals.wakeBy(h.renewAt)
		l.ends.wakeBy(h.nextEnd())
	}
}

// drop takes h out because its handler has returned, and returns when its lease ends by the local count.
func (l *leases) drop(h *hold) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	h.returned = true
	last := len(l.held) - 1
	l.held[h.place] = l.held[last]
	l.held[h.place].place = h.place
	l.held[last] = nil
	l.held = l.held[:last]
	return h.endsAt
}

func (l *leases) all() []*hold {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.held)
}

// count returns how many handlers run.
func (l *leases) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.held)
}

// endOf returns when the lease of h ends by the local count.
func (l *leases) endOf(h *hold) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return h.endsAt
}

// due returns the holds to renew now: none, or all those whose time has come with those whose
// time is near, so that leases which began one after the other travel together from then on. It
// notes when to look again.
func (l *leases) due(now time.Time) (batch []*hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewals.at = time.Time{}
	due := false
	for _, h := range l.held {
		if !h.renewable() {
			continue
		}
		l.renewals.notLaterThan(h.renewAt)
		if !h.renewAt.After(now.Add(h.length / 6)) {
			batch = append(batch, h)
			due = due || !h.renewAt.After(now)
		}
	}
	if !due {
		return nil
	}
	return batch
}

// sleep waits for the alarm, or the end of ctx, or that over is closed.
func (l *leases) sleep(ctx context.Context, a *alarm, over <-chan struct{}) {
	l.mu.Lock()
	at := a.at
	l.mu.Unlock()
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

// startKeepers starts the renewer and the watcher and returns the function that ends them and waits for them.
func (w *Worker) startKeepers(s *session) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var keepers sync.WaitGroup
	keepers.Go(func() { w.renewLeases(ctx) })
	keepers.Go(func() { w.watch(ctx, s) })
	return func() {
		cancel()
		keepers.Wait()
	}
}

func (w *Worker) renewLeases(ctx context.Context) {
	failing := false
	for ctx.Err() == nil {
		batch := w.leases.due(time.Now())
		if len(batch) == 0 {
			w.leases.sleep(ctx, &w.leases.renewals, nil)
			continue
		}
		err := w.renew(ctx, batch)
		if err != nil && !failing && ctx.Err() == nil {
			w.cfg.Logger.Warn("leases could not be renewed; trying again while they last", "leases", len(batch), "err", err)
		}
		failing = err != nil
	}
}

// renew extends the leases of batch in one call, and returns the error of the call or of an item
// that could not be extended although it may still be held.
func (w *Worker) renew(ctx context.Context, batch []*hold) error {
	ss := make([]Settlement, len(batch))
	shortest := MaxLease
	for i, h := range batch {
		ss[i] = h.lease
		ss[i].Verb, ss[i].Delay = SettleExtend, h.length
		shortest = min(shortest, h.length)
	}
	// A call that hangs is ended in time for another try.
	ctx, cancel := context.WithTimeout(ctx, max(shortest/6, shortestPace))
	defer cancel()
	sent := time.Now()
	items, err := w.store.Settle(ctx, ss)
	if err == nil && len(items) != len(batch) {
		err = errorf(ErrIndeterminate, "the store gave %d answers for %d renewals", len(items), len(batch))
	}
	var failed error
	for i, h := range batch {
		answer := err
		if err == nil {
			answer = items[i]
		}
		if e := w.renewed(h, sent, answer); e != nil {
			failed = e
		}
	}
	if failed != nil {
		w.cfg.Observer.failed("extend", failed)
	}
	return failed
}

// renewed notes the answer to a renewal of h, and returns it if it was an error that leaves
// the lease as it was.
func (w *Worker) renewed(h *hold, sent time.Time, err error) error {
	switch {
	case errors.Is(err, ErrLeaseLost), errors.Is(err, ErrCancelled):
		w.loseRunning(h, err, errors.Is(err, ErrLeaseLost))
		return nil
	case err != nil:
		w.leases.postpone(h)
		return err
	}
	w.leases.prolong(h, sent)
	return nil
}

// prolong notes that the lease of h was renewed by a call sent at the given time.
func (l *leases) prolong(h *hold, sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h.renewAt, h.endsAt = sent.Add(h.length/3), sent.Add(h.length)
}

// postpone notes that the lease of h is to be renewed again soon: each twelfth of its length, about
// eight times in all, and more and more often shortly before its end.
func (l *leases) postpone(h *hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wait := min(h.length/12, time.Until(h.endsAt)/2)
	h.renewAt = time.Now().Add(max(wait, time.Millisecond))
}

// loseRunning ends the context of a running handler because its lease is over; lost tells
// that the store has said so.
func (w *Worker) loseRunning(h *hold, err error, lost bool) {
	if w.leases.lose(h, err, lost) {
		h.cancel(err)
		w.reportLoss(h, err)
	}
}

// lose notes why the lease of a running handler is over, and reports whether that is news.
func (l *leases) lose(h *hold, err error, lost bool) (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.returned {
		return false
	}
	h.lost = h.lost || lost
	if h.over != nil {
		return false
	}
	h.over = err
	return true
}

func (w *Worker) reportLoss(h *hold, err error) {
	w.cfg.Observer.leaseLost(h.delivery, err)
	w.log(h, slog.LevelWarn, "message is no longer in this worker's hands", "err", err)
}
