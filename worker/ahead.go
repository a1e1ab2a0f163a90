package worker

import (
	"slices"
	"time"
)

// A worker with a backlog claims ahead of its free slots. It claims as many messages as the slots handle in aheadTime
// and in two claims, at least one and at most aheadMost for each slot. So a slot has its next message at once, and a
// store is asked for more at a time the longer it takes to answer. There is nothing ahead for handlers that take
// aheadTime: what waits here could be with another worker. What no slot took for aheadWait, or somewhat longer where
// claims are slow, is given back. Its attempt does not count, and for aheadRest nothing more is claimed ahead.
//
// A claim that asks for messages ahead does not wait in the store. It is sent only after a claim that brought all that
// it asked for. So a worker that is idle, when many messages become due at once, takes no more than it has slots.
const (
	aheadTime = 5 * time.Millisecond
	aheadMost = 8
	// aheadTurn is how much of a claim's time counts at most.
	aheadTurn = 10 * time.Millisecond
	aheadWait = 50 * time.Millisecond
	aheadRest = time.Second
	// aheadMeasure is how long the slots are watched at least. Twice in a row they must be fast.
	aheadMeasure = 50 * time.Millisecond
	// aheadLease and aheadTimeout are the shortest for which there is anything ahead: the wait is a small part of them.
	aheadLease   = time.Second
	aheadTimeout = 5 * time.Second
)

// Where settling takes besideFrom or longer, a slot whose next message is there begins it while the one before is settled beside
// it. So handlers do not wait for the store, and more settlements share a call. At most besideMost for each slot are settled so.
const (
	besideFrom = time.Millisecond
	besideMost = 4
)

// ahead are the messages that were claimed ahead of free slots. slots.mu guards all of it.
type ahead struct {
	// queue has them in the order in which they came, and room is what it lies in. Each waits because its topic may not
	// take a further slot.
	queue, room []*message
	// most is how many there may be.
	most int
	// done counts the messages that gave back their slot since measured, and busy what their handlers took. rate is how
	// many there were a second before, and quick whether handlers were quick.
	done     int
	busy     time.Duration
	measured time.Time
	rate     float64
	quick    bool
	// rest is until when there are to be none.
	rest time.Time
	// claims is what claims take of a backlog, settles what calls take that settle.
	claims, settles usual
	// beside counts the messages that are settled while their slots have the next one.
	beside int
}

// handled notes what a handler took whose slot is given back.
func (a *ahead) handled(took time.Duration) {
	a.done++
	a.busy += took
}

// measure decides anew how many messages may be ahead of so many slots. It goes by what these did in the time that has
// passed and in the time before. Both must tell of quick handlers: their slots may be idle most of the time, because
// the store takes long.
func (a *ahead) measure(passed time.Duration, slots int) {
	rate := float64(a.done) / passed.Seconds()
	// Handlers that have not returned count as slow: each slot must have had its turn in aheadMeasure.
	quick := rate*aheadMeasure.Seconds() >= float64(slots) && a.busy < time.Duration(a.done)*aheadTime
	a.most = 0
	if quick && a.quick {
		a.most = min(max(int(min(rate, a.rate)*(aheadTime+2*a.turn()).Seconds()), slots), aheadMost*slots)
	}
	a.done, a.busy, a.rate, a.quick = 0, 0, rate, quick
}

// usual is how long something takes: the shortest of the last four times, since others may have been held up by chance.
type usual struct {
	last [4]time.Duration
	at   int
}

func (u *usual) took(d time.Duration) {
	u.last[u.at] = d
	u.at = (u.at + 1) % len(u.last)
}

func (u *usual) time() time.Duration { return slices.Min(u.last[:]) }

// turn is what a claim takes, as far as it counts.
func (a *ahead) turn() time.Duration { return min(a.claims.time(), aheadTurn) }

// wait is how long a message waits for a slot before it is given back.
func (a *ahead) wait() time.Duration { return aheadWait + 10*a.turn() }

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

// claimed notes what a claim of a backlog took.
func (s *slots) claimed(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead.claims.took(took)
}

// settled notes what a call took that settled.
func (s *slots) settled(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead.settles.took(took)
	s.slow.Store(s.ahead.settles.time() >= besideFrom)
}

// pass gives the slot of a message of r, whose handler has returned, to one that was claimed ahead. It returns nil where the
// slot is to wait until its message is settled. Each message that it returns needs a call of passed.
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
	if next == nil { // none of them may have it
		s.free--
		s.occupy(r)
		s.mu.Unlock()
		return nil
	}
	s.ahead.handled(took)
	s.ahead.beside++
	tell := len(s.ahead.queue) == s.ahead.most/2
	s.mu.Unlock()
	if tell {
		s.tell()
	}
	return next
}

// passed is called when a message is settled whose slot was passed on.
func (s *slots) passed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead.beside--
}

// waitedTooLong takes out of the queue what has waited for too long, or everything at the end of the session. It
// returns when to look again; zero means not before something is claimed ahead. While there is much to do it looks as
// often, so that the claims need not ask for it.
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
