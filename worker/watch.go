package worker

import (
	"context"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// watch ends the contexts of handlers whose time is over, until ctx ends.
func (w *Worker) watch(ctx context.Context, s *session) {
	over := s.handlers.Done()
	for ctx.Err() == nil {
		w.endOverdue(time.Now())
		w.inflight.sleep(ctx, &w.inflight.ends, over)
		if over != nil && s.handlers.Err() != nil {
			endHandlers(w.inflight.all(), s)
			over = nil
		}
	}
}

// endOverdue ends the contexts of handlers that have reached their timeout or whose lease has ended
// without a renewal.
func (w *Worker) endOverdue(now time.Time) {
	timedOut, expired := w.inflight.overdue(now)
	for _, m := range timedOut {
		m.ctx.end(context.DeadlineExceeded, storekit.Errorf(context.DeadlineExceeded, "the handler ran longer than its timeout of %v", m.mayTake()))
	}
	for _, m := range expired {
		w.loseRunning(m, storekit.Errorf(punctual.ErrLeaseLost, "not renewed within %v", m.length), false)
	}
}

// overdue returns the messages whose handlers have reached their timeout, each only once, and those
// whose leases have ended by local time, without the doubtful ones. It sets the alarm of the
// watcher to the next end.
func (f *inflight) overdue(now time.Time) (timedOut, expired []*message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ends.at = time.Time{}
	for _, m := range f.held {
		switch {
		case m.over != nil, m.doubtful(now):
			continue
		case !m.endsAt.After(now):
			expired = append(expired, m)
			continue
		case !m.timeout.IsZero() && !m.timeout.After(now):
			timedOut = append(timedOut, m)
			m.timeout = time.Time{}
		}
		f.ends.notLaterThan(m.nextEnd())
	}
	return timedOut, expired
}

// mayTake returns how long the handler of m may run, by the message or else by its route; 0 and
// less is without end.
func (m *message) mayTake() time.Duration {
	if m.delivery.Timeout > 0 {
		return m.delivery.Timeout
	}
	return m.route.timeout
}

// nextEnd returns when the watcher has to check m next: at the end of its lease or at its timeout,
// whichever is earlier. The caller holds inflight.mu.
func (m *message) nextEnd() time.Time {
	if m.timeout.IsZero() || m.endsAt.Before(m.timeout) {
		return m.endsAt
	}
	return m.timeout
}

// endHandlers ends the contexts of the handlers of ms with the error and cause of session.handlers,
// which has ended.
func endHandlers(ms []*message, s *session) {
	for _, m := range ms {
		m.ctx.end(s.handlers.Err(), context.Cause(s.handlers))
	}
}
