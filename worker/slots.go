package worker

import (
	"sync"
	"sync/atomic"
	"time"
)

// slots counts the slots of a worker. A topic that has a message in a slot gets a further slot only
// while one free slot remains for each topic that has none, so that handlers that hang in one topic
// leave each other topic a slot (P14). Where topics outnumber slots, one free slot is kept for all
// of them. A worker with one slot keeps none. A message of a late claim takes any free slot
// (tryOccupy).
type slots struct {
	// total is the number of slots, keep how many of them are kept at most for topics that have
	// none, topics the number of topics. limited reports whether a topic has MaxSlots. They do not
	// change once there is a session.
	total, keep, topics int
	limited             bool
	// back has room for one signal that a slot has become free, or that the queue of messages
	// claimed ahead is half empty.
	back chan struct{}
	// slow reports that settling takes besideFrom or longer; see pass.
	slow atomic.Bool

	mu sync.Mutex
	// free counts the slots that have no message and are not reserved for a claim. Guarded by mu.
	free int
	// idle counts the topics that have no message in a slot. Guarded by mu, as is route.busy.
	idle int
	// covered counts the idle topics that are sure of a slot by the reservations of claims under
	// way. Guarded by mu.
	covered int
	ahead   ahead // guarded by mu
}

func (s *slots) init(total int) {
	s.total, s.free = total, total
	s.back = make(chan struct{}, 1)
}

// serves sets the number of topics and whether one of them has MaxSlots. It is called before the
// first claim.
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

// reservation is the slots that are reserved for a claim.
type reservation struct {
	// slots is how many slots are reserved, perTopic how many of them one topic may have; 0 means
	// all.
	slots, perTopic int
	// covers counts the idle topics that are sure of one of these slots if they have a message.
	covers int
}

// reserve reserves free slots for a claim of topics, up to the number most. It returns those topics
// that may have a slot, which the claim is to name; none when there is no slot for any of them.
func (s *slots) reserve(topics []*polled, most int) (chosen []*polled, r reservation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.slots = s.free - s.kept(0)
	chosen, idle := s.choose(topics, r.slots > 0)
	if len(chosen) == 0 {
		return nil, reservation{}
	}
	if idle { // one of them may have the slot that is kept for it
		r.slots, r.covers = max(s.free-s.kept(1), min(1, s.free)), 1
		if n := min(len(chosen), s.free); r.slots == 1 && n > 1 { // each may have its own
			r.slots, r.perTopic, r.covers = n, 1, n
		}
	}
	if s.limited {
		for _, t := range chosen {
			if t.maxSlots > 0 {
				if r.perTopic == 0 {
					r.perTopic = r.slots
				}
				r.perTopic = min(r.perTopic, t.maxSlots-t.busy)
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

// spare reports whether there are free slots beside the kept ones.
func (s *slots) spare() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.free > s.kept(0)
}

// choose returns those of topics that may have a slot, and whether all of these are idle. spare
// says whether there are free slots beside the kept ones. The caller holds mu.
func (s *slots) choose(topics []*polled, spare bool) (chosen []*polled, idle bool) {
	if spare && !s.limited && len(topics) == s.topics { // no walk over thousands of topics
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

// kept returns how many free slots are kept for idle topics that are not covered. The argument but
// is how many of these topics need no slot kept, because they are named by the claim that is being
// made. The caller holds mu.
func (s *slots) kept(but int) int { return min(s.keep, max(0, s.idle-s.covered-but)) }

// settle ends a reservation: each of the messages gets one of its slots, and the other slots are
// free again.
func (s *slots) settle(r reservation, got []*message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free += r.slots - len(got)
	s.covered -= r.covers
	for _, m := range got {
		s.occupy(m.route)
	}
}

// room returns how many messages of r may have a slot now.
func (s *slots) room(r *route) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.maxSlots > 0 {
		return min(s.free, r.maxSlots-r.busy)
	}
	return s.free
}

// roomBeside reports whether a message of r may have a slot beside those that are reserved for a
// claim of its topic.
func (s *slots) roomBeside(r *route, reserved reservation) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.free > 0 && (r.maxSlots == 0 || r.busy+reserved.slots < r.maxSlots)
}

// tryOccupy gives a free slot to a message of r, and reports whether there was one.
func (s *slots) tryOccupy(r *route) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free == 0 || r.maxSlots > 0 && r.busy >= r.maxSlots {
		return false
	}
	s.free--
	s.occupy(r)
	return true
}

// occupy counts a message of r that has got a slot. The caller holds mu.
func (s *slots) occupy(r *route) {
	if r.busy++; r.busy == 1 {
		s.idle--
	}
}

// release frees the slot of a message of r, whose handler ran for took, and gives the slot to a
// message that was claimed ahead. next is that message, or nil when none may have the slot.
func (s *slots) release(r *route, took time.Duration) (next *message) {
	s.mu.Lock()
	s.ahead.handled(took)
	s.vacate(r)
	next = s.dequeue()
	wake := next == nil || len(s.ahead.queue) == s.ahead.most/2
	s.mu.Unlock()
	if wake {
		s.wakePoller()
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

// wakePoller makes the poller check what it can ask for.
func (s *slots) wakePoller() {
	select {
	case s.back <- struct{}{}:
	default:
	}
}

// used returns how many slots have a message or are reserved for a claim.
func (s *slots) used() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total - s.free
}
