package memstore

import (
	"context"
	"math"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
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
		for t != nil && left > 0 && len(t.live) > 0 && t.live[0].At() <= now.ms {
			if m := t.live[0]; !t.end(m, now) {
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
		if m.topic == topic {
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
		t.apply(m, lifecycle.GiveBack(&m.Message), instant{fine: now, ms: storekit.Millis(now)})
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

// end ends a message whose time has come if it must not be delivered, and tells whether it did.
func (t *topic) end(m *message, now instant) bool {
	d := lifecycle.Meet(&m.Message, &t.settings, now.ms)
	t.apply(m, d, now)
	return d.To != lifecycle.Stay
}

// lease leases a message whose time has come.
func (s *Store) lease(t *topic, m *message, length time.Duration, now instant) {
	s.token++
	m.delivered = now.ms
	t.apply(m, lifecycle.Lease(&m.Message, s.token, length, &t.settings, now.ms), now)
}

// never is a time behind every other.
const never = math.MaxInt64

// nextDue is the earliest time, in ms, at which something needs attention in the topics, or never.
func (s *Store) nextDue(topics []string, now instant) int64 {
	next := int64(never)
	for _, name := range topics {
		if t := s.claimable(name, now); t != nil && len(t.live) > 0 {
			next = min(next, t.live[0].At())
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
