package wait

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/internal/heap"
)

// Never is a time that no clock reaches, in µs.
const Never int64 = 1<<63 - 1

// All in µs.
const (
	// pollEvery is how long nobody looks into a partition that is waited for, at most: notifications may be lost (P11).
	pollEvery int64 = 1_000_000
	// pollTogether is how much earlier than that a partition is polled in the pipeline of others.
	pollTogether int64 = 25_000
	// pollApart is how much earlier, at most, a partition is polled again that was polled with more than one pipeline takes.
	// A server or process that stands still makes such crowds, and without that they would stay together for ever.
	pollApart = pollEvery / 4
	// forgetAfter is for how long a partition is remembered, with its subscription, that nobody waits for.
	forgetAfter int64 = 60_000_000
	// gatherFor is how long a claim that has found something begins to look into more partitions.
	gatherFor int64 = 10_000
)

// HeadsAtOnce is how many partitions one pipeline asks for.
const HeadsAtOnce = 256

const (
	// tidyEach is how many polls of an idle partition there are, at least, for one that lets the store tidy it.
	tidyEach = 16
	// tidyMost is how many idle partitions are tidied in a second, at most.
	tidyMost = 32
)

// asksAtOnce is how many partitions a claim asks at a time.
const asksAtOnce = 16

const (
	// overtakeAfter is how long a claim may ask a partition, or a poll may read it, until others may, too: the connection may hang.
	overtakeAfter = 500 * time.Millisecond
	// mostOvertaken is how many such questions, and how many such polls, of a partition may be under way beside the last one.
	mostOvertaken = 2
)

// Clock is what the waiting is measured by. It never jumps.
type Clock interface {
	// Now is the time in µs.
	Now() int64
	// After receives once the time is reached, or some time before; stop frees it.
	After(at int64) (reached <-chan time.Time, stop func())
}

// Store is what a Waiter asks. All but Node, Partitions, Subscribe and Unsubscribe may block; these are called
// with the Waiter's lock held.
type Store interface {
	// Node is that of Prober.
	Node(p Part) string
	// Partitions is how many partitions a topic has, as far as is known.
	Partitions(topic string) int
	// Subscribe has the Waiter told, by Notice, of what becomes due in a partition.
	Subscribe(p Part)
	// Unsubscribe ends that.
	Unsubscribe(p Part)
	// Processes is how many processes wait for a partition, this one among them; 0 if that is not known.
	Processes(p Part) int
	// Heads asks a node, in one pipeline, when a claim can find something in each partition.
	Heads(node string, ps []Part) []Head
	// Claim leases up to n messages of a partition, and may tidy it. It does not mind when ctx ends.
	Claim(ctx context.Context, p Part, n int, lease time.Duration, tidy bool) Answer
	// Over reports whether a lease has ended.
	Over(d *punctual.Delivery) bool
	// Release gives back what a claim with this context has leased.
	Release(ctx context.Context, ds []punctual.Delivery)
}

// Head is when a claim can find something in a partition.
type Head struct {
	At   int64 // by Clock; Never if nothing is there
	Then int64 // when it can find a second message, or before
	Err  error
}

// Answer is what a claim has found in a partition.
type Answer struct {
	Deliveries []punctual.Delivery
	At         int64 // when the next claim can find something, by Clock
	Now        int64 // by the partition's clock; 0 if that is not to be watched
	Over       bool  // the claim is over, though it has found nothing
	Err        error
}

// Request is a claim that waits.
type Request struct {
	Topics   []string
	Max      int
	PerTopic int
	Lease    time.Duration
	Until    int64 // by Clock
	// Alone tells that the claim takes nothing from others and leaves nothing to them.
	Alone bool
}

