package memstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Random tests compare another store with this one. The contract lets a store choose among messages
// with equal times, so this store has to follow the choice of the other: InPartitions and Encounter
// are for that. NextAt is for package punctualtest.

// InPartitions tells Encounter that the other store divides its topics into partitions. of returns
// the number of the partition of an ID. Order then holds only within a partition.
func (s *Store) InPartitions(of func(id string) int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.partition = of
}

// Encounter brings the store to where a Claim encounters the message next: it ends the messages
// that must not be delivered and whose time is earlier. A Claim by ID then leases the message or
// ends it. Encounter returns an error if no claim may encounter the message now, because the topic
// is paused, or because the message is unknown, dead, leased or not due, or is later than one that
// is to be delivered and was left out. In a topic that has as many leases as it may, one whose
// lease has run out may come before those that have had none.
//
// The other store may have ended messages with the same time as the last one claimed; follow it
// there, too. After a claim that returned fewer messages than its Max, an ordinary Claim of the
// number that was missing shows whether the other store has left any out.
func (s *Store) Encounter(name, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := s.enter(context.Background())
	if err != nil {
		return err
	}
	t := s.claimable(name, now)
	if t == nil {
		return fmt.Errorf("there is no such topic, or it is paused")
	}
	m := t.messages[id]
	if m == nil {
		return fmt.Errorf("there is no such message")
	}
	if state := m.State(now.ms); state != punctual.StateReady {
		return fmt.Errorf("it is %s until %v; it is %v now", state, storekit.FromMillis(m.At()), now.time())
	}
	for t.lacksRoom(m) { // a claim meets only those whose lease has run out, and may end one of them
		if first, at := t.next(now); at > now.ms || !s.end(t, first, now) {
			return fmt.Errorf("the topic has as many leases as it may")
		}
	}
	for first := s.firstBefore(t, m); first != nil; first = s.firstBefore(t, m) {
		if !s.end(t, first, now) {
			return fmt.Errorf("%s, whose time came %d ms earlier, was left out", first.id, m.At()-first.At())
		}
	}
	return nil
}

// firstBefore returns the earliest message in the partition of m if its time is before that of m,
// or nil.
func (s *Store) firstBefore(t *topic, m *message) *message {
	if s.partition == nil && t.live[0].At() == m.At() {
		return nil
	}
	first := m
	for _, o := range t.live {
		passed := o.Token == 0 && m.Token != 0 && t.settings.MaxLeases > 0
		if o.At() < first.At() && !passed && (s.partition == nil || s.partition(o.id) == s.partition(m.id)) {
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
