package pgstore

import (
	"cmp"
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
	// askAnew is how long one claim may take to look at a topic until another one is told to, in ms. A connection may hang (P14).
	askAnew = 250
	// pollsAtOnce bounds the polls under way. One is enough unless its connection hangs (P11).
	pollsAtOnce = 4
	// cheapWhole is how long a whole scan may take that is made each second, in ms. A longer one rests for wholeRest times its
	// own length, so that it takes a tenth of the time at most.
	cheapWhole = 100
	wholeRest  = 9
	// sinceSlack is subtracted from a time that this process has guessed, in ms.
	sinceSlack = 1000
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
	polls   int                // guarded by mu: how many have begun
	polling int                // guarded by mu: how many are under way
	again   bool               // guarded by mu: another one is to follow them
	looks   int                // guarded by mu: how many readings of topics have begun
	err     error              // guarded by mu: of the latest poll that has ended
	errOf   int                // guarded by mu: the number of that poll
	whole   wholeScans         // guarded by mu
	writers writers            // guarded by mu
}

// wholeScans says when a poll is to read the topics from their beginning, and not from the scan start alone.
type wholeScans struct {
	underWay bool
	soon     bool  // what lies before a scan start may have changed
	ended    int64 // when the last one ended, in ms
	took     int64 // in ms
}

// due reports whether a poll at a time is to be a whole scan. pause, if not 0, is that of a test.
func (x *wholeScans) due(now int64, pause time.Duration) bool {
	rest := wholeRest * x.took
	switch {
	case pause > 0:
		rest = pause.Milliseconds()
	case x.took <= cheapWhole:
		rest = 0
	case x.soon:
		rest = x.took
	}
	return !x.underWay && (now >= x.ended+rest || now < x.ended)
}

// writers are transactions that have written or locked messages, as polls see them. One that ends late may put messages
// before the scan start of a topic, or give back messages that claims have passed by.
type writers struct {
	poll int   // the number of the poll that saw them
	at   int64 // when it asked, in ms
	open map[string]writer
}

// writer is a transaction that was open at a poll.
type writer struct {
	since int64 // it has written nothing before this time, in ms
	polls int   // how many polls have seen it
}

// see takes in which transactions a poll has seen. It returns the time from which on messages may have appeared, in ms, or never.
// A transaction that one poll alone has seen has put nothing before the scan start, which is 2 s behind.
func (x *writers) see(poll int, asked int64, seen []string) (since int64) {
	since = never
	if poll <= x.poll { // an earlier poll that was late
		return since
	}
	before := x.at - sinceSlack
	if x.open == nil {
		before = noFloor
	}
	now := make(map[string]writer, len(seen))
	for _, id := range seen {
		t, known := x.open[id]
		if !known {
			t.since = before
		}
		t.polls++
		now[id] = t
	}
	for id, t := range x.open {
		if _, open := now[id]; !open && t.polls > 1 {
			since = min(since, t.since)
		}
	}
	x.poll, x.at, x.open = poll, asked, now
	return since
}

// waited is a topic that is waited for, or was. All fields are guarded by waits.mu.
type waited struct {
	waiting []*waiter // in the order in which they came
	at      int64     // when a claim can find something, in ms; never if nothing is known to come
	notices int       // how many have come
	read    int       // the number of the latest reading whose result is taken in
	floor   int64     // before it no message is known to be that a claim can find, in ms; see saw
	asking  *waiter   // the one that was told to look, or nil
	asked   int64     // when, in ms
	vain    int       // how many of them in a row found nothing
	wanted  int64     // when somebody waited
}

// waiter is a claim that waits. The last two fields are guarded by waits.mu.
type waiter struct {
	look    chan struct{} // holds one
	topics  []string
	looking []*waited // the topics that it was told to look at
	busy    bool      // it looks, or was told to
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
	me := &waiter{look: make(chan struct{}, 1), topics: slices.Compact(slices.Sorted(slices.Values(c.Topics))), busy: true}
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
	me.looking, me.busy = nil, false
	select {
	case <-me.look:
	default:
	}
	for _, t := range looking {
		if t.asking == me {
			t.asking = nil
		}
	}
	for _, t := range looking {
		w.offer(t, now)
	}
}

