package pgstore

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
)

// never is a time that no clock reaches, in ms.
const never int64 = math.MaxInt64 / 1000

// noFloor is before all messages, some of which may be due before 1970.
const noFloor int64 = math.MinInt64

const (
	// pollEvery is how long nobody looks at a topic that is waited for, at most: notifications may be lost (P11). In ms.
	pollEvery = 1000
	// lookAhead is how far ahead claims and polls look, and how far ahead a message is due of which others are told. Polls find the later ones
	// in time. What lies behind need not be read: dead entries of the index, mostly, where the leases of finished messages would have ended.
	lookAhead = 2 * time.Second
	// forgetAfter is for how long a topic is remembered that nobody waits for, in ms.
	forgetAfter = 60_000
)

// waits lets claims sleep until something is due. Each topic that is waited for has a time at which a claim can find
// something. When it comes, one of the claims that wait for the topic looks; the next one follows when that one found
// more than it takes. A poll reads the times of all such topics in one statement each second.
type waits struct {
	s      *Store
	others notifier
	quit   chan struct{}
	rearm  chan struct{} // holds one request to the poller to look at the times again
	once   sync.Once     // the poller begins with the first claim that waits
	work   sync.WaitGroup

	mu      sync.Mutex
	topics  map[string]*waited // guarded by mu
	polled  int64              // guarded by mu: when the last poll began, in ms
	polling bool               // guarded by mu: one is under way
	again   bool               // guarded by mu: another one is to follow it
	err     error              // guarded by mu: of the last poll
}

// waited is a topic that is waited for, or was. All fields are guarded by waits.mu.
type waited struct {
	waiting []*waiter // in the order in which they came
	at      int64     // when a claim can find something, in ms; never if nothing is known to come
	notices int       // how many have come
	floor   int64     // before it no message is known to be that a claim can find, in ms; see saw
	asking  bool      // a waiter was told to look
	vain    int       // how many of them in a row found nothing
	wanted  int64     // when somebody waited
}

// waiter is a claim that waits. The topics that it is told to look at are guarded by waits.mu.
type waiter struct {
	look    chan struct{} // holds one
	topics  []string
	looking []*waited
}

func (w *waits) init(s *Store) {
	w.s = s
	w.quit, w.rearm = make(chan struct{}), make(chan struct{}, 1)
	w.topics = make(map[string]*waited)
	w.others.init(s)
}

func (w *waits) start() { w.others.start() }

// close is called when no claim waits any more.
func (w *waits) close() {
	close(w.quit)
	w.work.Wait()
	w.others.close()
}

// claim claims what is due, and waits if nothing is.
func (w *waits) claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	w.once.Do(func() { w.work.Go(w.poll) })
	until := w.s.clock.guess()/1000 + max(c.Wait.Milliseconds(), 1)
	me := &waiter{look: make(chan struct{}, 1), topics: slices.Compact(slices.Sorted(slices.Values(c.Topics)))}
	w.join(me)
	defer w.leave(me)
	for {
		ds, err := w.s.claimAside(ctx, c)
		w.looked(me, len(ds))
		if err != nil || len(ds) > 0 {
			return ds, err
		}
		if over, err := w.sleep(ctx, me, until); over || err != nil {
			return []punctual.Delivery{}, err
		}
	}
}

// sleep returns when the waiter is to look, or when its time is over, or with why it cannot go on.
func (w *waits) sleep(ctx context.Context, me *waiter, until int64) (over bool, err error) {
	for {
		passed, stop := w.s.clock.after(until)
		select {
		case <-me.look:
		case <-passed:
			if w.s.clock.guess()/1000 < until { // it was only some time before
				stop()
				continue
			}
			over = true
			w.mu.Lock()
			err = w.err
			w.mu.Unlock()
		case <-ctx.Done():
			err = ctx.Err()
		case <-w.s.closing:
			err = errClosed()
		}
		stop()
		return over, err
	}
}

func (w *waits) join(me *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.s.clock.guess() / 1000
	for _, name := range me.topics {
		t := w.topics[name]
		if t == nil {
			t = &waited{at: never, floor: noFloor}
			w.topics[name] = t
		}
		t.waiting = append(t.waiting, me)
		t.wanted = now
	}
	w.wakePoller()
}

// leave also passes on what the waiter was told to look at.
func (w *waits) leave(me *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range me.topics {
		t := w.topics[name]
		t.waiting = slices.DeleteFunc(t.waiting, func(o *waiter) bool { return o == me })
	}
	w.release(me)
}

// looked is told that a waiter has looked, and how many messages it found.
func (w *waits) looked(me *waiter, found int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range me.looking {
		if found > 0 {
			t.vain = 0
			continue
		}
		// After a look in vain the topic rests for 1, 2, 4, 8 ms: the server's clock may be behind, or another process quicker.
		// With the clock of a test neither can be.
		if w.s.clock.fake == nil {
			t.at = max(t.at, w.s.clock.guess()/1000+int64(1)<<min(t.vain, 3))
			t.vain++
		}
	}
	w.release(me)
}

// release lets others look at what the waiter was told to. Called with mu held.
func (w *waits) release(me *waiter) {
	now := w.s.clock.guess() / 1000
	looking := me.looking
	me.looking = nil
	select {
	case <-me.look:
	default:
	}
	for _, t := range looking {
		t.asking = false
	}
	for _, t := range looking {
		w.offer(t, now)
	}
}

