package wait

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
)

// Never is a time that no clock reaches, in µs.
const Never int64 = 1<<63 - 1

// Times of the waiting, all in µs.
const (
	// pollEvery is the longest time between two polls of a partition that claims wait for.
	// Notifications may be lost, and P11 allows a message to be a second late.
	pollEvery int64 = 1_000_000
	// pollTogether is how long before its time a partition is polled already if the next due times
	// of others are read anyway.
	pollTogether int64 = 25_000
	// pollApart bounds the random time by which a partition is polled earlier after a burst, in
	// which more partitions of a node were polled at a time than one pipeline takes. A server or
	// process that stood still makes such bursts, and without the random time their partitions
	// would fall due together for ever.
	pollApart = pollEvery / 4
	// forgetAfter is for how long, at least, a partition that no claim waits for is remembered,
	// with its subscription.
	forgetAfter int64 = 60_000_000
	// collectFor is for how long a claim that has found something begins further attempts.
	collectFor int64 = 10_000
)

// PartsAtOnce is the number of partitions, at most, of which one pipeline reads the next due times.
const PartsAtOnce = 256

const (
	// leastPolls is the least number of polls of an idle partition between two that let the store
	// tidy the partition.
	leastPolls = 16
	// tidyMost is how many idle partitions are tidied in a second, at most.
	tidyMost = 32
)

// asksAtOnce is how many attempts of a claim are under way at a time, at most.
const asksAtOnce = 16

const (
	// overtakeAfter is how long an attempt, or a read of next due times, keeps others from its
	// partitions. After that others may ask these, because perhaps only the connection hangs and
	// not the server.
	overtakeAfter = 500 * time.Millisecond
	// mostOvertaken is how many overtaken attempts at a partition, and how many overtaken reads of
	// it, may be under way beside the latest one.
	mostOvertaken = 2
)

// Clock is what the waiting is measured by. It never jumps.
type Clock interface {
	// Now returns the time in µs.
	Now() int64
	// After returns a channel that receives once the time is reached, or some time before, and a
	// function that frees the timer.
	After(at int64) (reached <-chan time.Time, stop func())
}

// Store is what a Waiter asks. NextDue, Claim, Processes and Release may block; a Waiter calls the
// other methods with its lock held.
type Store interface {
	// Node is the method of Prober.
	Node(p Part) string
	// Partitions returns how many partitions a topic has, as far as is known.
	Partitions(topic string) int
	// Subscribe has Waiter.Notice called with what becomes due in a partition.
	Subscribe(p Part)
	// Unsubscribe ends the subscription.
	Unsubscribe(p Part)
	// Processes returns how many processes wait for a partition, this one included; 0 if that is
	// not known.
	Processes(p Part) int
	// NextDue asks a node, in one pipeline, when a claim can find something in each partition.
	NextDue(node string, ps []Part) []NextDue
	// Claim leases up to n messages of a partition, and with tidy deletes what is past its
	// retention. It goes on when ctx ends.
	Claim(ctx context.Context, p Part, n int, lease time.Duration, tidy bool) Answer
	// LeaseEnded reports whether the lease of a delivery has ended.
	LeaseEnded(d *punctual.Delivery) bool
	// Release gives back what a claim with this context has leased.
	Release(ctx context.Context, ds []punctual.Delivery)
}

// NextDue is when a claim can find something in a partition.
type NextDue struct {
	// At is by Clock: Never if nothing waits or is leased there, or if the times could not be read,
	// and now if another node has the partition, so that a claim finds that node.
	At   int64
	Then int64 // by Clock: when a claim can find a second message, or any earlier time
	Err  error // why the times could not be read
}

// Answer is what an attempt of a claim has found in a partition.
type Answer struct {
	Deliveries []punctual.Delivery
	At         int64 // when the next attempt can find something, by Clock
	Now        int64 // by the partition's clock, in ms; 0 keeps the answer out of contention and its backoff
	Final      bool  // the claim is to return at once, even if it has found nothing
	Err        error
}

// Request is a claim that waits.
type Request struct {
	Topics   []string
	Max      int
	PerTopic int
	Lease    time.Duration
	Until    int64 // by Clock
	// Alone keeps the claim from getting what attempts of other claims have leased, and its own
	// messages from going to others. Such a claim makes no attempt while it waits for another one,
	// and none once it has found something. A claim with a key (storekit.Request) is alone, because
	// there is one record of what that key has leased in a partition.
	Alone bool
}

