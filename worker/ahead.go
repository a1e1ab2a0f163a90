package worker

import (
	"slices"
	"time"
)

// A worker with a backlog claims ahead of its free slots: as many messages as its slots handle in
// aheadTime and the time of two claims, at least one and at most aheadMost for each slot. So a slot
// has its next message at once, and a store that takes longer to answer is asked for more messages
// at a time. Nothing is claimed ahead for handlers that on average take aheadTime or longer,
// because another worker could handle what waits here. A message that has got no slot within
// aheadWait, or somewhat longer where claims are slow, is given back. Its attempt does not count,
// and nothing more is claimed ahead for aheadRest.
//
// A claim that asks for messages ahead does not wait in the store, and is sent only after a claim
// that brought as many messages as it asked for. So when many messages become due at once, an idle
// worker first claims no more of them than it has slots.
const (
	aheadTime = 5 * time.Millisecond
	aheadMost = 8
	// aheadClaim bounds how much of a claim's time counts.
	aheadClaim = 10 * time.Millisecond
	aheadWait  = 50 * time.Millisecond
	aheadRest  = time.Second
	// aheadMeasure is the shortest time over which handlers are measured. They must be quick in two
	// such times in a row.
	aheadMeasure = 50 * time.Millisecond
	// aheadLease and aheadTimeout are the shortest lease and handler timeout with which messages
	// are claimed ahead, so that the wait for a slot is a small part of both.
	aheadLease   = time.Second
	aheadTimeout = 5 * time.Second
)

// Where settling takes besideFrom or longer, a slot begins with a message that was claimed ahead
// while its last message is still being settled. So handlers do not wait for the store, and more
// settlements share a call. At most besideMost messages for each slot are settled in this way at
// the same time.
const (
	besideFrom = time.Millisecond
	besideMost = 4
)

// ahead are the messages that were claimed ahead of free slots. slots.mu guards all of it.
type ahead struct {
	// queue has the messages in the order in which they came; room is the slice whose array it
	// uses. A message waits because no slot is free, or because the free ones are kept for other
	// topics.
	queue, room []*message
	// most is how many messages the queue may have.
	most int
	// done counts the messages whose slots were freed since measured, and busy adds up what their
	// handlers took. rate is how many messages a second there were in the time measured before, and
	// quick whether their handlers were quick.
	done     int
	busy     time.Duration
	measured time.Time
	rate     float64
	quick    bool
	// rest is until when nothing is claimed ahead.
	rest time.Time
	// claims is how long claims take while there is a backlog, settles how long calls of Settle
	// take.
	claims, settles recentMin
	// beside counts the messages that are being settled while their slots have the next message.
	beside int
}

// handled counts a message, and the time that its handler took, for measure.
func (a *ahead) handled(took time.Duration) {
	a.done++
	a.busy += took
}

// measure sets how many messages may be claimed ahead of so many slots, from what the slots handled
// in the time that has passed and in the time measured before. Handlers must have been quick in
// both. How long a handler takes is computed from busy and not from passed, because slots may have
// been idle most of the time while the store took long.
func (a *ahead) measure(passed time.Duration, slots int) {
	rate := float64(a.done) / passed.Seconds()
	// Handlers that have not returned count as slow: aheadMeasure must have seen as many messages
	// handled as there are slots.
	quick := rate*aheadMeasure.Seconds() >= float64(slots) && a.busy < time.Duration(a.done)*aheadTime
	a.most = 0
	if quick && a.quick {
		a.most = min(max(int(min(rate, a.rate)*(aheadTime+2*a.claimTime()).Seconds()), slots), aheadMost*slots)
	}
	a.done, a.busy, a.rate, a.quick = 0, 0, rate, quick
}

// recentMin keeps the last four durations of a call and gives the shortest one, because the others
// may have been delayed by chance. It gives 0 until there are four.
type recentMin struct {
	last [4]time.Duration
	at   int
}

func (u *recentMin) add(d time.Duration) {
	u.last[u.at] = d
	u.at = (u.at + 1) % len(u.last)
}