// Waiter lets claims wait for messages. Each partition has a time at which a poll can find something. When it comes, and
// nothing is known to be due, heads are read: those of a node in pipelines, nodes side by side. Where something is due
// one of the claims asks for it, each claim for one partition at a time. It goes on until nothing more is due or it has
// what it may have.
//
// All methods are safe for concurrent use.
type Waiter struct {
	clock Clock
	store Store
	nodes *Nodes
	start sync.Once
	quit  chan struct{}  // closed by Close
	rearm chan struct{}  // holds one request to the poller to look at the times again
	work  sync.WaitGroup // the poller, and what asks the store

	mu     sync.Mutex
	topics map[string]*topic // guarded by mu
	groups groups            // guarded by mu: lists of topics that are waited for, or were
	times  []*part           // guarded by mu: partitions to be polled, in the order of byTime
	until  int64             // guarded by mu: when the poller wakes by itself
	ready  int               // guarded by mu: partitions that are ready
	swept  int64             // guarded by mu: when topics were last forgotten
	ending []*claim          // guarded by mu: claims whose time is over and that have not seen everything
}

// topic is a topic that is waited for, or was. All fields are guarded by Waiter.mu.
type topic struct {
	name   string
	parts  []*part
	seats  []seat // in the groups that have it
	wanted int64  // when somebody waited, in groups that are gone
	ready  int    // partitions that are ready
	turn   int    // the partition to begin with when several are ready
}

// part is a partition of such a topic. All fields but the first two are guarded by Waiter.mu.
type part struct {
	Part
	topic *topic

	node     string
	place    int   // in times, -1 if it is not there
	at       int64 // when a poll can find something
	then     int64 // before that time it finds one message at most, as far as is known
	due      bool  // a message is known to be due at that time, so a claim is sent at once
	expected bool  // that was known before the time came
	ready    bool  // the time has come, and it waits for a claim to ask
	polling  bool  // heads are being read
	reading  *read // by which poll
	hanging  int   // earlier polls that have taken too long and are under way
	crowded  bool  // with those of more partitions than one pipeline takes
	asking   bool  // a claim is asking
	asked    *ask  // what it asks
	late     int   // earlier questions that have taken too long and are under way
	noticed  int64 // the earliest that was noticed while a poll was under way
	unsure   bool  // a poll is to follow the one under way
	begun    int64 // when the last poll began
	polled   int64 // the same of the last one that was answered
	dropped  int64 // when a poll was left out, because nobody waited
	missed   bool  // nobody has waited for long since the last one that was answered
	polls    int   // how many there were where nothing was known to be due, since the last one that tidied
	tidy     bool  // the next claim lets the store tidy the partition
	err      error // of the last poll
	turns
}

// byTime is the order of Waiter.times: the partition that is to be polled next comes first.
var byTime = heap.Order[*part]{
	Before: func(a, b *part) bool { return a.at < b.at },
	Place:  func(p *part) *int { return &p.place },
}

// claim is a claim that waits. All fields but the first four are guarded by Waiter.mu.
type claim struct {
	Request
	ctx    context.Context
	result chan result   // holds one
	first  chan struct{} // receives when it has found something; holds one

	group  *group
	joined int64
	found  []punctual.Delivery // in the order of its topics
	places []int               // of their topics in the group
	since  int64               // when it found the first of them
	asks   []*ask              // what it waits for answers to
	seen   int                 // so many topics, the first of its group, were polled since it came
	gone   bool                // it has its result
	enough bool                // it has it although a look is under way
	over   bool                // its time is over
	left   error
	doubt  error // of an answer that was lost: what it had leased nobody knows
}

// result is what a claim returns.
type result struct {
	ds  []punctual.Delivery
	err error
}

// ask is a question of a claim about a partition, for up to n messages.
type ask struct {
	part     *part
	claim    *claim
	place    int // of the topic in the claim's group
	n        int
	expected bool
	late     bool // others may ask the partition, because this takes too long; guarded by Waiter.mu
}

// read is a poll of some partitions in one pipeline. Waiter.mu guards over and late.
type read struct {
	parts []*part
	over  bool
	late  bool // other polls may read the partitions, because this takes too long
}

// New returns a Waiter, which begins with the first claim.
func New(c Clock, s Store, n *Nodes) *Waiter {
	return &Waiter{
		clock: c, store: s, nodes: n, quit: make(chan struct{}), rearm: make(chan struct{}, 1),
		topics: make(map[string]*topic), groups: groups{of: make(map[listKey][]*group)}, until: Never,
	}
}