// Waiter lets claims wait for messages. Each partition has a time at which it is polled next. When
// that time has come and no message is known to be due, the next due times are read: those of a
// node in pipelines, nodes side by side. When a message is due, one of the claims that wait asks
// for it, and for collectFor also for others that are due, until it has as many as it may.
//
// All methods are safe for concurrent use.
type Waiter struct {
	clock Clock
	store Store
	nodes *Nodes
	start sync.Once
	quit  chan struct{}  // closed by Close
	rearm chan struct{}  // holds one request to the poller to call pollDue again
	work  sync.WaitGroup // the poller, and what asks the store

	mu     sync.Mutex
	topics map[string]*topic // guarded by mu
	lists  waitLists         // guarded by mu
	times  []*part           // guarded by mu: the partitions in phase scheduled, in the order of byTime
	until  int64             // guarded by mu: when the poller wakes by itself
	ready  int               // guarded by mu: how many partitions are in phase ready
	swept  int64             // guarded by mu: when topics were last forgotten
	ending []*claim          // guarded by mu: claims whose time is over and that cannot return yet; see Waiter.conclude
}

// read is a pipeline that reads the next due times of some partitions. Waiter.mu guards over and
// overtaken.
type read struct {
	parts     []*part
	over      bool // the pipeline was answered
	overtaken bool // the pipeline takes too long, so that other polls may read its partitions
}

// New returns a Waiter, whose poller begins with the first claim.
func New(c Clock, s Store, n *Nodes) *Waiter {
	return &Waiter{
		clock: c, store: s, nodes: n, quit: make(chan struct{}), rearm: make(chan struct{}, 1),
		topics: make(map[string]*topic), lists: waitLists{of: make(map[listKey][]*waitList)}, until: Never,
	}
}

// Knows reports whether a claim of the same topics, in the same order, was made before, as far as
// that is remembered.
func (w *Waiter) Knows(topics []string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lists.find(topics) != nil
}

// topicsOf returns the topics with the given names, and makes those that are not known yet. Called
// with mu held.
func (w *Waiter) topicsOf(names []string) []*topic {
	topics := make([]*topic, len(names))
	for i, name := range names {
		t := w.topics[name]
		if t == nil {
			t = &topic{name: name}
			w.topics[name] = t
			w.grow(t, w.store.Partitions(name)) // Resize adds the partitions that become known later
		}
		topics[i] = t
	}
	return topics
}

// pollAgain is called when a claim joins. It has a partition polled that was left out because
// nobody waited, or whose last poll failed. Called with mu held.
func (w *Waiter) pollAgain(p *part) {
	now := w.clock.Now()
	switch {
	case p.phase == ready || p.phase.busy():
	case p.last.err != nil: // a new claim does not wait for the time of the next poll
		p.last.err, p.next.at, p.next.due = nil, now, false
		w.schedule(p)
	case p.next.due && p.next.at <= now:
		w.enter(p, ready)
	case p.phase == resting:
		p.last.stale = now-p.last.skippedAt > pollEvery
		w.schedule(p)
	}
}

// grow adds partitions to a topic until it has n. Called with mu held.
func (w *Waiter) grow(t *topic, n int) {
	for len(t.parts) < n {
		p := &part{Part: Part{t.name, len(t.parts)}, topic: t, place: -1, poll: poll{noticed: Never}, last: last{begun: -Never}}
		p.next.at = w.clock.Now()
		t.parts = append(t.parts, p)
		w.store.Subscribe(p.Part)
	}
}

// Resize is called when it becomes known that a topic has n partitions. With changed its settings
// are others than before, and all its partitions are polled.
func (w *Waiter) Resize(name string, n int, changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.topics[name]
	if t == nil {
		return
	}
	old := len(t.parts)
	w.grow(t, n)
	for i, p := range t.parts {
		if changed || i >= old {
			w.notice(p, -Never)
		}
	}
}

// Fail has the claims that wait for a topic return an error, or what they have found.
func (w *Waiter) Fail(name string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.topics[name]; t != nil {
		for _, c := range t.claims() {
			w.finish(c, nil, err)
		}
	}
}

// Notice is called when it becomes known that a message of a partition is due at a time, by Clock.
// With -Never any message may have become due.
func (w *Waiter) Notice(p Part, at int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.topics[p.Topic]; t != nil && p.Number < len(t.parts) {
		w.notice(t.parts[p.Number], at)
	}
}

// notice is Notice with mu held. A notification that comes during a poll counts when the poll has
// ended, because the answer of the poll may not show the message.
func (w *Waiter) notice(p *part, at int64) {
	switch {
	case p.phase.busy():
		p.poll.dirty = p.poll.dirty || at == -Never
		if at > -Never {
			p.poll.noticed = min(p.poll.noticed, at)
		}
		return
	case p.phase == ready:
		return
	case at == -Never:
		if now := w.clock.Now(); p.next.at > now {
			p.next.at, p.next.due = now, false
		}
	case at < p.next.at:
		p.next = next{at: at, then: p.next.at, due: true, expected: true}
	case at > p.next.at:
		p.next.then = min(p.next.then, at)
		return
	default:
		return
	}
	w.arrange(p)
}

