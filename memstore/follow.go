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

// Random tests compare another store with this one. The contract lets a store choose among messages
// with equal times, so this store has to follow the choice of the other: InPartitions, ClaimThese
// and EndThese are for that. NextAt is for package punctualtest.

// InPartitions tells ClaimThese and EndThese that the other store divides its topics into
// partitions. of returns the number of the partition of an ID. Order then holds only within a
// partition.
func (s *Store) InPartitions(of func(id string) int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.partition = of
}

// ClaimThese claims exactly these messages, in this order, as if a Claim had chosen them. It
// returns an error if no store may choose them, because the topic is paused, or because a message
// is unknown, dead, leased or not due, must be ended instead of delivered, or is later than a
// message that was left out. A lease of 0 is the topic's.
//
// Like a Claim, ClaimThese ends the messages that must not be delivered and whose time is earlier
// than that of a message it claims. The other store may also have ended messages with the same time
// as the last one claimed; follow it there with EndThese. After a claim that returned fewer
// messages than its Max, an ordinary Claim of the number that was missing shows whether the other
// store has left any out.
//
// When ClaimThese fails, the messages before the one that the error names are claimed.
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

// EndThese ends these messages, as if a Claim had encountered them, and as ClaimThese does those
// that must be ended before. It returns an error if no claim may end them, for one of the reasons
// of ClaimThese or because a message is to be delivered.
func (s *Store) EndThese(topic string, ids []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		t, m, now, err := s.follow(topic, id)
		if err != nil {
			return fmt.Errorf("end of %s in %s: %w", id, topic, err)
		}
		if !s.end(t, m, now) {
			return fmt.Errorf("end of %s in %s: it is to be delivered", id, topic)
		}
	}
	return nil
}

// follow returns a message that a claim may encounter next, after it has ended the messages that a
// claim must end before that one.
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
		if !s.end(t, first, now) {
			return nil, nil, now, fmt.Errorf("%s, whose time came %d ms earlier, was left out", first.id, m.At()-first.At())
		}
	}
	return t, m, now, nil
}

// firstBefore returns the earliest message in the partition of m if its time is before that of m,
// or nil.
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

// NextAt returns the earliest time at which a live message of these topics, or of all topics if
// none is named, next needs attention: its due time, or the end of its lease. The time lies in the
// past while a message is ready. NextAt returns false when there is no live message.
func (s *Store) NextAt(topics ...string) (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(topics) == 0 {
		topics = slices.Collect(maps.Keys(s.topics))
	}
	var next *message
	for _, name := range topics {
		if t := s.topics[name]; t != nil && len(t.live) > 0 && (next == nil || t.live[0].when() < next.when()) {
			next = t.live[0]
		}
	}
	if next == nil {
		return time.Time{}, false
	}
	return storekit.FromMillis(next.when()), true
}