// Knows reports whether a claim of the same topics, in the same order, was made before, as far as it is remembered.
func (w *Waiter) Knows(topics []string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.groups.find(topics) != nil
}

// Claim waits for messages and returns the first that come. With them come those that are due in other partitions, as far as
// looks take no longer than 10 ms, since leases run. It waits for no look that takes longer than LateAfter. When nothing
// has come until the time of the request it returns nothing, or why a partition could not be looked into. The waiting ends
// when the context ends, or closing is closed, which happens when the store closes. It does not end for an answer that is
// under way from a node that answers.
func (w *Waiter) Claim(ctx context.Context, r Request, closing <-chan struct{}, closed error) ([]punctual.Delivery, error) {
	w.start.Do(func() { w.work.Go(w.poll) })
	c := &claim{Request: r, ctx: context.WithoutCancel(ctx), result: make(chan result, 1), first: make(chan struct{}, 1)}
	w.join(c)
	over, stop := w.clock.After(r.Until)
	defer func() { stop() }()
	var late <-chan time.Time
	done := ctx.Done()
	for {
		select {
		case got := <-c.result:
			return got.ds, got.err
		case <-c.first:
			var stopLate func()
			late, stopLate = w.clock.After(w.clock.Now() + LateAfter.Microseconds())
			defer stopLate()
		case <-late:
			late = nil
			w.leave(c)
		case <-over:
			over = nil
			if w.clock.Now() < r.Until { // it was only some time before
				stop()
				over, stop = w.clock.After(r.Until)
				continue
			}
			w.end(c, nil)
		case <-done:
			done = nil
			w.end(c, ctx.Err())
		case <-closing:
			closing = nil
			w.end(c, closed)
		}
	}
}

// join makes a claim wait for its topics.
func (w *Waiter) join(c *claim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.joined = w.clock.Now()
	g := w.groups.find(c.Topics)
	if g == nil {
		g = w.groups.add(c.Topics, w.topicsOf(c.Topics))
	}
	c.group = g
	w.groups.enter(g, c)
	for i := g.unpolled.next(0); i >= 0; i = g.unpolled.next(i + 1) {
		g.unpolled.remove(i)
		for _, p := range g.topics[i].parts {
			w.pollAgain(p)
		}
	}
	w.serve(c)
}

// topicsOf returns the topics of some names, and makes known those that are not. Called with mu held.
func (w *Waiter) topicsOf(names []string) []*topic {
	topics := make([]*topic, len(names))
	for i, name := range names {
		t := w.topics[name]
		if t == nil {
			t = &topic{name: name}
			w.topics[name] = t
			w.grow(t, w.store.Partitions(name)) // Resize tells what comes later
		}
		topics[i] = t
	}
	return topics
}

// pollAgain has a partition polled for which nobody has waited, or which could not be polled. Called with mu held.
func (w *Waiter) pollAgain(p *part) {
	now := w.clock.Now()
	switch {
	case p.ready || p.polling || p.asking:
	case p.err != nil: // whoever comes new tries at once
		p.err, p.at, p.due = nil, now, false
		w.schedule(p)
	case p.due && p.at <= now:
		w.makeReady(p)
	case p.place < 0:
		p.missed = now-p.dropped > pollEvery
		w.schedule(p)
	}
}

// grow makes partitions known. Called with mu held.
func (w *Waiter) grow(t *topic, n int) {
	for len(t.parts) < n {
		p := &part{Part: Part{t.name, len(t.parts)}, topic: t, place: -1, polled: -Never, noticed: Never}
		p.at = w.clock.Now()
		t.parts = append(t.parts, p)
		w.store.Subscribe(p.Part)
	}
}

// Resize tells how many partitions a topic has, and whether all are to be looked into, because its settings have changed.
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

// Fail ends the claims that wait for a topic.
func (w *Waiter) Fail(name string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.topics[name]; t != nil {
		for _, c := range t.claims() {
			w.finish(c, nil, err)
		}
	}
}