// arrange has a partition polled when its time comes, or asked by a claim at once if a message is
// known to be due. Called with mu held.
func (w *Waiter) arrange(p *part) {
	switch {
	case p.phase.busy():
	case p.phase == ready || p.next.due && p.next.at <= w.clock.Now():
		w.enter(p, ready)
		w.offer(p)
	default:
		w.schedule(p)
	}
}

// schedule has a partition polled at its time, for which the poller is woken if it would sleep
// longer. Called with mu held.
func (w *Waiter) schedule(p *part) {
	w.enter(p, scheduled)
	if p.next.at < w.until {
		w.wakePoller()
	}
}

func (w *Waiter) wakePoller() {
	select {
	case w.rearm <- struct{}{}:
	default:
	}
}

// offer has a ready partition asked by that one of the claims that may ask which has waited
// longest. Called with mu held.
func (w *Waiter) offer(p *part) {
	for _, c := range p.topic.claims() {
		if p.phase != ready {
			return
		}
		w.serve(c)
	}
}

// polled takes in the answer of a poll: at is when the next poll can find something, and then when
// it can find a second message, or any earlier time. Called with mu held.
func (w *Waiter) polled(p *part, at, then int64, err error) {
	now := w.clock.Now()
	again := p.poll.begun + pollEvery // from its beginning, because the answer may not show what came later
	if p.last.begun == -Never {       // the first poll: a random time spreads topics that are claimed together over the second
		again = p.poll.begun + rand.Int64N(pollEvery)
	} else if p.poll.crowded {
		again -= rand.Int64N(pollApart)
	}
	p.poll.crowded = false
	if p.last.err = err; err == nil {
		p.last.begun, p.last.stale = p.poll.begun, false
	} else {
		again = now + pollEvery
		p.topic.markUnpolled()
	}
	if p.poll.noticed < at {
		at, then = p.poll.noticed, at
	}
	due := at <= max(again, now)
	p.next = next{at: min(at, again), then: then, due: due, expected: due && at > now}
	if p.poll.dirty && p.next.at > now {
		p.next.at, p.next.due = now, false
	}
	p.poll.noticed, p.poll.dirty = Never, false
	if p.next.due && p.next.at <= now {
		w.enter(p, ready)
	}
}

// NotAnswering returns the error of a call that is not sent to a node, because the node does not
// answer other calls.
func NotAnswering(node string) error {
	return fmt.Errorf("not sent, because node %s does not answer; try again: %w", node, punctual.ErrUnreachable)
}

// ofNode reports whether an error says that a node cannot be reached, or does not answer.
func ofNode(err error) bool {
	return errors.Is(err, punctual.ErrUnreachable) || errors.Is(err, punctual.ErrIndeterminate)
}

