package redisstore

import (
	"math/rand/v2"
	"slices"
	"sync"
)

// lookAgain is how long, in ms, nobody looks into a partition that is waited for, at most: hints
// may be lost (P11).
const lookAgain int64 = 1000

// waits lets the claims that wait for messages share what is known of the partitions of their
// topics. For each partition it knows when a look can next find something. When that time
// comes, one of the waiting claims gets the turn to look; when there is more than it takes, the
// next one does. So an idle partition costs one script a second, however many wait.
type waits struct {
	s     *Store
	hints hints
	start sync.Once
	quit  chan struct{} // closed by close
	rearm chan struct{} // holds one request to the alarm to look at the times again

	mu    sync.Mutex
	watch map[string]*watch // guarded by mu: partitions that were ever waited for, by tag
	until int64             // guarded by mu: when the alarm wakes by itself, in ms
}

// watch is a partition that is waited for, or was: what the last look and the hints since then
// tell serves the next claim, too. All fields are guarded by waits.mu, but for p, which never
// changes.
type watch struct {
	p       partition
	waiters []*waiter
	next    int64          // when a look can find something
	turn    *waiter        // whose turn it is to look, or nil
	looks   map[*look]bool // those under way
	begun   int            // how many looks have begun
	told    int            // the number of the look that next comes from
	failed  bool           // whether that look failed
	timely  bool           // whether next is when a message was known to need attention
	stagger int64          // by how many ms looks are put off, at most
}

// waiter is a claim that waits.
type waiter struct {
	topics  []string
	watches []*watch      // guarded by waits.mu: where it waits
	wake    chan struct{} // holds one call to look; waits.turns says where
}

// look is one look into a partition. What is hinted at while it is under way it may have missed.
type look struct {
	watch  *watch
	waiter *waiter
	number int   // in the order in which they began
	hinted int64 // guarded by waits.mu: the earliest hint since it began
	timely bool  // whether it came when a message was known to need attention
}

func (w *waits) init(s *Store) {
	w.s = s
	w.quit = make(chan struct{})
	w.rearm = make(chan struct{}, 1)
	w.watch = make(map[string]*watch)
	w.until = never
	w.hints.init(s)
}

// join makes a claim wait for some topics. It gets its turn at once where a look may find
// something.
func (w *waits) join(topics []string) *waiter {
	w.start.Do(func() {
		w.s.duties.Go(w.alarm)
		w.s.duties.Go(w.hints.listen)
	})
	r := &waiter{topics: slices.Clone(topics), wake: make(chan struct{}, 1)}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, topic := range topics {
		for n := range w.s.layouts.known(topic).size() {
			w.add(r, w.s.names.partition(topic, n))
		}
	}
	for _, t := range r.watches {
		if t.failed {
			t.failed = false
			t.lookAt(-never)
		}
		w.arrange(t)
	}
	return r
}

// add makes a claim wait for a partition, and reports whether it did not before. Called with mu
// held.
func (w *waits) add(r *waiter, p partition) bool {
	t := w.watch[p.tag]
	if t == nil {
		t = &watch{p: p, next: -never, looks: make(map[*look]bool)}
		w.watch[p.tag] = t
		w.hints.want(p)
	}
	if slices.Contains(t.waiters, r) {
		return false
	}
	t.waiters = append(t.waiters, r)
	r.watches = append(r.watches, t)
	return true
}

// resize makes the claims that wait for a topic wait for all of its partitions, and has every
// partition looked into that is new to them, or all when the settings have changed.
func (w *waits) resize(topic string, size int, changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := w.watch[w.s.names.partition(topic, 0).tag]
	if first == nil {
		return
	}
	for n := range size {
		p := w.s.names.partition(topic, n)
		look := changed
		for _, r := range first.waiters {
			look = w.add(r, p) || look
		}
		if t := w.watch[p.tag]; t != nil && look {
			w.hintTo(t, -never)
		}
	}
}

// leave ends the waiting. A turn that was not used goes to somebody else.
func (w *waits) leave(r *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range r.watches {
		t.waiters = slices.DeleteFunc(t.waiters, func(o *waiter) bool { return o == r })
		if t.turn == r {
			t.turn = nil
			t.lookAt(-never)
			w.arrange(t)
		}
	}
}

