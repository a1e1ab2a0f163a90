package memstore

import (
	"cmp"
	"context"
	"math"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// Claim implements punctual.Store. It ends all messages that it encounters and must not deliver in
// one go, with the mutex held, however many they are.
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

// claimDue leases up to c.Max messages that are due.
func (s *Store) claimDue(c punctual.Claim, now instant) []punctual.Delivery {
	if len(c.IDs) > 0 {
		return s.claimThese(c, now)
	}
	var leased []*message // collected before the deliveries are made, so that their slice has the right length
	for _, name := range c.Topics {
		t := s.claimable(name, now)
		left := c.Max - len(leased)
		if c.PerTopic > 0 {
			left = min(left, c.PerTopic-countOf(leased, name))
		}
		for t != nil && left > 0 {
			m, at := t.next(now)
			if at > now.ms {
				break
			}
			if !s.end(t, m, now) {
				s.lease(t, m, c.Lease, now)
				leased = append(leased, m)
				left--
			}
		}
	}
	return deliveries(leased, now)
}

// claimThese leases those of the messages with the IDs of the claim that are ready, and that the
// bounds of the topic let be leased.
func (s *Store) claimThese(c punctual.Claim, now instant) []punctual.Delivery {
	var leased []*message
	t := s.claimable(c.Topics[0], now)
	for _, id := range c.IDs {
		if t == nil || len(leased) == cmp.Or(c.Max, len(c.IDs)) || t.opens(now) > now.ms {
			break
		}
		m := t.messages[id]
		if m == nil || m.State(now.ms) != punctual.StateReady || t.lacksRoom(m) || t.waits(m, now) || s.end(t, m, now) {
			continue
		}
		s.lease(t, m, c.Lease, now)
		leased = append(leased, m)
	}
	return deliveries(leased, now)
}

func deliveries(leased []*message, now instant) []punctual.Delivery {
	found := make([]punctual.Delivery, len(leased))
	for i, m := range leased {
		found[i] = m.delivery(now)
	}
	return found
}

// countOf returns how many of the messages are of the topic. A claim may have some already when it
// comes to a topic, if it names the topic twice.
func countOf(ms []*message, topic string) (n int) {
	for _, m := range ms {
		if m.topic == topic {
			n++
		}
	}
	return n
}

// withoutLapsed reads the clock again and returns the deliveries whose lease has not ended. It
// gives the other messages back. A lease can end within a claim when the process was suspended.
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
		at := instant{fine: now, ms: storekit.Millis(now)}
		s.apply(t, m, lifecycle.GiveBack(&m.Message, at.ms), at)
	}
	return held
}

// claimable returns the topic, or nil when there is none or its deliveries are paused.
func (s *Store) claimable(name string, now instant) *topic {
	if t := s.existing(name, now); t != nil && !t.settings.DeliveryPaused {
		return t
	}
	return nil
}

// next returns the live message that a claim meets next, and the earliest time for that, in Unix
// ms. Where the topic has as many leases as it may, that is the message whose lease ends first. The
// time is never if there is no message. One whose lease has run out, while the rate of its key lets
// no lease begin, gets a later turn.
func (t *topic) next(now instant) (m *message, at int64) {
	if len(t.live) > 0 {
		m = t.live[0]
	}
	if m != nil && t.lacksRoom(m) {
		m = nil
		for l := range t.leased {
			if m == nil || byTime.Before(l, m) {
				m = l
			}
		}
	}
	if m == nil {
		return nil, never
	}
	if m.when() <= now.ms && t.waits(m, now) {
		m.turn = t.keyOpens(m.key, now)
		t.move(m, &t.live)
		return t.next(now)
	}
	return m, max(m.when(), t.opens(now))
}

// lacksRoom reports whether the message may not be leased because the topic has as many leases as
// it may.
func (t *topic) lacksRoom(m *message) bool {
	return m.Token == 0 && lifecycle.Full(&t.settings, len(t.leased))
}

// opens returns when the rate of the topic lets the next lease begin, in Unix ms.
func (t *topic) opens(now instant) int64 {
	return t.gate.Opens(t.settings.MaxRate, now.fine.UnixMicro())
}

// end ends a message whose time has come if it must not be delivered, and reports whether it has
// ended it.
func (s *Store) end(t *topic, m *message, now instant) bool {
	d := lifecycle.Meet(&m.Message, &t.settings, now.ms)
	s.apply(t, m, d, now)
	return d.To != lifecycle.Stay
}

// lease leases a message whose time has come. A length of 0 is the topic's.
func (s *Store) lease(t *topic, m *message, length time.Duration, now instant) {
	s.token++
	m.delivered = now.ms
	t.gate.Begin(t.settings.MaxRate, now.fine.UnixMicro(), 1)
	if k := m.key; k != nil {
		k.gate.Begin(t.settings.MaxKeyRate, now.fine.UnixMicro(), 1)
		k.opened = now.ms
	}
	s.apply(t, m, lifecycle.Lease(&m.Message, s.token, length, &t.settings, now.ms), now)
}

// never stands for "nothing is due" in place of a time in Unix milliseconds; it sorts after every
// time.
const never = math.MaxInt64

// nextDue returns the earliest time at which a live message of the topics whose deliveries are not
// paused needs attention, in Unix milliseconds, or never.
func (s *Store) nextDue(topics []string, now instant) int64 {
	next := int64(never)
	for _, name := range topics {
		if t := s.claimable(name, now); t != nil {
			_, at := t.next(now)
			next = min(next, at)
		}
	}
	return next
}

// pollInterval is the longest sleep of a claim while a message is to become due, so that a message
// is late by at most this long after the machine was suspended or its clock was set (P11).
const pollInterval = time.Second

// sleep waits until the time next, or until limit has passed, ctx has ended, or wakeClaims was
// called, and no longer than pollInterval unless next is never. It is called with mu held and
// releases it while it waits. Since the caller holds mu from its claim to the sleep, no change in
// between goes unnoticed.
func (s *Store) sleep(ctx context.Context, next int64, limit time.Duration) {
	if next != never {
		limit = min(limit, pollInterval)
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

// wakeClaims has the waiting claims try again.
func (s *Store) wakeClaims() {
	if s.wake != nil {
		close(s.wake)
		s.wake = nil
	}
}