// offer has the first waiter look that can, if the topic's time has come. One that takes long keeps no other one from it.
// Called with mu held.
func (w *waits) offer(t *waited, now int64) {
	if len(t.waiting) == 0 || t.asking != nil && now < t.asked+askAnew {
		return
	}
	if t.at > now {
		w.wakePoller()
		return
	}
	first := max(0, slices.IndexFunc(t.waiting, func(o *waiter) bool { return !o.busy }))
	me := t.waiting[first]
	t.waiting = append(slices.Delete(t.waiting, first, first+1), me) // the next time it is another one's turn
	t.asking, t.asked, me.busy = me, now, true
	me.looking = append(me.looking, t)
	w.wakePoller() // which tells another one if this one takes long
	select {
	case me.look <- struct{}{}:
	default:
	}
}

// lookState is what was known of a topic when somebody began to look at it.
type lookState struct {
	number  int // of the reading
	notices int
	floor   int64 // nothing before it is looked at
}

// look is called before topics are read; saw takes its result. By the floor a claim keeps away from the entries of finished messages,
// which stay in the index until no snapshot needs them. Without it the whole topic is looked at.
func (w *waits) look(topics []string, fromFloor bool) map[string]lookState {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := make(map[string]lookState, len(topics))
	w.looks++
	for _, name := range topics {
		g := lookState{number: w.looks, floor: noFloor}
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
// comes a notice. Each poll sees which transactions have ended late. A whole scan finds the rest, each second as long as it is
// cheap (P11).
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
	if t.notices != seen.notices || seen.number < t.read { // a whole scan may take long, and another reading was quicker
		at = min(at, t.at)
	}
	t.at, t.read = at, max(t.read, seen.number)
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

// moved tells of locked messages that are still to be delivered, whose time may have changed.
func (w *waits) moved(l *locked) {
	first := make(map[string]int64)
	for n, r := range l.rows {
		if !r.live {
			continue
		}
		if old, ok := first[n.topic]; !ok || r.At() < old {
			first[n.topic] = r.At()
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
			switch {
			case t.at > now && t.asking == nil: // offer would wake the poller, which is about to sleep until then
				next = min(next, t.at)
			case t.at > now:
			case t.asking != nil && now < t.asked+askAnew:
				next = min(next, t.asked+askAnew)
			default:
				w.offer(t, now)
			}
		case t.asking == nil && now > t.wanted+forgetAfter:
			delete(w.topics, name)
		}
	}
	if len(names) == 0 {
		return never
	}
	if w.polling == pollsAtOnce {
		return next
	}
	every := cmp.Or(w.s.opt.pollEvery.Milliseconds(), pollEvery)
	if w.again && w.polling == 0 || now >= w.polled+every || now < w.polled {
		whole := w.whole.due(now, w.s.opt.wholePause)
		if whole {
			w.whole.underWay, w.whole.soon = true, false
		}
		w.polls++
		w.polled, w.again = now, false
		w.polling++
		number := w.polls
		w.work.Go(func() { w.readHeads(number, names, whole) })
	}
	return min(next, w.polled+every)
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

// readHeads is a poll: it reads when each topic next needs attention, from the scan start of each, or from its beginning.
func (w *waits) readHeads(number int, names []string, whole bool) {
	ctx, end := context.WithTimeout(w.s.life, callTime)
	defer end()
	begun := time.Now()
	failed := w.readWriters(ctx, number)
	for some := range slices.Chunk(names, headsAtOnce) {
		if _, _, err := w.s.heads(ctx, w.look(some, !whole)); err != nil {
			failed = err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.s.clock.guess() / 1000
	w.polling--
	if whole {
		w.whole.underWay, w.whole.ended, w.whole.took = false, now, time.Since(begun).Milliseconds()
		w.whole.soon = w.whole.soon || failed != nil
	}
	if number > w.errOf {
		w.errOf, w.err = number, failed
		if failed != nil {
			w.polled = max(w.polled, now) // the next one in a second
		}
	}
	w.wakePoller()
}

// readWriters reads which transactions have written messages and are not over. Where one has ended late, topics are read from where
// it began, by the same poll, and as a whole soon.
func (w *waits) readWriters(ctx context.Context, poll int) error {
	asked := w.s.clock.guess() / 1000
	var seen []string
	err := w.s.read(ctx, func() *step {
		seen = nil
		return w.s.step().add("writers", nil, func(rows scanner) error {
			var id string
			err := rows.Scan(&id)
			seen = append(seen, id)
			return err
		})
	})
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	since := w.writers.see(poll, asked, seen)
	if since == never {
		return nil
	}
	w.whole.soon = true
	for _, t := range w.topics {
		t.notices++
		t.floor = min(t.floor, since)
	}
	return nil
}