// offer has the first waiter look that can, if the topic's time has come. Called with mu held.
func (w *waits) offer(t *waited, now int64) {
	if t.asking || len(t.waiting) == 0 {
		return
	}
	if t.at > now {
		w.wakePoller()
		return
	}
	me := t.waiting[0]
	t.waiting = append(t.waiting[1:], me) // the next time it is another one's turn
	t.asking = true
	me.looking = append(me.looking, t)
	select {
	case me.look <- struct{}{}:
	default:
	}
}

// lookState is what was known of a topic when somebody began to look at it.
type lookState struct {
	notices int
	floor   int64 // nothing before it is looked at
}

// look is called before topics are read; saw takes its result. By the floor a claim keeps away from the entries of finished messages,
// which stay in the index until no snapshot needs them. Without it the whole topic is looked at.
func (w *waits) look(topics []string, fromFloor bool) map[string]lookState {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := make(map[string]lookState, len(topics))
	for _, name := range topics {
		g := lookState{floor: noFloor}
		if t := w.topics[name]; t != nil {
			g.notices = t.notices
			if fromFloor {
				g.floor = t.floor
			}
		}
		seen[name] = g
	}
	return seen
}

// saw takes in when a claim can find something in a topic, and before which time there was nothing. What was noticed since
// the reading began stays.
//
// The floor is a guess. Others may put messages before it, or give back what a claim has passed by. Of most of that
// comes a notice, and the poll of each second looks at the whole topic (P11).
func (w *waits) saw(name string, at, floor int64, seen lookState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.topics[name]
	if t == nil {
		return
	}
	whole := seen.floor == noFloor
	switch {
	case whole && floor < t.floor: // something was found before it, which a claim under way must not pass by
		t.floor = floor
		t.notices++
	case t.notices == seen.notices:
		t.floor = max(t.floor, floor)
	}
	if t.notices != seen.notices {
		at = min(at, t.at)
	}
	t.at = at
	w.offer(t, w.s.clock.guess()/1000)
}

// notice tells that a claim at or after a time may find something in a topic.
func (w *waits) notice(name string, at int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.topics[name]
	if t == nil {
		return
	}
	t.notices++
	t.floor = min(t.floor, at)
	if at < t.at {
		t.at = at
		w.offer(t, w.s.clock.guess()/1000)
	}
}

// pushed tells of messages that were stored.
func (w *waits) pushed(rs []punctual.PushResult) {
	first := make(map[string]int64)
	for i := range rs {
		if r := &rs[i]; r.Status == punctual.PushStored || r.Status == punctual.PushReplaced {
			at := r.Due.UnixMilli()
			if old, ok := first[r.Topic]; !ok || at < old {
				first[r.Topic] = at
			}
		}
	}
	w.tell(first)
}

// moved tells of messages whose time was changed.
func (w *waits) moved(l *locked) {
	first := make(map[string]int64)
	for n, r := range l.rows {
		if r.visibleAt == nil {
			continue
		}
		if old, ok := first[n.topic]; !ok || *r.visibleAt < old {
			first[n.topic] = *r.visibleAt
		}
	}
	w.tell(first)
}

// tell notices in this process and tells the others.
func (w *waits) tell(first map[string]int64) {
	for topic, at := range first {
		w.notice(topic, at)
	}
	w.others.tell(first)
}

func (w *waits) wakePoller() {
	select {
	case w.rearm <- struct{}{}:
	default:
	}
}

// poll looks at the times, until close.
func (w *waits) poll() {
	for {
		reached, stop := w.s.clock.after(w.pollDue())
		select {
		case <-reached:
		case <-w.rearm:
		case <-w.quit:
			stop()
			return
		}
		stop()
	}
}

// pollDue has waiters look at the topics whose time has come, begins a poll each second, and returns when there is next
// something to do.
func (w *waits) pollDue() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.s.clock.guess() / 1000
	next := never
	var names []string
	for name, t := range w.topics {
		switch {
		case len(t.waiting) > 0:
			t.wanted = now
			names = append(names, name)
			if t.at <= now {
				w.offer(t, now)
			} else if !t.asking { // offer would wake the poller, which is about to sleep until then
				next = min(next, t.at)
			}
		case !t.asking && now > t.wanted+forgetAfter:
			delete(w.topics, name)
		}
	}
	if len(names) == 0 {
		return never
	}
	if w.polling {
		return next
	}
	if w.again || now >= w.polled+pollEvery || now < w.polled {
		w.polled, w.polling, w.again = now, true, false
		w.work.Go(func() { w.readHeads(names) })
		return next
	}
	return min(next, w.polled+pollEvery)
}

// pollNow has a poll follow soon, as when notifications may have been lost.
func (w *waits) pollNow() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.again = true
	w.wakePoller()
}

// headsAtOnce is how many topics one statement asks for.
const headsAtOnce = 1000

// readHeads reads when each topic next needs attention.
func (w *waits) readHeads(names []string) {
	ctx, end := context.WithTimeout(context.Background(), callTime)
	defer end()
	var failed error
	for some := range slices.Chunk(names, headsAtOnce) {
		if _, _, err := w.s.heads(ctx, w.look(some, false)); err != nil {
			failed = err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.polling, w.err = false, failed
	if failed != nil {
		w.polled = max(w.polled, w.s.clock.guess()/1000) // the next one in a second
	}
	w.wakePoller()
}