// poll is the poller: it polls partitions when their time has come, until Close.
func (w *Waiter) poll() {
	for {
		reached, stop := w.clock.After(w.pollDue())
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

// pollDue polls the partitions whose time has come, and returns when the poller is to call it
// again. Partitions that no claim waits for are not polled and rest.
func (w *Waiter) pollDue() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.clock.Now()
	reads := make(map[string][]*part) // by node
	var later []*part
	for until := now; len(w.times) > 0 && w.times[0].next.at <= until; {
		p := w.times[0]
		w.enter(p, resting)
		switch {
		case !p.topic.waited():
			p.last.skippedAt = now
			p.topic.markUnpolled()
			continue
		case p.next.due && p.next.at > now:
			later = append(later, p)
			continue
		}
		if !p.next.due {
			p.cleanup.polls++
			// While a partition is ready none is tidied, so that messages that are due do not wait
			// for the tidying.
			if p.cleanup.now = p.cleanup.polls >= w.tidyEach() && w.ready == 0; p.cleanup.now {
				p.cleanup.polls = 0
			}
		}
		if p.next.due || p.cleanup.now {
			w.enter(p, ready)
			w.offer(p)
			continue
		}
		if p.node = w.store.Node(p.Part); w.nodes.Failing(p.node) {
			p.next.at = now + testEvery.Microseconds()
			later = append(later, p)
			continue
		}
		w.enter(p, polling)
		p.poll.begun, p.poll.noticed, p.poll.dirty = now, Never, false
		reads[p.node] = append(reads[p.node], p)
		until = now + pollTogether
	}
	for _, p := range later {
		w.enter(p, scheduled)
	}
	for node, ps := range reads {
		for _, p := range ps {
			p.poll.crowded = len(ps) > PartsAtOnce
		}
		w.work.Go(func() { w.readAll(node, ps) })
	}
	w.concludeAll() // a claim need not wait any more for a node that is failing by now
	w.forget(now)
	w.until = Never
	if len(w.times) > 0 {
		w.until = w.times[0].next.at
	}
	if len(w.ending) > 0 {
		w.until = min(w.until, now+testEvery.Microseconds())
	}
	return w.until
}

// tidyEach returns after how many polls an idle partition is tidied. The number is larger with many
// partitions, so that not more than tidyMost are tidied in a second. Called with mu held.
func (w *Waiter) tidyEach() int { return max(leastPolls, len(w.times)/tidyMost) }

// readAll reads the next due times of some partitions of a node, one pipeline after the other.
func (w *Waiter) readAll(node string, ps []*part) {
	for len(ps) > 0 {
		n := min(len(ps), PartsAtOnce)
		some, rest := ps[:n], ps[n:]
		if overtaken := w.readSome(node, some, rest); overtaken {
			return
		}
		ps = rest
	}
}

// readSome reads the next due times of ps in one pipeline. If that takes longer than overtakeAfter,
// rest is read meanwhile, and readSome returns true when it has its answer.
func (w *Waiter) readSome(node string, ps, rest []*part) (overtaken bool) {
	names := make([]Part, len(ps))
	r := &read{parts: ps}
	w.mu.Lock()
	for i, p := range ps {
		names[i], p.reading = p.Part, r
	}
	w.mu.Unlock()
	call := w.nodes.Begin(node, names[0], nil)
	defer time.AfterFunc(overtakeAfter, func() { w.overtakeRead(r, node, rest) }).Stop()
	got := w.store.NextDue(node, names)
	call.End(!slices.ContainsFunc(got, func(d NextDue) bool { return d.Err != nil }))
	w.mu.Lock()
	defer w.mu.Unlock()
	r.over = true
	w.took(r, got)
	return r.overtaken
}

// overtakeRead lets other polls read the partitions of a pipeline that takes long, because perhaps
// only its connection hangs (P11).
func (w *Waiter) overtakeRead(r *read, node string, rest []*part) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.over {
		return
	}
	r.overtaken = true
	now := w.clock.Now()
	for _, p := range r.parts {
		if p.overtakenReads == mostOvertaken {
			continue
		}
		p.overtakenReads++
		w.enter(p, resting)
		p.reading = nil
		p.next.at, p.next.due, p.next.expected = now, false, false
		if p.poll.noticed < Never {
			p.next.at, p.next.due = p.poll.noticed, true
		}
		w.arrange(p)
	}
	w.work.Go(func() { w.readAll(node, rest) })
}

// took takes in the answer of a pipeline. Called with mu held.
func (w *Waiter) took(r *read, all []NextDue) {
	var ps []*part
	var got []NextDue
	for i, p := range r.parts {
		if p.reading != r { // a later poll decides, or has decided, about the partition
			p.overtakenReads--
			continue
		}
		ps, got = append(ps, p), append(got, all[i])
		w.enter(p, resting)
		p.reading = nil
		w.polled(p, all[i].At, all[i].Then, all[i].Err)
	}
	// By now all partitions with something due are ready, so that a claim asks for the first of its
	// topics first.
	for i, p := range ps {
		if err := got[i].Err; err != nil {
			for _, c := range p.topic.claims() {
				if !c.gone && len(c.asks) == 0 && (!ofNode(err) || w.unreachable(c)) {
					w.finish(c, nil, err)
				}
			}
		}
		switch p.phase {
		case ready:
			w.offer(p)
		case resting:
			w.schedule(p)
		}
	}
	w.concludeAll()
}

// forget forgets, once a minute, the topics that no claim has waited for within the last minute.
// Called with mu held.
func (w *Waiter) forget(now int64) {
	if now-w.swept < forgetAfter {
		return
	}
	w.swept = now
	w.lists.removeIdle(now - forgetAfter)
	for name, t := range w.topics {
		if len(t.members) > 0 || t.wanted > now-forgetAfter ||
			slices.ContainsFunc(t.parts, func(p *part) bool { return p.phase.busy() || p.overtakenAsks > 0 || p.overtakenReads > 0 }) {
			continue
		}
		for _, p := range t.parts {
			w.enter(p, resting)
			w.store.Unsubscribe(p.Part)
		}
		delete(w.topics, name)
	}
}

// Waiting returns, for tests, how many claims wait for a topic, and whether all its partitions were
// polled and none is being asked or is to be asked by now.
func (w *Waiter) Waiting(name string) (claims int, quiet bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.topics[name]
	if t == nil {
		return 0, true
	}
	for _, m := range t.members {
		claims += m.list.live
	}
	return claims, !slices.ContainsFunc(t.parts, func(p *part) bool {
		return p.phase == ready || p.phase.busy() || p.last.begun == -Never || p.next.at <= w.clock.Now()
	})
}

// Close ends the polling and waits for what is under way. No claim may be under way.
func (w *Waiter) Close() {
	close(w.quit)
	w.start.Do(func() {}) // the poller does not begin any more
	w.work.Wait()
}
