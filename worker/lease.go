package worker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
)

// A worker keeps the leases of the messages in its slots. One goroutine, the renewer, renews them in batches. Another
// one, the watcher (context.go), ends a handler's context when the lease is over.
//
// The bound of the store's clock (clock.go) tells until when a lease surely holds. So it does not matter what the
// local wall clock says (P8). After a renewal the lease surely holds for its length, counted from when the renewal
// was sent. That is surely before the store granted it. One tick is taken off, since the store rounds its clock down.
//
// A handler starts only under a lease that surely holds (P3). That is not sure when the answer to the claim travelled
// for long, or the process stood still. Then the lease is renewed first, and the store says whether it is still this
// worker's. What somebody else has by then is let go, and what cannot be renewed is given back unstarted
// (ensureLease).
//
// From then on the local count only decides when a handler is told to give up. Whether a
// settlement is good is for the store to say.

// message is one message in flight: a delivery, its handler's context and what is known of its lease.
type message struct {
	delivery *punctual.Delivery
	// lease has the topic, ID and token as claimed, attempt the number of the attempt.
	lease   punctual.Settlement
	attempt int
	route   *route
	// length is that of the lease as claimed; each renewal asks for as much again, also if the
	// topic's settings have changed meanwhile.
	length time.Duration
	// received is when the claim returned, began when its handler was called, took how long that ran. The slot's.
	received, began time.Time
	took            time.Duration

	// ctx is the handler's. stop is the session's end of all handlers.
	ctx  *handlerContext
	stop context.Context

	// The rest is guarded by inflight.mu.

	// started tells that its lease held when its handler was to be called.
	started bool
	// renewed is when the latest renewal that succeeded was sent; zero before the first.
	renewed time.Time
	// renewAt is when to renew, endsAt when the lease ends by the local count.
	renewAt, endsAt time.Time
	// renewing tells that a renewal is under way.
	renewing bool
	// timeout is when its handler is to give up; zero for never, and once it has been told.
	timeout time.Time
	// over is why the lease ended while the handler ran, as far as known.
	over error
	// lost tells that it was the store that said so, with ErrLeaseLost.
	lost bool
	// returned tells that the handler has returned: over and lost do not change any
	// more and need no lock.
	returned bool
	// place is its index in inflight.held until then.
	place int
}

// inflight is the set of messages whose handlers run.
type inflight struct {
	mu   sync.Mutex
	held []*message // in no order; guarded by mu
	// clock bounds the store's clock. Guarded by mu.
	clock clockBound
	// renewals wakes the renewer, ends the watcher.
	renewals, ends alarm
	// apart has the topics whose renewals go separately, because a call for several took long, until one was
	// in time. Guarded by mu.
	apart map[string]bool
	// failing has the topics whose latest renewal failed. Guarded by mu.
	failing map[string]bool
}

// alarm wakes the one goroutine that waits for it (inflight.sleep).
type alarm struct {
	// at is when it wakes by itself, zero for never. Guarded by inflight.mu.
	at time.Time
	// moved has room for one signal that at is earlier than it was.
	moved chan struct{}
}

// notLaterThan sets the alarm to t unless it is earlier already, and reports whether it did. The caller holds
// inflight.mu.
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

func (f *inflight) init() {
	f.clock.wall = func(t time.Time) time.Time { return t.Round(0) }
	f.renewals.moved = make(chan struct{}, 1)
	f.ends.moved = make(chan struct{}, 1)
	f.apart, f.failing = make(map[string]bool), make(map[string]bool)
}

// begin adds the deliveries of a claim to those in flight.
func (w *Worker) begin(s *session, got *claimed) []*message {
	ms := make([]*message, len(got.deliveries))
	// In two pieces, which is cheaper than one for each; a context that a handler keeps does not keep messages.
	together, contexts := make([]message, len(ms)), make([]handlerContext, len(ms))
	for i := range ms {
		d, m := &got.deliveries[i], &together[i]
		ms[i] = m
		m.delivery, m.lease, m.attempt = d, punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token}, d.Attempt
		m.route, m.length, m.stop = w.routes[d.Topic], d.LeaseUntil.Sub(d.Delivered), s.handlers
		m.received = got.received
		if m.route.timeout > 0 {
			m.timeout = got.received.Add(m.route.timeout)
		}
		left := d.LeaseUntil.Sub(got.clock)
		m.renewAt, m.endsAt = got.received.Add(left/3), got.received.Add(left)
		m.ctx = &contexts[i]
		m.ctx.init(s, m.timeout)
	}
	w.inflight.add(ms)
	if s.handlers.Err() != nil { // the watcher may have come by before they were there
		endHandlers(ms, s)
	}
	return ms
}