// Notice tells that a claim at or after a time will find something in a partition; -Never that it may.
func (w *Waiter) Notice(p Part, at int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.topics[p.Topic]; t != nil && p.Number < len(t.parts) {
		w.notice(t.parts[p.Number], at)
	}
}

// notice is called with mu held.
func (w *Waiter) notice(p *part, at int64) {
	switch {
	case p.polling || p.asking:
		p.unsure = p.unsure || at == -Never
		if at > -Never {
			p.noticed = min(p.noticed, at)
		}
		return
	case p.ready:
		return
	case at == -Never:
		if now := w.clock.Now(); p.at > now {
			p.at, p.due = now, false
		}
	case at < p.at:
		p.at, p.then, p.due, p.expected = at, p.at, true, true
	case at > p.at:
		p.then = min(p.then, at)
		return
	default:
		return
	}
	w.arrange(p)
}

// arrange sees to it that a partition is polled when its time comes. Called with mu held.
func (w *Waiter) arrange(p *part) {
	switch {
	case p.polling || p.asking:
	case p.ready || p.due && p.at <= w.clock.Now():
		w.makeReady(p)
		w.offer(p)
	default:
		w.schedule(p)
	}
}

// schedule has the poller look at a partition at its time. Called with mu held.
func (w *Waiter) schedule(p *part) {
	if p.place < 0 {
		byTime.Push(&w.times, p)
	} else {
		byTime.Fix(w.times, p)
	}
	if p.at < w.until {
		w.wakePoller()
	}
}

func (w *Waiter) wakePoller() {
	select {
	case w.rearm <- struct{}{}:
	default:
	}
}

// makeReady notes that a partition waits for a claim to ask. Called with mu held.
func (w *Waiter) makeReady(p *part) {
	if p.place >= 0 {
		byTime.Remove(&w.times, p)
	}
	if !p.ready {
		p.ready = true
		w.ready++
		if p.topic.ready++; p.topic.ready == 1 {
			p.topic.tellReady()
		}
	}
}

func (w *Waiter) notReady(p *part) {
	if p.ready {
		p.ready = false
		w.ready--
		if p.topic.ready--; p.topic.ready == 0 {
			p.topic.tellReady()
		}
	}
}

// offer has the longest waiting claim ask that can. Called with mu held.
func (w *Waiter) offer(p *part) {
	for _, c := range p.topic.claims() {
		if !p.ready {
			return
		}
		w.serve(c)
	}
}

// serve has a claim ask for the first topics in its order that have something due. Where that is one message it asks for
// one, and goes on with the next. Else it asks for all that it may have, so the topics that come later get what is left.
// Called with mu held.
func (w *Waiter) serve(c *claim) {
	now := w.clock.Now()
	for w.mayAsk(c, now) {
		a := w.nextFor(c, now)
		if a == nil {
			return
		}
		if a.part.tidy || a.part.then > now {
			a.n = 1
		}
		w.ask(a)
	}
}

// mayAsk reports whether a claim may ask for more. Called with mu held.
func (w *Waiter) mayAsk(c *claim, now int64) bool {
	switch {
	case c.gone || c.left != nil || w.ready == 0:
		return false
	case len(c.asks) == 0 && len(c.found) == 0:
		return true
	case c.Alone: // the record of its call has one answer
		return false
	}
	return len(c.asks) < asksAtOnce && (len(c.found) == 0 || now-c.since <= gatherFor) // leases run
}

// nextFor is the next question of a claim, for all messages that it may have, or nil. Called with mu held.
func (w *Waiter) nextFor(c *claim, now int64) *ask {
	for i := c.group.ready.next(0); i >= 0; i = c.group.ready.next(i + 1) {
		t := c.group.topics[i]
		n := c.room(i)
		for range t.parts {
			if n == 0 || t.ready == 0 {
				break
			}
			t.turn++
			p := t.parts[t.turn%len(t.parts)]
			if !p.ready {
				continue
			}
			if p.node = w.store.Node(p.Part); !w.nodes.Failing(p.node) {
				return &ask{part: p, claim: c, place: i, n: n, expected: p.expected}
			}
			w.notReady(p)
			p.at = now + testEvery.Microseconds()
			w.schedule(p)
		}
	}
	return nil
}

