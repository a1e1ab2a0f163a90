package memstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
	"github.com/punctualmq/punctual/storekit/lifecycle"
)

// What a comparison with another store needs beyond the contract, which leaves open which
// of several messages with equal times a claim takes first.

// InPartitions tells ClaimThese and EndThese that the other store keeps its topics in several
// partitions. Order holds only among messages for whose IDs of returns the same number.
func (s *Store) InPartitions(of func(id string) int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.partition = of
}

// ClaimThese claims exactly these messages, in this order, as if a Claim had chosen them. Otherwise it says why no
// store may have chosen them. A message may be unknown, dead, under a lease or not due. It may also have to be ended
// rather than delivered, or be later than one that was left out. A lease of 0 is the topic's.
//
// Like a Claim it ends on its way the messages that must not be delivered any more, as far
// as they are strictly earlier. Those with the same time as the last one the other store
// may have ended or not: follow it with EndThese. After a claim that found fewer than its
// Max, an ordinary Claim of as many as were missing shows whether any was left out.
//
// When ClaimThese fails, those before the one that the error names are claimed.
func (s *Store) ClaimThese(topic string, ids []string, lease time.Duration) ([]punctual.Delivery, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := []punctual.Delivery{}
	for _, id := range ids {
		t, m, now, err := s.follow(topic, id)
		if err != nil {
			return found, fmt.Errorf("claim of %s in %s: %w", id, topic, err)
		}
		if lifecycle.MustEnd(&m.Message, &t.settings, now.ms) {
			return found, fmt.Errorf("claim of %s in %s: it was cancelled, its attempts are used up, or it has expired", id, topic)
		}
		s.lease(t, m, lease, now)
		found = append(found, m.delivery(now))
	}
	return found, nil
}

// EndThese ends exactly these messages, as if a Claim had met them. Otherwise it says why no claim may have done so:
// for the reasons of ClaimThese, or because they are to be delivered.
func (s *Store) EndThese(topic string, ids []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		t, m, now, err := s.follow(topic, id)
		if err != nil {
			return fmt.Errorf("end of %s in %s: %w", id, topic, err)
		}
		if !t.end(m, now) {
			return fmt.Errorf("end of %s in %s: it is to be delivered", id, topic)
		}
	}
	return nil
}

// follow returns a message that a claim may meet next, after having ended what must end
// before it.
func (s *Store) follow(name, id string) (*topic, *message, instant, error) {
	now, err := s.enter(context.Background())
	if err != nil {
		return nil, nil, now, err
	}
	t := s.claimable(name, now)
	if t == nil {
		return nil, nil, now, fmt.Errorf("there is no such topic, or it is paused")
	}
	m := t.messages[id]
	if m == nil {
		return nil, nil, now, fmt.Errorf("there is no such message")
	}
	if state := m.State(now.ms); state != punctual.StateReady {
		return nil, nil, now, fmt.Errorf("it is %s until %v; it is %v now", state, storekit.FromMillis(m.At()), now.time())
	}
	for first := s.firstBefore(t, m); first != nil; first = s.firstBefore(t, m) {
		if !t.end(first, now) {
			return nil, nil, now, fmt.Errorf("%s, whose time came %d ms earlier, was left out", first.id, m.At()-first.At())
		}
	}
	return t, m, now, nil
}

// firstBefore returns the earliest message of m's partition that is earlier than m, or nil.
func (s *Store) firstBefore(t *topic, m *message) *message {
	if s.partition == nil && t.live[0].At() == m.At() {
		return nil
	}
	first := m
	for _, o := range t.live {
		if o.At() < first.At() && (s.partition == nil || s.partition(o.id) == s.partition(m.id)) {
			first = o
		}
	}
	if first == m {
		return nil
	}
	return first
}

// NextAt returns the earliest time at which a live message of these topics next needs attention: its due time, or the
// end of its lease. No topics means all. It lies in the past while a message is ready. It is false when there is no
// live message.
func (s *Store) NextAt(topics ...string) (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(topics) == 0 {
		topics = slices.Collect(maps.Keys(s.topics))
	}
	var next *message
	for _, name := range topics {
		if t := s.topics[name]; t != nil && len(t.live) > 0 && (next == nil || t.live[0].At() < next.At()) {
			next = t.live[0]
		}
	}
	if next == nil {
		return time.Time{}, false
	}
	return storekit.FromMillis(next.At()), true
}
