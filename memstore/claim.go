package memstore

import (
	"context"
	"time"

	"github.com/punctualmq/punctual"
)

// Claim implements punctual.Store.
func (s *Store) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.Check(); err != nil {
		return nil, err
	}
	started := s.clock.read
	for {
		found := s.claimDue(c, now)
		left := c.Wait - s.clock.read.Sub(started)
		if len(found) > 0 || left <= 0 {
			return found, nil
		}
		s.sleep(ctx, min(left, s.untilNext(c.Topics, now)))
		if now, err = s.enter(ctx); err != nil {
			return nil, err
		}
	}
}

// claimDue leases what is due, up to c.Max.
func (s *Store) claimDue(c punctual.Claim, now instant) []punctual.Delivery {
	found := []punctual.Delivery{}
	for _, name := range c.Topics {
		t := s.claimable(name, now)
		for t != nil && len(found) < c.Max && len(t.live) > 0 && t.live[0].at <= now.ms {
			if m := t.live[0]; t.mustEnd(m, now) {
				t.end(m, now)
			} else {
				found = append(found, s.lease(t, m, c.Lease, now))
			}
		}
	}
	return found
}

// claimable returns the topic unless there is none or claims are paused.
func (s *Store) claimable(name string, now instant) *topic {
	if t := s.existing(name, now); t != nil && !t.settings.PausedOut {
		return t
	}
	return nil
}

// mustEnd reports whether a message whose time has come must not be delivered again.
func (t *topic) mustEnd(m *message, now instant) bool {
	return m.cancelRequested || m.Attempt >= t.maxAttempts(m) || m.expired(now)
}

func (m *message) expired(now instant) bool {
	return !m.Expires.IsZero() && punctual.Millis(m.Expires) <= now.ms
}

// end ends a message for which mustEnd holds. A cancel comes before attempts used up, and
// those before expiry.
func (t *topic) end(m *message, now instant) {
	switch {
	case m.cancelRequested:
		t.finish(m, now)
	case m.Attempt >= t.maxAttempts(m):
		m.noteLeaseRanOut(now)
		t.die(m, punctual.ReasonAttemptsUsedUp, now)
	case m.DropExpired:
		t.finish(m, now)
	default:
		m.noteLeaseRanOut(now)
		t.die(m, punctual.ReasonExpired, now)
	}
}

// lease counts the attempt and hands the message out.
func (s *Store) lease(t *topic, m *message, length time.Duration, now instant) punctual.Delivery {
	if length == 0 {
		length = t.settings.Lease
	}
	m.noteLeaseRanOut(now)
	m.Attempt++
	s.token++
	m.token = s.token
	t.hold(m, now.ms+punctual.CeilDuration(length))
	return m.delivery(now)
}

// noteLeaseRanOut keeps the failure of a holder who never answered, if there was one.
func (m *message) noteLeaseRanOut(now instant) {
	if m.token != 0 {
		m.fail(punctual.ErrLeaseRanOut, now)
	}
}

func (m *message) fail(text string, now instant) {
	m.failures = punctual.AddFailure(m.failures, punctual.Failure{
		Attempt: m.Attempt, At: now.time(), Error: punctual.TrimError(text),
	})
}

// untilNext is how long nothing can become due in the topics unless something changes.
func (s *Store) untilNext(topics []string, now instant) time.Duration {
	wait := time.Duration(1<<63 - 1)
	for _, name := range topics {
		if t := s.claimable(name, now); t != nil && len(t.live) > 0 {
			wait = min(wait, s.clock.until(punctual.FromMillis(t.live[0].at)))
		}
	}
	return wait
}

// sleep waits for d to pass, ctx to end or a change. It is called with mu held and
// releases it meanwhile; no change can slip in between looking and sleeping.
func (s *Store) sleep(ctx context.Context, d time.Duration) {
	if s.wake == nil {
		s.wake = make(chan struct{})
	}
	wake := s.wake
	passed, stop := s.clock.after(d)
	s.mu.Unlock()
	defer s.mu.Lock()
	defer stop()
	select {
	case <-wake:
	case <-passed:
	case <-ctx.Done():
	}
}

// wakeClaims makes waiting claims look again.
func (s *Store) wakeClaims() {
	if s.wake != nil {
		close(s.wake)
		s.wake = nil
	}
}