// room is how many messages of the topic in a place a claim may still ask for. Called with mu held.
func (c *claim) room(place int) int {
	all, of := len(c.found), 0
	for _, a := range c.asks {
		all += a.n
		if a.place == place {
			of += a.n
		}
	}
	if c.PerTopic == 0 {
		return c.Max - all
	}
	for _, found := range c.places {
		if found == place {
			of++
		}
	}
	return min(c.Max-all, c.PerTopic-of)
}

// ask has a claim ask. Called with mu held.
func (w *Waiter) ask(a *ask) {
	c, p := a.claim, a.part
	c.asks = append(c.asks, a)
	w.notReady(p)
	tidy := p.tidy
	p.asking, p.asked, p.begun, p.noticed, p.unsure, p.expected, p.tidy = true, a, w.clock.Now(), Never, false, false, false
	node, n, lease := p.node, a.n, c.Lease
	w.work.Go(func() {
		call := w.nodes.Begin(node, p.Part, func() { w.late(a) })
		defer time.AfterFunc(overtakeAfter, func() { w.overtake(a) }).Stop()
		got := w.store.Claim(c.ctx, p.Part, n, lease, tidy)
		call.End(got.Err == nil)
		w.answered(a, got)
	})
}

// take takes in what a claim has found. Called with mu held.
func (c *claim) take(a *ask, ds []punctual.Delivery) {
	i, _ := slices.BinarySearch(c.places, a.place+1)
	c.found = slices.Insert(c.found, i, ds...)
	c.places = slices.Insert(c.places, i, slices.Repeat([]int{a.place}, len(ds))...)
}

// dropped notes that a claim does not wait for an answer any more, and reports whether it did. Called with mu held.
func (c *claim) dropped(a *ask) bool {
	n := len(c.asks)
	c.asks = slices.DeleteFunc(c.asks, func(o *ask) bool { return o == a })
	return len(c.asks) < n
}

// overtake lets others ask a partition, and its claim, too, when the answer takes long (P11, P14). What the answer brings after
// all is handed out, or given back.
func (w *Waiter) overtake(a *ask) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := a.part
	if p.asked != a || p.late == mostOvertaken {
		return
	}
	a.late = true
	p.late++
	p.asking, p.asked = false, nil
	p.at, p.due, p.noticed, p.unsure = w.clock.Now(), true, Never, false
	w.makeReady(p)
	w.letGo(a)
	w.offer(p)
}

// late lets a claim ask elsewhere when a node has not answered for too long.
func (w *Waiter) late(a *ask) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.letGo(a)
}

// letGo has a claim wait for an answer no longer. Called with mu held.
func (w *Waiter) letGo(a *ask) {
	if a.claim.dropped(a) {
		w.serve(a.claim)
		w.conclude(a.claim)
	}
}

// answered takes in what a claim was answered.
func (w *Waiter) answered(a *ask, got Answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, c := a.part, a.claim
	waited := c.dropped(a) && !c.gone
	if got.Err != nil && ofNode(got.Err) { // others are asked before a node that does not answer
		got.At = max(got.At, w.clock.Now()+pollEvery)
	}
	if a.late { // another question has, or will have, the say
		p.late--
	} else {
		p.asking, p.asked = false, nil
		if a.expected && got.Now > 0 {
			p.adapt(len(got.Deliveries))
		}
		w.polled(p, p.withJitter(w.afterClaim(p, got)), got.At, got.Err)
	}
	ds := got.Deliveries
	if waited && len(ds) > 0 {
		if len(c.found) == 0 {
			c.since = w.clock.Now()
			c.first <- struct{}{} // has room
		}
		c.take(a, ds)
		ds = nil
	}
	if waited && got.Over {
		w.finish(c, nil, nil)
	}
	w.handOut(p, c, ds)
	if got.Err != nil && !punctual.Definite(got.Err) {
		c.doubt = got.Err
	}
	if got.Err != nil && !c.gone && (!ofNode(got.Err) || w.hopeless(c)) {
		w.finish(c, nil, got.Err)
	}
	w.serve(c)
	w.arrange(p)
	w.conclude(c)
	w.concludeAll()
}