// turns returns the partitions that it is this waiter's turn to look into, in the order of
// its topics, those of a topic beginning with another one each time.
func (w *waits) turns(r *waiter) []partition {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []partition
	first := int(w.s.looks.Add(1))
	for _, topic := range r.topics {
		for i := range r.watches {
			t := r.watches[(first+i)%len(r.watches)]
			if t.p.topic == topic && t.turn == r && !slices.Contains(out, t.p) {
				out = append(out, t.p)
			}
		}
	}
	return out
}

// begin is called before every look into a partition, by a waiter or, with nil, by a claim
// that does not wait.
func (w *waits) begin(r *waiter, p partition) *look {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.watch[p.tag]
	if t == nil {
		return nil
	}
	t.begun++
	l := &look{watch: t, waiter: r, number: t.begun, hinted: never, timely: t.timely && r != nil && t.turn == r}
	t.timely = false
	t.looks[l] = true
	return l
}

// end is called after the look, which found that the next message needs attention at next, or
// failed; then those who wait have patience, but a new claim tries at once.
func (w *waits) end(l *look, next int64, found int, err error) {
	if l == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	t := l.watch
	delete(t.looks, l)
	// What one that began later has found is not undone by one that began before.
	if l.number > t.told {
		if l.timely && w.s.clock.fake == nil { // the clock of a test may stand still until the look
			t.adapt(found)
		}
		t.timely = next < w.now()+lookAgain
		t.told, t.next = l.number, min(t.putOff(next), l.hinted, w.now()+lookAgain)
		t.failed = err != nil
	}
	if t.turn == l.waiter {
		t.turn = nil
	}
	w.arrange(t)
}

// maxStagger bounds, in ms, by how much a look is put off.
const maxStagger = 8

// adapt learns from a look at the time at which a message was due. If it was gone, other
// processes wait for the same messages, and all of them look at the same moment. So each looks
// a little later, by chance: the first of many is hardly later than before, and most of the
// others learn of what comes next without having looked in vain.
func (t *watch) adapt(found int) {
	if found > 0 {
		t.stagger /= 2
		return
	}
	t.stagger = min(2*t.stagger+1, maxStagger)
}

func (t *watch) putOff(at int64) int64 {
	if t.stagger == 0 || at == never {
		return at
	}
	return at + rand.Int64N(t.stagger+1)
}

// hint tells that a look at or after a time, in ms, will find something; never is no hint.
func (w *waits) hint(p partition, at int64) {
	if at == never {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.watch[p.tag]; t != nil {
		w.hintTo(t, at)
	}
}

// hintTo is hint to a partition that is waited for. Called with mu held.
func (w *waits) hintTo(t *watch, at int64) {
	for l := range t.looks {
		l.hinted = min(l.hinted, at)
	}
	t.lookAt(at)
	w.arrange(t)
}

// lookAt is called with the time of a hint, or -never where nobody knows whether a look finds
// something; that it finds nothing then tells nothing.
func (t *watch) lookAt(at int64) {
	if at < t.next {
		t.next, t.timely = at, at > -never
	}
}

// arrange gives the turn to a waiter if it is time, or sees to it that the alarm does when
// it will be. Called with mu held.
func (w *waits) arrange(t *watch) {
	switch {
	case t.turn != nil || len(t.waiters) == 0:
	case t.next <= w.now():
		t.turn = t.waiters[0]
		select {
		case t.turn.wake <- struct{}{}:
		default:
		}
	case t.next < w.until:
		select {
		case w.rearm <- struct{}{}:
		default:
		}
	}
}

// now is the store's clock as far as it is known here, in ms.
func (w *waits) now() int64 { return w.s.clock.guess() / 1000 }

// alarm gives turns when their time comes, until the store closes.
func (w *waits) alarm() {
	for {
		reached, stop := w.s.clock.after(w.arrangeAll())
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

// arrangeAll gives the turns that are due, and returns when the next one will be.
func (w *waits) arrangeAll() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.until = -never // nothing need call the alarm while it looks itself
	until := never
	for _, t := range w.watch {
		w.arrange(t)
		if t.turn == nil && len(t.waiters) > 0 {
			until = min(until, t.next)
		}
	}
	w.until = until
	return until
}

// close ends the goroutines; nobody waits any more.
func (w *waits) close() { close(w.quit) }
