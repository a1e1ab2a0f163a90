package wait

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/punctualmq/punctual"
)

// claim is a claim that waits. Waiter.mu guards all fields but the first four.
type claim struct {
	Request
	ctx    context.Context // the caller's, but it never ends, because a script that was sent is not given up
	result chan result     // holds one
	first  chan struct{}   // receives when the claim has found its first message; holds one

	list    *waitList
	joined  int64
	found   []punctual.Delivery // in the order of the claim's topics
	indexes []int               // the topic of each of these messages, as an index in list.topics
	since   int64               // when the first message was found
	asks    []*ask              // attempts whose answers the claim waits for
	seen    int                 // Waiter.seen need not check list.topics[:seen] again
	gone    bool                // the claim has its result

	answeredEarly bool  // it returned while attempts were under way, and what these lease goes back to the store
	over          bool  // the time of the request is over
	left          error // why the claim is to return before its time: its context has ended, or the store closes
	lostAnswer    error // the error of an attempt whose answer was lost, so that nobody knows what it has leased
}

// result is what a claim returns.
type result struct {
	ds  []punctual.Delivery
	err error
}

// ask is an attempt of a claim to lease up to n messages of a partition.
type ask struct {
	part      *part
	claim     *claim
	index     int // of the topic, in the wait list of the claim
	n         int
	expected  bool // see next
	overtaken bool // guarded by Waiter.mu: others may ask the partition, because this attempt takes too long
}