// observe takes note of the store's clock as the answer to a call shows it. It returns the latest time
// that the clock can show by now. A zero time shows nothing.
func (f *inflight) observe(sent, received, shown time.Time) (latest time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !shown.IsZero() {
		f.clock.observe(sent, received, shown)
	}
	return f.clock.latestAt(received)
}

// start marks m as started if its lease surely holds at now, and reports whether it does. The error is
// what ended the lease, as far as known.
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

// ensureLease returns nil when the handler of m may start: its lease surely holds. If that is not sure it renews the
// lease, once. The error says why the handler must not start; it has been reported.
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
		err = errorf(punctual.ErrLeaseLost, "the lease may have ended before the handler could start: %v", err)
		w.loseRunning(m, err, false)
		return err
	}
	w.loseRunning(m, err, errors.Is(err, punctual.ErrLeaseLost))
	return err
}

// extend renews the lease of m beside the renewer, with the settlements of that moment.
func (w *Worker) extend(m *message) error {
	s := m.lease
	s.Verb, s.Delay = punctual.SettleExtend, m.length
	ctx, cancel := context.WithTimeout(context.Background(), min(m.length, settleCall)) // a later answer would be too late
	defer cancel()
	item, err := w.settler.Do(ctx, s)
	if err != nil {
		return err
	}
	return item
}

// renewable tells whether m is to be renewed: not once the lease is over, nor when the
// handler has been told to give up. The caller holds inflight.mu.
func (m *message) renewable(now time.Time) bool {
	return m.over == nil && m.ctx.Err() == nil && !m.doubtful(now)
}

// doubtful tells whether the lease of m may have ended before its handler could start. Then the slot has the say,
// which renews it itself (ensureLease). The caller holds inflight.mu.
func (m *message) doubtful(now time.Time) bool { return !m.started && !m.endsAt.After(now) }

// add puts ms among the held and sees that the renewer and the watcher wake in time for them.
func (f *inflight) add(ms []*message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range ms {
		m.place = len(f.held)
		f.held = append(f.held, m)
		f.renewals.wakeBy(m.renewAt)
		f.ends.wakeBy(m.nextEnd())
	}
}

// renewBy sees that the renewer wakes at t, or before.
func (f *inflight) renewBy(t time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.renewals.wakeBy(t)
}

// drop takes m out because its handler has returned, and returns when its lease ends by the local count.
func (f *inflight) drop(m *message) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	m.returned = true
	last := len(f.held) - 1
	f.held[m.place] = f.held[last]
	f.held[m.place].place = m.place
	f.held[last] = nil
	f.held = f.held[:last]
	return m.endsAt
}

func (f *inflight) all() []*message {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.held)
}

// count returns how many handlers run.
func (f *inflight) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.held)
}

// endOf returns when the lease of m ends by the local count.
func (f *inflight) endOf(m *message) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return m.endsAt
}

// due returns the messages to renew now in groups that go together. When the time of one has come, those whose time
// is near go with it. So leases that began one after the other are renewed together from then on. It notes when to
// look again, which is at the time given, unless that is zero, or before.
func (f *inflight) due(now, again time.Time) (groups [][]*message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.renewals.at = again
	var near []*message
	due := false
	for _, m := range f.held {
		if m.renewing || !m.renewable(now) {
			continue
		}
		if m.renewAt.After(now.Add(m.length / 6)) {
			f.renewals.notLaterThan(m.renewAt)
			continue
		}
		near = append(near, m)
		due = due || !m.renewAt.After(now)
	}
	if !due {
		for _, m := range near {
			f.renewals.notLaterThan(m.renewAt)
		}
		return nil
	}
	byTopic := make(map[string]int)
	for _, m := range near {
		m.renewing = true
		key := "" // no topic
		if f.apart[m.lease.Topic] {
			key = m.lease.Topic
		}
		i, ok := byTopic[key]
		if !ok {
			i, groups = len(groups), append(groups, nil)
			byTopic[key] = i
		}
		groups[i] = append(groups[i], m)
	}
	return groups
}

// part has the topics of batch, whose renewal is late, renewed separately, and at once.
func (f *inflight) part(batch []*message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range batch {
		f.apart[m.lease.Topic] = true
		if m.renewing {
			m.renewing, m.renewAt = false, time.Now()
			f.renewals.wakeBy(m.renewAt)
		}
	}
}

// concluded notes how a renewal of batch ended, and reports whether a failure is news.
func (f *inflight) concluded(batch []*message, err error, inTime bool) (news bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	news = err != nil
	for _, m := range batch {
		topic := m.lease.Topic
		if inTime {
			delete(f.apart, topic)
		}
		if err == nil {
			delete(f.failing, topic)
			continue
		}
		news = news && !f.failing[topic]
	}
	for _, m := range batch {
		if err != nil {
			f.failing[m.lease.Topic] = true
		}
	}
	return news
}

// sleep waits for the alarm, or the end of ctx, or that over is closed.
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