func (u *recentMin) min() time.Duration { return slices.Min(u.last[:]) }

// claimTime returns how long a claim takes, at most aheadClaim.
func (a *ahead) claimTime() time.Duration { return min(a.claims.min(), aheadClaim) }

// wait returns how long a message waits for a slot before it is given back.
func (a *ahead) wait() time.Duration { return aheadWait + 10*a.claimTime() }

// mayWaitAhead reports whether messages of the topic may be claimed ahead: not with MaxSlots,
// because a slot that becomes free may be of no use to the topic, and not with a timeout of the
// handler below aheadTimeout.
func (r *route) mayWaitAhead() bool {
	return r.maxSlots == 0 && (r.timeout < 0 || r.timeout >= aheadTimeout)
}

// roomAhead returns how many more messages to claim ahead: 0 while the queue is more than half
// full.
func (s *slots) roomAhead(now time.Time) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if passed := now.Sub(s.ahead.measured); passed >= aheadMeasure {
		s.ahead.measure(passed, s.total)
		s.ahead.measured = now
		if now.Before(s.ahead.rest) {
			s.ahead.most = 0
		}
	}
	if len(s.ahead.queue) > s.ahead.most/2 {
		return 0
	}
	return s.ahead.most - len(s.ahead.queue)
}

// enqueue adds messages that were claimed ahead to the queue, and gives free slots to messages of
// the queue, which it returns.
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

// dequeue gives a free slot to the first message of the queue that may have one, and returns the
// message; nil when there is none. The caller holds mu.
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

// claimed notes how long a claim took that found a backlog.
func (s *slots) claimed(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead.claims.add(took)
}

// settled notes how long a call of Settle took.
func (s *slots) settled(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead.settles.add(took)
	s.slow.Store(s.ahead.settles.min() >= besideFrom)
}

// pass gives the slot of a message of r, whose handler ran for took, to a message that was claimed
// ahead, before the first one is settled. It returns nil when the slot is to wait for the
// settlement. After each message that pass returns, passed must be called once the first one is
// settled.
func (s *slots) pass(r *route, took time.Duration) (next *message) {
	if !s.slow.Load() {
		return nil
	}
	s.mu.Lock()
	if len(s.ahead.queue) == 0 || s.ahead.beside >= besideMost*s.total {
		s.mu.Unlock()
		return nil
	}
	s.vacate(r)
	next = s.dequeue()
	if next == nil { // no message of the queue may have the slot
		s.free--
		s.occupy(r)
		s.mu.Unlock()
		return nil
	}
	s.ahead.handled(took)
	s.ahead.beside++
	wake := len(s.ahead.queue) == s.ahead.most/2
	s.mu.Unlock()
	if wake {
		s.wakePoller()
	}
	return next
}

// passed is called when a message whose slot pass gave away is settled.
func (s *slots) passed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead.beside--
}

// waitedTooLong removes from the queue the messages that have waited for too long, or all at the
// end of the session, and returns them. next is when to call waitedTooLong again; zero means not
// before messages are claimed ahead. While messages may be claimed ahead next is never zero, so
// that those messages seldom need to wake the renewer.
func (s *slots) waitedTooLong(now time.Time, all bool) (ms []*message, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait := s.ahead.wait()
	n := 0
	for n < len(s.ahead.queue) && (all || !s.ahead.queue[n].received.Add(wait).After(now)) {
		n++
	}
	if n > 0 {
		ms = slices.Clone(s.ahead.queue[:n])
		s.ahead.queue = slices.Delete(s.ahead.queue, 0, n)
		s.ahead.most, s.ahead.rest = 0, now.Add(aheadRest)
	}
	switch {
	case len(s.ahead.queue) > 0:
		next = s.ahead.queue[0].received.Add(wait)
	case s.ahead.most > 0:
		next = now.Add(wait)
	}
	return ms, next
}

// giveBackAhead gives back the messages that were claimed ahead and have waited too long, or all,
// and returns when to call giveBackAhead again (see waitedTooLong). start runs a function in a
// goroutine that the caller waits for; each message is given back in a goroutine of its own.
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
