package worker

import (
	"sync"
	"sync/atomic"
	"time"
)

// slots counts the slots of a worker. A topic that has a message in a slot takes a further one only while one free
// slot remains for each topic that has none. So handlers that hang in one topic leave the others a slot each (P14).
// Where topics outnumber slots, one free slot is kept for all of them; with one slot, none.
type slots struct {
	// total and keep do not change once there is a session: how many there are, and how many are kept at most. Nor do topics,
	// how many they are for, and limited, whether one of these has MaxSlots.
	total, keep, topics int
	limited             bool
	// back has room for one signal that a slot came back, or that half of what was claimed ahead is used.
	back chan struct{}
	// slow tells that settling takes long; see pass.
	slow atomic.Bool

	mu sync.Mutex
	// free counts the slots that have no message and that no claim has asked for. Guarded by mu.
	free int
	// idle counts the topics that have no message in a slot. Guarded by mu, as is route.busy.
	idle int
	// covered counts the idle topics that what claims under way have reserved surely serves. Guarded by mu.
	covered int
	ahead   ahead // guarded by mu
}

func (s *slots) init(total int) {
	s.total, s.free = total, total
	s.back = make(chan struct{}, 1)
}

// serves sets for how many topics the slots are, and whether one of them has MaxSlots. Nothing is claimed yet.
func (s *slots) serves(topics int, limited bool) {
	s.idle, s.topics, s.limited = topics, topics, limited
	switch {
	case s.total == 1:
		s.keep = 0
	case topics > s.total:
		s.keep = 1
	default:
		s.keep = topics
	}
}

// reservation is what reserve took for a claim.
type reservation struct {
	// slots is how many, and perTopic how many of them one topic may have, 0 for all.
	slots, perTopic int
	// covers counts the idle topics that surely have a slot of these if they have a message.
	covers int
}

// reserve takes free slots, at most so many, for a claim of some of the topics. It returns which ones; none when there is no
// slot for any.
func (s *slots) reserve(topics []*polled, most int) (chosen []*polled, r reservation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.slots = s.free - s.kept(0)
	chosen, idle := s.choose(topics, r.slots > 0)
	if len(chosen) == 0 {
		return nil, reservation{}
	}
	if idle { // one of them may take the slot that is kept for it
		r.slots, r.covers = max(s.free-s.kept(1), min(1, s.free)), 1
		if n := min(len(chosen), s.free); r.slots == 1 && n > 1 { // each may take its own
			r.slots, r.perTopic, r.covers = n, 1, n
		}
	}
	if s.limited {
		for _, t := range chosen {
			if t.maxSlots > 0 {
				r.perTopic = min(max(r.perTopic, r.slots), t.maxSlots-t.busy)
			}
		}
	}
	if r.perTopic > 0 {
		r.slots = min(r.slots, len(chosen)*r.perTopic)
	}
	if r.slots = min(r.slots, most); r.slots < 1 {
		return nil, reservation{}
	}
	r.covers = min(r.covers, r.slots)
	s.free -= r.slots
	s.covered += r.covers
	return chosen, r
}

// spare reports whether there are free slots beside those that are kept.
func (s *slots) spare() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.free > s.kept(0)
}

// choose returns those of some topics that may have a slot, and whether all of them are idle. spare tells that there are
// slots beside those that are kept. The caller holds mu.
func (s *slots) choose(topics []*polled, spare bool) (chosen []*polled, idle bool) {
	if spare && !s.limited && len(topics) == s.topics { // there may be thousands
		return topics, s.idle == s.topics
	}
	idle = true
	for _, t := range topics {
		if t.maxSlots > 0 && t.busy >= t.maxSlots || !spare && t.busy > 0 {
			continue
		}
		chosen = append(chosen, t)
		idle = idle && t.busy == 0
	}
	return chosen, idle
}

// kept is how many free slots are kept for idle topics but for some of these. The caller holds mu.
func (s *slots) kept(but int) int { return min(s.keep, max(0, s.idle-s.covered-but)) }

// settle ends a reservation: each of the messages has a slot, the rest of the slots is free again.
func (s *slots) settle(r reservation, got []*message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free += r.slots - len(got)
	s.covered -= r.covers
	for _, m := range got {
		s.occupy(m.route)
	}
}

// room is how many messages of r may have a slot now.
func (s *slots) room(r *route) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.maxSlots > 0 {
		return min(s.free, r.maxSlots-r.busy)
	}
	return s.free
}

// roomBeside reports whether a message of r may have a slot beside those that are reserved for a claim of its topic.
func (s *slots) roomBeside(r *route, reserved reservation) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.free > 0 && (r.maxSlots == 0 || r.busy+reserved.slots < r.maxSlots)
}

// take takes a free slot for a message of r, and reports whether there was one.
func (s *slots) take(r *route) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free == 0 || r.maxSlots > 0 && r.busy >= r.maxSlots {
		return false
	}
	s.free--
	s.occupy(r)
	return true
}

// occupy notes that a message of r has a slot. The caller holds mu.
func (s *slots) occupy(r *route) {
	if r.busy++; r.busy == 1 {
		s.idle--
	}
}

// release gives back the slot of a message of r, whose handler took so long. It takes one for a message that was
// claimed ahead, if one may have it.
func (s *slots) release(r *route, took time.Duration) (next *message) {
	s.mu.Lock()
	s.ahead.handled(took)
	s.vacate(r)
	next = s.dequeue()
	tell := next == nil || len(s.ahead.queue) == s.ahead.most/2
	s.mu.Unlock()
	if tell {
		s.tell()
	}
	return next
}

// vacate frees the slot of a message of r. The caller holds mu.
func (s *slots) vacate(r *route) {
	s.free++
	if r.busy--; r.busy == 0 {
		s.idle++
	}
}

// tell has the poller look at the slots.
func (s *slots) tell() {
	select {
	case s.back <- struct{}{}:
	default:
	}
}

// used is how many slots are taken or asked for.
func (s *slots) used() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total - s.free
}
