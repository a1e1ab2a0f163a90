package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/limits"
	"github.com/punctualmq/punctual/storekit"
)

// This file has the renewer: which leases it renews when, in which batches, and what follows from
// the answers.

// startLeaseLoops starts the renewer and the watcher and returns the function that ends them and
// waits for them.
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

// renewLeases renews leases, and gives back messages that were claimed ahead and have waited too
// long, until ctx ends. Each renewal and each release runs in a goroutine of its own, because one
// that hangs must not hold up the others; renewLeases waits for them at its end.
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

// renew extends the leases of batch in one call. If the call takes lateCall and batch has several
// topics, each of them is renewed in another call meanwhile (P14).
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
		defer time.AfterFunc(lateCall, func() { w.inflight.isolate(batch) }).Stop()
	}
	call, cancel := context.WithTimeout(ctx, w.inflight.renewalTime(batch, sent))
	defer cancel()
	items, err := w.store.Settle(call, ss)
	if err == nil && len(items) != len(batch) {
		err = storekit.Errorf(punctual.ErrIndeterminate, "the store gave %d answers for %d renewals", len(items), len(batch))
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
	if failed == nil {
		w.outage.Answered(&w.inflight)
	} else {
		w.observer.OnError(ctx, "extend", failed)
	}
	if w.inflight.concluded(batch, failed, time.Since(sent) < lateCall) && ctx.Err() == nil {
		w.outage.Failed(&w.inflight, failed, "leases could not be renewed; trying again while they last", "leases", len(batch))
	}
}

// renewed notes the answer to a renewal of m. It returns the error if the renewal is to be tried
// again.
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

// renewalTime returns how long a call may take that renews the leases of batch: two thirds of the
// time until the first of them ends, but not less than shortestBackoff. So a slow store has most of
// the time, and a call that hangs is ended early enough for another try.
func (f *inflight) renewalTime(batch []*message, now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	shortest := limits.MaxLease
	for _, m := range batch {
		shortest = min(shortest, m.endsAt.Sub(now))
	}
	return max(shortest*2/3, shortestBackoff)
}

// prolong notes that the lease of m was renewed by a call sent at the given time. An answer to a
// call that was sent before the latest successful one does not make the lease shorter.
func (f *inflight) prolong(m *message, sent time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m.renewing = false
	if sent.After(m.renewed) {
		m.renewed = sent
		m.renewAt, m.endsAt = sent.Add(m.length/3), sent.Add(m.length-tick)
	}
	f.renewals.wakeBy(m.renewAt)
	if !m.started { // the watcher ignored m while it was doubtful
		f.ends.wakeBy(m.nextEnd())
	}
}

// postpone notes that the renewal of m is to be tried again. The wait is a twelfth of the lease's
// length, but at most half of what is left of the lease, and at least a millisecond. So there are
// about eight tries at equal distances, and closer ones shortly before the end.
func (f *inflight) postpone(m *message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	wait := min(m.length/12, time.Until(m.endsAt)/2)
	m.renewing, m.renewAt = false, time.Now().Add(max(wait, time.Millisecond))
	f.renewals.wakeBy(m.renewAt)
}

// due returns the messages to renew now, one group for each call. When one message is due for
// renewal, those that are due within a sixth of their lease's length are renewed with it, so that
// leases that began at different times are renewed together later. due sets the alarm of the
// renewer to the next renewal, or to again if that is earlier and not zero.
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
		key := "" // stands for all topics that are not isolated
		if f.isolated[m.lease.Topic] {
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

// isolate makes the renewer renew each topic of batch, whose renewal is late, in a call of its own,
// and at once.
func (f *inflight) isolate(batch []*message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range batch {
		f.isolated[m.lease.Topic] = true
		if m.renewing {
			m.renewing, m.renewAt = false, time.Now()
			f.renewals.wakeBy(m.renewAt)
		}
	}
}

// concluded notes how a renewal of batch ended. It reports whether that is news: the renewal
// failed, and the one before had not failed for any of its topics.
func (f *inflight) concluded(batch []*message, err error, inTime bool) (news bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	news = err != nil
	for _, m := range batch {
		topic := m.lease.Topic
		if inTime {
			delete(f.isolated, topic)
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

// renewable reports whether the renewer is to renew m: not once the lease is over, not once the
// handler's context has ended, and not while the lease is doubtful. The caller holds inflight.mu.
func (m *message) renewable(now time.Time) bool {
	return m.over == nil && m.ctx.Err() == nil && !m.doubtful(now)
}