// afterClaim is when a partition is to be polled after a claim. Called with mu held.
func (w *Waiter) afterClaim(p *part, got Answer) int64 {
	now := w.clock.Now()
	rest := p.restAfter(got)
	if rest == 0 {
		return got.At
	}
	if p.toCount(now) {
		w.work.Go(func() {
			n := w.store.Processes(p.Part)
			w.mu.Lock()
			defer w.mu.Unlock()
			p.processes = n
		})
	}
	return max(got.At, now+rest)
}

// polled takes in when the next poll of a partition can find something, and a second message. Called with mu held.
func (w *Waiter) polled(p *part, at, then int64, err error) {
	now := w.clock.Now()
	again := p.begun + pollEvery // what came meanwhile it may not have seen
	if p.polled == -Never {      // so that those who are asked for together at first are spread over the second
		again = p.begun + rand.Int64N(pollEvery)
	} else if p.crowded {
		again -= rand.Int64N(pollApart)
	}
	p.crowded = false
	if p.err = err; err == nil {
		p.polled, p.missed = p.begun, false
	} else {
		again = now + pollEvery
		p.topic.tellUnpolled()
	}
	if p.noticed < at {
		at, then = p.noticed, at
	}
	p.then = then
	p.due = at <= max(again, now)
	p.expected = p.due && at > now
	p.at = min(at, again)
	if p.unsure && p.at > now {
		p.at, p.due = now, false
	}
	p.noticed, p.unsure = Never, false
	if p.due && p.at <= now {
		w.makeReady(p)
	}
}

// handOut gives messages whose claim has left to others that wait for them, or back. Called with mu held.
func (w *Waiter) handOut(p *part, from *claim, ds []punctual.Delivery) {
	if len(ds) == 0 {
		return
	}
	var back []punctual.Delivery
	ds = slices.DeleteFunc(ds, func(d punctual.Delivery) bool {
		over := w.store.Over(&d)
		if over {
			back = append(back, d)
		}
		return over
	})
	for _, c := range p.topic.claims() {
		if c.gone || c.left != nil || len(c.asks) > 0 || c.Alone || from.Alone || from.enough || c.Lease != from.Lease || len(ds) == 0 {
			continue
		}
		n := min(c.Max, len(ds))
		if c.PerTopic > 0 {
			n = min(n, c.PerTopic)
		}
		w.finish(c, ds[:n:n], nil)
		ds = ds[n:]
	}
	if back = append(back, ds...); len(back) > 0 {
		w.work.Go(func() { w.store.Release(from.ctx, back) })
	}
}

// leave has a claim return what it has found. What a look brings that is under way goes back.
func (w *Waiter) leave(c *claim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.enough = !c.gone
	w.finish(c, nil, nil)
}

// finish gives a claim its result, unless it has one: what it has found, if that is something. Called with mu held.
func (w *Waiter) finish(c *claim, ds []punctual.Delivery, err error) {
	if !c.gone {
		if len(c.found) > 0 {
			ds, err = c.found, nil
		}
		if err != nil && err != c.left && c.doubt != nil && punctual.Definite(err) {
			err = fmt.Errorf("%w (a former look: %w)", err, c.doubt)
		}
		c.gone = true
		w.groups.leave(c.group, w.clock.Now())
		c.result <- result{ds, err}
	}
}

// end is called when the time of a claim is over, or with why it leaves.
func (w *Waiter) end(c *claim, why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if why != nil {
		c.left = cmp.Or(c.left, why)
	} else {
		c.over = true
		w.ending = append(w.ending, c)
		w.wakePoller() // it looks for nodes that fail meanwhile
	}
	w.conclude(c)
}

// conclude gives a claim that is to end its result, if it need not wait for anything more. Called with mu held.
func (w *Waiter) conclude(c *claim) {
	switch {
	case c.gone || len(c.asks) > 0:
	case len(c.found) > 0:
		w.finish(c, nil, nil)
	case c.left != nil:
		w.finish(c, nil, c.left)
	case c.over:
		if seen, err := w.seen(c); seen {
			w.finish(c, nil, err)
		}
	}
}