// startLeaseLoops starts the renewer and the watcher and returns the function that ends them and waits for them.
func (w *Worker) startLeaseLoops(s *session) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var loops sync.WaitGroup
	loops.Go(func() { w.renewLeases(ctx) })
	loops.Go(func() { w.watch(ctx, s) })
	return func() {
		cancel()
		loops.Wait()
	}
}

// renewLeases renews leases until ctx ends. It does not wait for a renewal, which another goroutine carries out.
func (w *Worker) renewLeases(ctx context.Context) {
	var renewals sync.WaitGroup
	defer renewals.Wait()
	for ctx.Err() == nil {
		now := time.Now()
		groups := w.inflight.due(now, w.giveBackAhead(now, false, renewals.Go))
		if len(groups) == 0 {
			w.inflight.sleep(ctx, &w.inflight.renewals, nil)
		}
		for _, batch := range groups {
			renewals.Go(func() { w.renew(ctx, batch) })
		}
	}
}

// renew extends the leases of batch in one call. Where that takes long, and there are several topics, each of them is
// renewed separately meanwhile (P14).
func (w *Worker) renew(ctx context.Context, batch []*message) {
	ss := make([]punctual.Settlement, len(batch))
	several := false
	for i, m := range batch {
		ss[i] = m.lease
		ss[i].Verb, ss[i].Delay = punctual.SettleExtend, m.length
		several = several || m.lease.Topic != batch[0].lease.Topic
	}
	sent := time.Now()
	if several {
		defer time.AfterFunc(lateCall, func() { w.inflight.part(batch) }).Stop()
	}
	call, cancel := context.WithTimeout(ctx, w.inflight.renewalTime(batch, sent))
	defer cancel()
	items, err := w.store.Settle(call, ss)
	if err == nil && len(items) != len(batch) {
		err = errorf(punctual.ErrIndeterminate, "the store gave %d answers for %d renewals", len(items), len(batch))
	}
	var failed error
	for i, m := range batch {
		answer := err
		if err == nil {
			answer = items[i]
		}
		if e := w.renewed(m, sent, answer); e != nil {
			failed = e
		}
	}
	if failed != nil {
		w.observer.OnError(ctx, "extend", failed)
	}
	if w.inflight.concluded(batch, failed, time.Since(sent) < lateCall) && ctx.Err() == nil {
		w.cfg.Logger.Warn("leases could not be renewed; trying again while they last", "leases", len(batch), "err", failed)
	}
}

// renewed notes the answer to a renewal of m, and returns it if it was an error that leaves
// the lease as it was.
func (w *Worker) renewed(m *message, sent time.Time, err error) error {
	switch {
	case errors.Is(err, punctual.ErrLeaseLost), errors.Is(err, punctual.ErrCancelled):
		w.loseRunning(m, err, errors.Is(err, punctual.ErrLeaseLost))
		return nil
	case err != nil:
		w.inflight.postpone(m)
		return err
	}
	w.inflight.prolong(m, sent)
	return nil
}

// renewalTime is how long a call may take that renews the leases of batch: two thirds of what is left of the first to
// end. So a slow store has most of the time, and a call that hangs is ended in time for another try.
func (f *inflight) renewalTime(batch []*message, now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	shortest := punctual.MaxLease
	for _, m := range batch {
		shortest = min(shortest, m.endsAt.Sub(now))
	}
	return max(shortest*2/3, shortestBackoff)
}

// prolong notes that the lease of m was renewed by a call sent at the given time. If an earlier call comes to
// the store late, it makes the lease no shorter than that.
func (f *inflight) prolong(m *message, sent time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m.renewing = false
	if sent.After(m.renewed) {
		m.renewed = sent
		m.renewAt, m.endsAt = sent.Add(m.length/3), sent.Add(m.length-tick)
	}
	f.renewals.wakeBy(m.renewAt)
	if !m.started { // nobody looked after it while it was in doubt
		f.ends.wakeBy(m.nextEnd())
	}
}

// postpone notes that the lease of m is to be renewed again soon. The wait is a twelfth of the lease's length, but at
// most half of what is left of the lease. So there are about eight tries, and more and more often ones shortly before
// its end.
func (f *inflight) postpone(m *message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	wait := min(m.length/12, time.Until(m.endsAt)/2)
	m.renewing, m.renewAt = false, time.Now().Add(max(wait, time.Millisecond))
	f.renewals.wakeBy(m.renewAt)
}

// loseRunning ends the context of a running handler because its lease is over; lost tells
// that the store has said so.
func (w *Worker) loseRunning(m *message, err error, lost bool) {
	if w.inflight.lose(m, err, lost) {
		m.ctx.end(context.Canceled, err)
		w.reportLoss(m, err)
	}
}

// lose notes why the lease of a running handler is over, and reports whether that is news.
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