// Claim waits for messages and returns the first that come, together with others that are due.
// After the first message was found it begins further attempts for 10 ms only, because the lease of
// that message runs, and waits for the answers until LateAfter has passed since the first message.
// When nothing has come until the time of the request, Claim returns nothing, or why a partition
// could not be polled. It also returns when ctx ends, and with the error closed when closing is
// closed, which happens when the store closes. In each of these cases it first waits for the
// answers to its attempts, but not for those that others have overtaken or whose nodes are late.
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
			w.answerEarly(c)
		case <-over:
			over = nil
			if w.clock.Now() < r.Until { // Clock.After may receive before the time
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

// join adds a claim to the wait list of its topics, and has those of their partitions polled that
// were left out or whose last poll failed.
func (w *Waiter) join(c *claim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.joined = w.clock.Now()
	l := w.lists.find(c.Topics)
	if l == nil {
		l = w.lists.add(c.Topics, w.topicsOf(c.Topics))
	}
	c.list = l
	w.lists.join(l, c)
	for i := l.unpolled.next(0); i >= 0; i = l.unpolled.next(i + 1) {
		l.unpolled.remove(i)
		for _, p := range l.topics[i].parts {
			w.pollAgain(p)
		}
	}
	w.serve(c)
}

// serve lets a claim ask ready partitions of its topics, in the order of the topics. A partition in
// which at most one message is due, as far as is known, is asked for one, and the claim goes on
// with the next partition. Any other partition is asked for as many as the claim may still have, so
// that without PerTopic later topics are asked only when the answer has left some. Called with mu
// held.
func (w *Waiter) serve(c *claim) {
	now := w.clock.Now()
	for w.mayAsk(c, now) {
		a := w.nextFor(c, now)
		if a == nil {
			return
		}
		if a.part.cleanup.now || a.part.next.then > now {
			a.n = 1
		}
		w.ask(a)
	}
}

// mayAsk reports whether a claim may make another attempt. Called with mu held.
func (w *Waiter) mayAsk(c *claim, now int64) bool {
	switch {
	case c.gone || c.left != nil || w.ready == 0:
		return false
	case len(c.asks) == 0 && len(c.found) == 0:
		return true
	case c.Alone: // see Request.Alone
		return false
	}
	return len(c.asks) < asksAtOnce && (len(c.found) == 0 || now-c.since <= collectFor) // the leases of what was found run
}

// nextFor returns the next attempt of a claim, for all messages that it may still have, or nil when
// none of the partitions that it may ask is ready. A ready partition whose node fails is scheduled
// for a later poll. Called with mu held.
func (w *Waiter) nextFor(c *claim, now int64) *ask {
	for i := c.list.ready.next(0); i >= 0; i = c.list.ready.next(i + 1) {
		t := c.list.topics[i]
		n := c.room(i)
		for range t.parts {
			if n == 0 || t.ready == 0 {
				break
			}
			t.turn++
			p := t.parts[t.turn%len(t.parts)]
			if p.phase != ready {
				continue
			}
			if p.node = w.store.Node(p.Part); !w.nodes.Failing(p.node) {
				return &ask{part: p, claim: c, index: i, n: n, expected: p.next.expected}
			}
			p.next.at = now + testEvery.Microseconds()
			w.schedule(p)
		}
	}
	return nil
}

// room returns how many more messages of a topic, given by its index, a claim may ask for. Called
// with mu held.
func (c *claim) room(index int) int {
	all, of := len(c.found), 0
	for _, a := range c.asks {
		all += a.n
		if a.index == index {
			of += a.n
		}
	}
	if c.PerTopic == 0 {
		return c.Max - all
	}
	for _, found := range c.indexes {
		if found == index {
			of++
		}
	}
	return min(c.Max-all, c.PerTopic-of)
}

// ask begins an attempt. Called with mu held.
func (w *Waiter) ask(a *ask) {
	c, p := a.claim, a.part
	c.asks = append(c.asks, a)
	w.enter(p, asking)
	tidy := p.cleanup.now
	p.asked, p.next.expected, p.cleanup.now = a, false, false
	p.poll.begun, p.poll.noticed, p.poll.dirty = w.clock.Now(), Never, false
	node, n, lease := p.node, a.n, c.Lease
	w.work.Go(func() {
		call := w.nodes.Begin(node, p.Part, func() { w.nodeLate(a) })
		defer time.AfterFunc(overtakeAfter, func() { w.overtake(a) }).Stop()
		got := w.store.Claim(c.ctx, p.Part, n, lease, tidy)
		call.End(got.Err == nil)
		w.answered(a, got)
	})
}

// take adds what an attempt has found, behind what was found in the same topic and in earlier ones.
// Called with mu held.
func (c *claim) take(a *ask, ds []punctual.Delivery) {
	i, _ := slices.BinarySearch(c.indexes, a.index+1)
	c.found = slices.Insert(c.found, i, ds...)
	c.indexes = slices.Insert(c.indexes, i, slices.Repeat([]int{a.index}, len(ds))...)
}

// dropped removes an attempt from those whose answers a claim waits for, and reports whether it was
// among them. Called with mu held.
func (c *claim) dropped(a *ask) bool {
	n := len(c.asks)
	c.asks = slices.DeleteFunc(c.asks, func(o *ask) bool { return o == a })
	return len(c.asks) < n
}

// overtake makes a partition ready again while an attempt takes long, so that the same claim and
// others can ask the partition, because perhaps only the connection of the attempt hangs (P11,
// P14). What the attempt has leased is handed out, or given back, when its answer comes.
func (w *Waiter) overtake(a *ask) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := a.part
	if p.asked != a || p.overtakenAsks == mostOvertaken {
		return
	}
	a.overtaken = true
	p.overtakenAsks++
	p.asked = nil
	p.next.at, p.next.due = w.clock.Now(), true
	p.poll.noticed, p.poll.dirty = Never, false
	w.enter(p, ready)
	w.letGo(a)
	w.offer(p)
}

// nodeLate is called when a node has not answered an attempt for too long, so that the claim asks
// other partitions.
func (w *Waiter) nodeLate(a *ask) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.letGo(a)
}

// letGo has a claim wait for the answer of an attempt no longer. The claim may then ask other
// partitions, or return. Called with mu held.
func (w *Waiter) letGo(a *ask) {
	if a.claim.dropped(a) {
		w.serve(a.claim)
		w.conclude(a.claim)
	}
}

