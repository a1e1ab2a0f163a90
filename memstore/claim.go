package memstore

import (
	"context"
	"math"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Claim implements punctual.Store. All messages that it meets and must not deliver end in this call, under the mutex, however many they are.
func (s *Store) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	if err := storekit.CheckClaim(&c); err != nil {
		return nil, err
	}
	started := now.source
	for {
		found := s.withoutLapsed(s.claimDue(c, now))
		left := c.Wait - now.source.Sub(started)
		if len(found) > 0 || left <= 0 {
			return found, nil
		}
		s.sleep(ctx, s.nextDue(c.Topics, now), left)
		if now, err = s.enter(ctx); err != nil {
			return nil, err
		}
	}
}

// claimDue leases what is due, up to c.Max.
func (s *Store) claimDue(c punctual.Claim, now instant) []punctual.Delivery {
	var leased []*message // first, so that the deliveries take no more room than they need
	for _, name := range c.Topics {
		t := s.claimable(name, now)
		left := c.Max - len(leased)
		if c.PerTopic > 0 {
			left = min(left, c.PerTopic-countOf(leased, name))
		}
		for t != nil && left > 0 && len(t.live) > 0 && t.live[0].at <= now.ms {
			if m := t.live[0]; t.mustEnd(m, now) {
				t.end(m, now)
			} else {
				s.lease(t, m, c.Lease, now)
				leased = append(leased, m)
				left--
			}
		}
	}
	found := make([]punctual.Delivery, len(leased))
	for i, m := range leased {
		found[i] = m.delivery(now)
	}
	return found
}

// countOf is more than 0 before a claim comes to a topic only if it names that topic twice.
func countOf(ms []*message, topic string) (n int) {
	for _, m := range ms {
		if m.Topic == topic {
			n++
		}
	}
	return n
}

// withoutLapsed reads the clock again and gives back what has no lease any more by now: the process may have
// stood still.
func (s *Store) withoutLapsed(found []punctual.Delivery) []punctual.Delivery {
	if len(found) == 0 {
		return found
	}
	now, _ := s.clock.Read()
	held := found[:0]
	for _, d := range found {
		if d.LeaseUntil.After(now) {
			held = append(held, d)
			continue
		}
		t := s.topics[d.Topic]
		m := t.messages[d.ID]
		m.Attempt--
		t.wait(m)
	}
	return held
}

// claimable returns the topic unless there is none or claims are paused.
func (s *Store) claimable(name string, now instant) *topic {
	if t := s.existing(name, now); t != nil && !t.settings.DeliveryPaused {
		return t
	}
	return nil
}

// mustEnd reports whether a message whose time has come must not be delivered again.
func (t *topic) mustEnd(m *message, now instant) bool {
	expired := !m.Expires.IsZero() && storekit.Millis(m.Expires) <= now.ms
	return m.cancelRequested || m.Attempt >= t.maxAttempts(m) || expired
}

// end ends a message for which mustEnd holds. A cancel comes before attempts used up, and
// those before expiry.
func (t *topic) end(m *message, now instant) {
	m.noteLeaseRanOut(now)
	switch {
	case m.cancelRequested:
		t.finish(m, punctual.OutcomeCancelled, now)
	case m.Attempt >= t.maxAttempts(m):
		t.die(m, punctual.ReasonAttemptsUsedUp, now)
	case m.DropExpired:
		t.finish(m, punctual.OutcomeExpired, now)
	default:
		t.die(m, punctual.ReasonExpired, now)
	}
}

// lease counts the attempt and moves the message to the end of its lease.
func (s *Store) lease(t *topic, m *message, length time.Duration, now instant) {
	if length == 0 {
		length = t.settings.Lease
	}
	m.noteLeaseRanOut(now)
	m.Attempt++
	s.token++
	m.token, m.delivered = s.token, now.ms
	t.hold(m, now.ms+storekit.CeilDuration(length))
}

// noteLeaseRanOut keeps the failure of a holder who never answered, if there was one.
func (m *message) noteLeaseRanOut(now instant) {
	if m.token != 0 {
		m.fail(storekit.LeaseRanOut, now)
	}
}

func (m *message) fail(text string, now instant) {
	m.failures = storekit.AddFailure(m.failures, punctual.Failure{
		Attempt: m.Attempt, At: now.time(), Error: storekit.TrimError(text),
	})
}

// never is a time behind every other.
const never = math.MaxInt64

// nextDue is the earliest time, in ms, at which something needs attention in the topics, or never.
func (s *Store) nextDue(topics []string, now instant) int64 {
	next := int64(never)
	for _, name := range topics {
		if t := s.claimable(name, now); t != nil && len(t.live) > 0 {
			next = min(next, t.live[0].at)
		}
	}
	return next
}

// lookAgain is how long a claim sleeps at most while something lies ahead. So a suspend or a step of the
// clock makes nothing later than this (P11).
const lookAgain = time.Second

// sleep waits for next, for limit to pass, for ctx to end or for a change. It is called with mu held and
// releases it meanwhile; no change can slip in between looking and sleeping.
func (s *Store) sleep(ctx context.Context, next int64, limit time.Duration) {
	if next != never {
		limit = min(limit, lookAgain)
	}
	if s.wake == nil {
		s.wake = make(chan struct{})
	}
	wake := s.wake
	passed, stop := s.clock.After(storekit.FromMillis(next), limit)
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
