package worker

import (
	"slices"
	"time"
)

// A worker with a backlog claims ahead of its free slots, as many messages as the slots handle in aheadTime, and at most
// aheadMost for each slot. So a slot has its next message at once, and the store is asked for many at a time. There is
// nothing ahead for slow handlers: what waits here could be with another worker. What no slot took for aheadWait
// is given back, its attempt uncounted, and for aheadRest nothing more is claimed ahead.
//
// A claim that asks for messages ahead does not wait in the store, and is sent only after one that brought all that it
// asked for. So a worker that is idle, when many messages become due at once, takes no more than it has slots.
const (
	aheadTime = 5 * time.Millisecond
	aheadMost = 4
	aheadWait = 50 * time.Millisecond
	aheadRest = time.Second
	// aheadMeasure is how long the slots are watched at least. Twice in a row they must be fast.
	aheadMeasure = 50 * time.Millisecond
	// aheadLease and aheadTimeout are the shortest for which there is anything ahead: the wait is a small part of them.
	aheadLease   = time.Second
	aheadTimeout = 5 * time.Second
)

// ahead are the messages that were claimed ahead of free slots. slots.mu guards all of it.
type ahead struct {
	// queue has them in the order in which they came, and room is what it lies in. Each waits because its topic may not
	// take a further slot.
	queue, room []*message
	// most is how many there may be.
	most int
	// done counts the messages that gave back their slot since measured, and rate those a second before.
	done     int
	measured time.Time
	rate     float64
	// rest is until when there are to be none.
	rest time.Time
}

// mayWaitAhead tells whether messages of a topic may be claimed ahead. With MaxSlots, slots that are free may not be
// its own.
func (r *route) mayWaitAhead() bool {
	return r.maxSlots == 0 && (r.timeout < 0 || r.timeout >= aheadTimeout)
}

// roomAhead is how many more messages to claim ahead, once half of them are used.
func (s *slots) roomAhead(now time.Time) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if passed := now.Sub(s.ahead.measured); passed >= aheadMeasure {
		rate := float64(s.ahead.done) / passed.Seconds()
		s.ahead.most = min(int(min(rate, s.ahead.rate)*aheadTime.Seconds()), aheadMost*s.total)
		if s.ahead.most < s.total || now.Before(s.ahead.rest) {
			s.ahead.most = 0
		}
		s.ahead.done, s.ahead.measured, s.ahead.rate = 0, now, rate
	}
	if len(s.ahead.queue) > s.ahead.most/2 {
		return 0
	}
	return s.ahead.most - len(s.ahead.queue)
}

// enqueue keeps messages that were claimed ahead, and returns those that have a slot by now, which it takes.
func (s *slots) enqueue(ms []*message) (started []*message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(ms) > 0 {
		s.ahead.queue = append(append(s.ahead.room[:0], s.ahead.queue...), ms...)
		s.ahead.room = s.ahead.queue[:0]
	}
	for m := s.dequeue(); m != nil; m = s.dequeue() {
		started = append(started, m)
	}
	return started
}

// dequeue takes a slot for the first message that was claimed ahead and may have one; nil when there is none. The
// caller holds mu.
func (s *slots) dequeue() *message {
	for i, m := range s.ahead.queue {
		if s.free == 0 {
			return nil
		}
		if m.route.busy > 0 && s.free <= s.kept(0) {
			continue
		}
		if i == 0 { // nearly always
			s.ahead.queue[0] = nil
			s.ahead.queue = s.ahead.queue[1:]
		} else {
			s.ahead.queue = slices.Delete(s.ahead.queue, i, i+1)
		}
		s.free--
		s.occupy(m.route)
		return m
	}
	return nil
}

// waitedTooLong takes out of the queue what has waited for aheadWait, or everything at the end of the session, and returns
// when to look again; zero for not before something is claimed ahead. While there is much to do it looks each aheadWait,
// so that the claims need not ask for it.
func (s *slots) waitedTooLong(now time.Time, all bool) (ms []*message, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for n < len(s.ahead.queue) && (all || !s.ahead.queue[n].received.Add(aheadWait).After(now)) {
		n++
	}
	if n > 0 {
		ms = slices.Clone(s.ahead.queue[:n])
		s.ahead.queue = slices.Delete(s.ahead.queue, 0, n)
		s.ahead.most, s.ahead.rest = 0, now.Add(aheadRest)
	}
	switch {
	case len(s.ahead.queue) > 0:
		next = s.ahead.queue[0].received.Add(aheadWait)
	case s.ahead.most > 0:
		next = now.Add(aheadWait)
	}
	return ms, next
}

// giveBackAhead gives back what was claimed ahead and has waited too long, or everything, and returns when to look again.
// Each message is settled in a goroutine of its own, by start.
func (w *Worker) giveBackAhead(now time.Time, all bool, start func(func())) (next time.Time) {
	ms, next := w.slots.waitedTooLong(now, all)
	why := "no slot was free in time"
	if all {
		why = ""
	}
	for _, m := range ms {
		start(func() { _ = w.finish(m, unstarted(why)) }) // finish reports what goes wrong
	}
	return next
}