// concludeAll concludes the claims whose time is over. Called with mu held.
func (w *Waiter) concludeAll() {
	for _, c := range w.ending {
		w.conclude(c)
	}
	w.ending = slices.DeleteFunc(w.ending, func(c *claim) bool { return c.gone })
}

// seen reports whether all partitions of a claim were polled within a second before it came, or later, or why one
// cannot be. A server that is slow may be behind with the polls. Then a claim goes by the last one, if claims have come one
// after the other since then. Called with mu held.
func (w *Waiter) seen(c *claim) (bool, error) {
	var failed error
	for _, t := range c.group.topics[c.seen:] {
		for _, p := range t.parts {
			switch {
			case p.err != nil:
				failed = p.err
			case w.nodes.Failing(p.node):
				failed = NotAnswering(p.node)
			case p.polled < c.joined-pollEvery && (p.missed || p.polled == -Never):
				return false, nil
			}
		}
		if failed == nil {
			c.seen++
		}
	}
	return true, failed
}

// NotAnswering is the error of what is not sent to a node that does not answer others.
func NotAnswering(node string) error {
	return fmt.Errorf("not sent, because node %s does not answer; try again: %w", node, punctual.ErrUnreachable)
}

// hopeless reports whether no partition of a claim could be polled. Called with mu held.
func (w *Waiter) hopeless(c *claim) bool {
	for _, t := range c.group.topics {
		for _, p := range t.parts {
			if p.err == nil && !w.nodes.Failing(p.node) {
				return false
			}
		}
	}
	return true
}

// ofNode reports whether an error says that a node cannot be reached, or does not answer.
func ofNode(err error) bool {
	return errors.Is(err, punctual.ErrUnreachable) || errors.Is(err, punctual.ErrIndeterminate)
}

// poll looks at the times, until Close.
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

// pollDue polls the partitions whose time has come, and returns when the next one's does.
func (w *Waiter) pollDue() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.clock.Now()
	heads := make(map[string][]*part)
	var later []*part
	for until := now; len(w.times) > 0 && w.times[0].at <= until; {
		p := w.times[0]
		byTime.Remove(&w.times, p)
		switch {
		case !p.topic.waited():
			p.dropped = now
			p.topic.tellUnpolled()
			continue
		case p.due && p.at > now:
			later = append(later, p)
			continue
		}
		if !p.due {
			p.polls++
			// What is due is not kept waiting by what is only to be tidied. So while a partition is ready, no other one
			// is polled to tidy it.
			if p.tidy = p.polls >= w.tidyEach() && w.ready == 0; p.tidy {
				p.polls = 0
			}
		}
		if p.due || p.tidy {
			w.makeReady(p)
			w.offer(p)
			continue
		}
		if p.node = w.store.Node(p.Part); w.nodes.Failing(p.node) {
			p.at = now + testEvery.Microseconds()
			later = append(later, p)
			continue
		}
		p.polling, p.begun, p.noticed, p.unsure = true, now, Never, false
		heads[p.node] = append(heads[p.node], p)
		until = now + pollTogether
	}
	for _, p := range later {
		byTime.Push(&w.times, p)
	}
	for node, ps := range heads {
		for _, p := range ps {
			p.crowded = len(ps) > HeadsAtOnce
		}
		w.work.Go(func() { w.readHeads(node, ps) })
	}
	w.concludeAll() // a node may be failing by now
	w.forget(now)
	w.until = Never
	if len(w.times) > 0 {
		w.until = w.times[0].at
	}
	if len(w.ending) > 0 {
		w.until = min(w.until, now+testEvery.Microseconds())
	}
	return w.until
}

// tidyEach is how many polls of a partition there are for one that tidies it. Called with mu held.
func (w *Waiter) tidyEach() int { return max(tidyEach, len(w.times)/tidyMost) }