// answered takes in the answer of an attempt.
func (w *Waiter) answered(a *ask, got Answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, c := a.part, a.claim
	waited := c.dropped(a) && !c.gone
	if got.Err != nil && ofNode(got.Err) { // so that partitions of other nodes are asked before this one
		got.At = max(got.At, w.clock.Now()+pollEvery)
	}
	if a.overtaken { // a later poll decides, or has decided, when the partition is polled next
		p.overtakenAsks--
	} else {
		w.enter(p, resting)
		p.asked = nil
		if a.expected && got.Now > 0 {
			p.contention.adapt(len(got.Deliveries))
		}
		w.polled(p, p.contention.withJitter(w.afterClaim(p, got)), got.At, got.Err)
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
	if waited && got.Final {
		w.finish(c, nil, nil)
	}
	w.handOut(p, c, ds)
	if got.Err != nil && !punctual.Definite(got.Err) {
		c.lostAnswer = got.Err
	}
	if got.Err != nil && !c.gone && (!ofNode(got.Err) || w.unreachable(c)) {
		w.finish(c, nil, got.Err)
	}
	w.serve(c)
	w.arrange(p)
	w.conclude(c)
	w.concludeAll()
}

// afterClaim returns when a partition is to be polled after an attempt: when a poll can find
// something, but not before the backoff is over. After an attempt in vain it has the processes
// counted now and then. Called with mu held.
func (w *Waiter) afterClaim(p *part, got Answer) int64 {
	now := w.clock.Now()
	wait := p.contention.backoff(got)
	if wait == 0 {
		return got.At
	}
	if p.contention.toCount(now) {
		w.work.Go(func() {
			n := w.store.Processes(p.Part)
			w.mu.Lock()
			defer w.mu.Unlock()
			p.contention.processes = n
		})
	}
	return max(got.At, now+wait)
}

// handOut gives the messages of an attempt whose claim no longer waits for them to other claims
// that wait under the same lease, or back to the store. Called with mu held.
func (w *Waiter) handOut(p *part, from *claim, ds []punctual.Delivery) {
	if len(ds) == 0 {
		return
	}
	var back []punctual.Delivery
	ds = slices.DeleteFunc(ds, func(d punctual.Delivery) bool {
		ended := w.store.LeaseEnded(&d)
		if ended {
			back = append(back, d)
		}
		return ended
	})
	for _, c := range p.topic.claims() {
		if c.gone || c.left != nil || len(c.asks) > 0 || c.Alone || from.Alone || from.answeredEarly || c.Lease != from.Lease || len(ds) == 0 {
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

// answerEarly has a claim return what it has found. What its attempts that are still under way
// lease goes back to the store.
func (w *Waiter) answerEarly(c *claim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.answeredEarly = !c.gone
	w.finish(c, nil, nil)
}

// finish gives a claim its result, unless it has one already: what the claim has found, or else ds
// and err. Called with mu held.
func (w *Waiter) finish(c *claim, ds []punctual.Delivery, err error) {
	if !c.gone {
		if len(c.found) > 0 {
			ds, err = c.found, nil
		}
		if err != nil && err != c.left && c.lostAnswer != nil && punctual.Definite(err) {
			err = fmt.Errorf("%w (an earlier attempt: %w)", err, c.lostAnswer)
		}
		c.gone = true
		w.lists.leave(c.list, w.clock.Now())
		c.result <- result{ds, err}
	}
}

// end is called with nil when the time of a claim is over, or with the reason for which the claim
// is to return before its time.
func (w *Waiter) end(c *claim, why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if why != nil {
		c.left = cmp.Or(c.left, why)
	} else {
		c.over = true
		w.ending = append(w.ending, c)
		w.wakePoller() // the poller concludes the claim when a node that it waits for begins to fail
	}
	w.conclude(c)
}

// conclude gives a claim that is to return its result, unless it still waits for an answer, or its
// time is over and one of its partitions is still to be polled; see seen. Called with mu held.
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

// seen reports whether a claim may say that nothing is due. That is so when each of its partitions
// was polled within a second before the claim came, or later, or cannot be polled, for which err is
// one reason. When a slow server is behind with the polls, an older poll of a partition will do,
// unless nobody had waited for the partition in between. Called with mu held.
func (w *Waiter) seen(c *claim) (seen bool, err error) {
	for _, t := range c.list.topics[c.seen:] {
		for _, p := range t.parts {
			switch {
			case p.last.err != nil:
				err = p.last.err
			case w.nodes.Failing(p.node):
				err = NotAnswering(p.node)
			case p.last.begun < c.joined-pollEvery && (p.last.stale || p.last.begun == -Never):
				return false, nil
			}
		}
		if err == nil {
			c.seen++
		}
	}
	return true, err
}

// unreachable reports whether none of a claim's partitions can be polled. Called with mu held.
func (w *Waiter) unreachable(c *claim) bool {
	for _, t := range c.list.topics {
		for _, p := range t.parts {
			if p.last.err == nil && !w.nodes.Failing(p.node) {
				return false
			}
		}
	}
	return true
}