// readHeads asks a node when some partitions have something, in one pipeline after the other.
func (w *Waiter) readHeads(node string, ps []*part) {
	for len(ps) > 0 {
		n := min(len(ps), HeadsAtOnce)
		some, rest := ps[:n], ps[n:]
		if late := w.readSome(node, some, rest); late {
			return
		}
		ps = rest
	}
}

// readSome asks in one pipeline. If that takes too long the rest is asked for beside it, and it returns true.
func (w *Waiter) readSome(node string, ps, rest []*part) (late bool) {
	names := make([]Part, len(ps))
	r := &read{parts: ps}
	w.mu.Lock()
	for i, p := range ps {
		names[i], p.reading = p.Part, r
	}
	w.mu.Unlock()
	call := w.nodes.Begin(node, names[0], nil)
	defer time.AfterFunc(overtakeAfter, func() { w.readBeside(r, node, rest) }).Stop()
	got := w.store.Heads(node, names)
	call.End(!slices.ContainsFunc(got, func(h Head) bool { return h.Err != nil }))
	w.mu.Lock()
	defer w.mu.Unlock()
	r.over = true
	w.tookHeads(r, got)
	return r.late
}

// readBeside lets other polls read partitions when a pipeline takes long: its connection may hang (P11).
func (w *Waiter) readBeside(r *read, node string, rest []*part) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.over {
		return
	}
	r.late = true
	now := w.clock.Now()
	for _, p := range r.parts {
		if p.hanging == mostOvertaken {
			continue
		}
		p.hanging++
		p.polling, p.reading = false, nil
		p.at, p.due, p.expected = now, false, false
		if p.noticed < Never {
			p.at, p.due = p.noticed, true
		}
		w.arrange(p)
	}
	w.work.Go(func() { w.readHeads(node, rest) })
}

// tookHeads takes in what a pipeline was answered. Called with mu held.
func (w *Waiter) tookHeads(r *read, all []Head) {
	var ps []*part
	var got []Head
	for i, p := range r.parts {
		if p.reading != r { // another poll has, or will have, the say
			p.hanging--
			continue
		}
		ps, got = append(ps, p), append(got, all[i])
		p.polling, p.reading = false, nil
		w.polled(p, all[i].At, all[i].Then, all[i].Err)
	}
	// First all that is due is known, so that each claim asks for the first of its order.
	for i, p := range ps {
		if err := got[i].Err; err != nil {
			for _, c := range p.topic.claims() {
				if !c.gone && len(c.asks) == 0 && (!ofNode(err) || w.hopeless(c)) {
					w.finish(c, nil, err)
				}
			}
		}
		if p.ready {
			w.offer(p)
		} else if !p.asking && p.place < 0 {
			w.schedule(p)
		}
	}
	w.concludeAll()
}

// forget forgets, once a while, the topics that nobody has waited for. Called with mu held.
func (w *Waiter) forget(now int64) {
	if now-w.swept < forgetAfter {
		return
	}
	w.swept = now
	w.groups.removeIdle(now - forgetAfter)
	for name, t := range w.topics {
		if len(t.seats) > 0 || t.wanted > now-forgetAfter ||
			slices.ContainsFunc(t.parts, func(p *part) bool { return p.polling || p.asking || p.late > 0 || p.hanging > 0 }) {
			continue
		}
		for _, p := range t.parts {
			w.notReady(p)
			if p.place >= 0 {
				byTime.Remove(&w.times, p)
			}
			w.store.Unsubscribe(p.Part)
		}
		delete(w.topics, name)
	}
}

// Waiting is how many claims wait for a topic, and whether nothing is asked for them.
func (w *Waiter) Waiting(name string) (claims int, quiet bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.topics[name]
	if t == nil {
		return 0, true
	}
	for _, s := range t.seats {
		claims += s.group.live
	}
	return claims, !slices.ContainsFunc(t.parts, func(p *part) bool {
		return p.ready || p.polling || p.asking || p.polled == -Never || p.at <= w.clock.Now()
	})
}

// Close ends the polling and waits for what is under way. No claim may be under way.
func (w *Waiter) Close() {
	close(w.quit)
	w.start.Do(func() {}) // the poller does not begin any more
	w.work.Wait()
}
