package pgstore

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// never is a time that no clock reaches, in ms.
const never int64 = math.MaxInt64 / 1000

// noScanStart is the scan start of a whole scan. It lies before all messages, some of which may be
// due before 1970.
const noScanStart int64 = math.MinInt64

// roomMark stands behind a topic in notifications that a lease may begin there, because one has
// ended or the bounds have changed. Only claims that the bounds have stopped try again then.
const roomMark = "!"

const (
	// pollEvery is the time between two polls, in ms. A poll finds what a lost notification would
	// have announced (P11).
	pollEvery = 1000
	// scanAhead is how far into the future claims and polls read, and how soon a message must be
	// due for other processes to be notified. Later messages need no notification, because a poll
	// finds them in time. Reading further would be waste: the index has mostly dead entries there,
	// at the times at which the leases of finished messages would have ended.
	scanAhead = 2 * time.Second
	// backlogFor is for how long after a poll a claim without a wait may begin at a scan start, and
	// for how long after such a claim polls go on although no claim waits, in ms.
	backlogFor = 2 * pollEvery
	// polledLately is for how long after a poll of a topic claims of several topics rely on what is
	// known of it, in ms.
	polledLately = pollEvery + pollEvery/2
	// forgetAfter is for how long the process remembers a topic that no claim waits for, in ms.
	forgetAfter = 60_000
	// askAnew is how long one claim may take to read a topic until another claim is woken for it,
	// in ms, because the first one's connection may hang (P14).
	askAnew = 250
	// pollsAtOnce bounds the polls under way. One is enough unless its connection hangs (P11).
	pollsAtOnce = 4
	// cheapWhole is how long a whole scan may take, in ms, so that each poll is one. After a longer
	// one there is none for wholeRest times its length, so that whole scans take a tenth of the
	// time at most; or for just its length, if messages may be before a scan start.
	cheapWhole = 100
	wholeRest  = 9
	// wholeLimit is how long a statement may read a topic from its beginning for a claim that waits
	// or for a poll, because beside a held snapshot it would take longer and longer. What it has
	// not read is read in bounded steps then; see search.
	wholeLimit = 400 * time.Millisecond
	// sinceSlack is subtracted from a time on the store's clock that this process has guessed, in
	// ms.
	sinceSlack = 1000
)

// waits lets claims sleep until something is due. Each topic that is waited for has a time at which
// a claim can find something. When it comes, one of the claims that wait for the topic is woken and
// tries again; the next one follows when the first has left messages. Each second a poll reads the
// next due times of all such topics, topicsAtOnce of them in a statement.
type waits struct {
	s      *Store
	others notifier
	// arrivals lets NewCompanions wait.
	arrivals *storekit.Arrivals
	quit     chan struct{}
	rearm    chan struct{} // holds one request to the poller to look at the times of the topics again
	once     sync.Once     // the poller begins with the first claim that waits
	work     sync.WaitGroup

	mu      sync.Mutex
	topics  map[string]*waited // guarded by mu
	polled  int64              // guarded by mu: when the last poll began, or has failed, in ms
	polls   int                // guarded by mu: how many have begun
	polling int                // guarded by mu: how many are under way
	again   bool               // guarded by mu: a further poll begins as soon as none is under way
	reads   int                // guarded by mu: how many readings of topics have begun
	step    int64              // guarded by mu: how much time the next bounded reading covers, in ms
	err     error              // guarded by mu: that of the latest poll that has ended, or nil
	errOf   int                // guarded by mu: the number of that poll
	whole   wholeScans         // guarded by mu
	writers writers            // guarded by mu
}

// wholeScans says when a poll is to read the topics from their beginning, and not from the scan
// start alone. Its fields are guarded by waits.mu.
type wholeScans struct {
	underWay bool
	soon     bool  // what lies before a scan start may have changed
	inSteps  bool  // a statement cannot read the whole topics within wholeLimit, so the next one is done in steps
	ended    int64 // when the last one ended, in ms
	took     int64 // in ms
}

// due reports whether a poll at now, in ms, is to be a whole scan. pause, if not 0, is the rest
// between whole scans that a test sets.
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

// writers are transactions that have written or locked messages, as polls see them. A transaction
// that ends late may put messages before the scan start of a topic, or release messages that claims
// have skipped because it had locked them.
type writers struct {
	poll int   // the number of the poll that saw them
	at   int64 // when it asked, in ms
	open map[string]writer
}

// writer is a transaction that was open at a poll.
type writer struct {
	since int64 // the transaction has written nothing before this time, in ms
	polls int   // how many polls have seen it
}

// see records which transactions a poll has seen. If one that at least two polls had seen has
// ended, see returns a time before which that transaction has written nothing, in ms; otherwise
// never. A transaction that only one poll has seen was short, as long as polls follow each other
// each second. What it has pushed for the time of the push is not before a scan start, because scan
// starts stay 2 s behind the clock. What it has pushed with an earlier due time is left to whole
// scans, and so is a longer transaction that polls have missed because some of them failed or came
// late.
func (x *writers) see(poll int, asked int64, seen []string) (since int64) {
	since = never
	if poll <= x.poll { // an earlier poll that was late
		return since
	}
	before := x.at - sinceSlack
	if x.open == nil {
		before = noScanStart
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
	waiting []*waiter // in the order in which they came or were last woken
	at      int64     // when a claim can find something, in ms; never if nothing is known to come
	notices int       // how often something has come that a reading under way may not show
	paused  bool      // the latest reading has found the topic paused, or has not found it
	blocked bool      // the latest reading has leased nothing because of the topic's bounds; at is when they may let a lease begin
	rooms   int       // how often there has been notice of room for a lease
	read    int       // the number of the latest reading whose result is recorded
	asking  *waiter   // the claim that was woken to read the topic, or nil
	asked   int64     // when it was woken, in ms
	vain    int       // how many woken claims in a row found nothing
	wanted  int64     // when a claim last waited for the topic, in ms
	polled  int64     // when the last poll began that has read the topic, in ms
	claimed int64     // when a claim without a wait last began at the scan start, in ms

	// scanStart is where claims that wait or take from a backlog, and polls that are no whole
	// scans, begin to read, in ms. As far as this process knows, no message that a claim can find
	// is before it, but in the spans of early. See endRead.
	scanStart int64
	// raisedTo is the latest scan start that a reading under way may bring, in ms.
	raisedTo int64
	// early are the spans before the scan start in which a claim may find something. Claims read
	// them before they read from the scan start, each in bounded steps, so that one overdue message
	// does not have them read all that was finished since its due time.
	early []span
}

// waiter is a claim that waits. The last two fields are guarded by waits.mu.
type waiter struct {
	wake     chan struct{} // holds one signal
	topics   []string
	wokenFor []*waited // the topics whose time had come when it was woken
	busy     bool      // it is claiming, or was woken to do so
}

func (w *waits) init(s *Store) {
	w.s = s
	w.quit, w.rearm = make(chan struct{}), make(chan struct{}, 1)
	w.topics, w.step, w.arrivals = make(map[string]*waited), stepFirst, storekit.NewArrivals()
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
	until := w.s.db.clock.guess()/1000 + max(c.Wait.Milliseconds(), 1)
	me := &waiter{wake: make(chan struct{}, 1), topics: slices.Compact(slices.Sorted(slices.Values(c.Topics))), busy: true}
	w.join(me)
	defer w.leave(me)
	for {
		ds, err := w.s.claims.claimAside(ctx, c)
		w.attempted(me, len(ds))
		if err != nil || len(ds) > 0 {
			return ds, err
		}
		if over, err := w.sleep(ctx, me, until); over || err != nil {
			return []punctual.Delivery{}, err
		}
	}
}

// sleep returns when the waiter is woken to claim again, when its time is over, or with the error
// that ends the wait. When the time is over and the latest poll has failed, it returns the error of
// that poll, because the claim may have missed something.
func (w *waits) sleep(ctx context.Context, me *waiter, until int64) (over bool, err error) {
	for {
		passed, stop := w.s.db.clock.after(until)
		select {
		case <-me.wake:
		case <-passed:
			if w.s.db.clock.guess()/1000 < until { // clock.after ends a sleep after an hour at most
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
			err = w.s.calls.ErrClosed()
		}
		stop()
		return over, err
	}
}

func (w *waits) join(me *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.s.db.clock.guess() / 1000
	for _, name := range me.topics {
		t := w.topics[name]
		if t == nil {
			t = &waited{at: never, scanStart: noScanStart, raisedTo: noScanStart}
			w.topics[name] = t
		}
		t.waiting = append(t.waiting, me)
		t.wanted = now
	}
	w.wakePoller()
}

// leave removes a waiter, and offers the topics that it was woken for to other waiters.
func (w *waits) leave(me *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range me.topics {
		t := w.topics[name]
		t.waiting = slices.DeleteFunc(t.waiting, func(o *waiter) bool { return o == me })
	}
	w.release(me)
}

// attempted records that a waiter has claimed, and how many messages it got.
func (w *waits) attempted(me *waiter, found int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range me.wokenFor {
		if found > 0 {
			t.vain = 0
			continue
		}
		// After an attempt in vain the topic rests, for 1, 2, 4 and then 8 ms, because the server's
		// clock may be behind the guess, or another process was quicker. The clock of a test may
		// stand still, so that no rest would end.
		if w.s.db.clock.fake == nil {
			t.at = max(t.at, w.s.db.clock.guess()/1000+int64(1)<<min(t.vain, 3))
			t.vain++
		}
	}
	w.release(me)
}

// release ends what a waiter was woken for, and offers the topics of that anew. Called with mu
// held.
func (w *waits) release(me *waiter) {
	now := w.s.db.clock.guess() / 1000
	topics := me.wokenFor
	me.wokenFor, me.busy = nil, false
	select {
	case <-me.wake:
	default:
	}
	for _, t := range topics {
		if t.asking == me {
			t.asking = nil
		}
	}
	for _, t := range topics {
		w.offer(t, now)
	}
}

// offer wakes the first waiter that is not busy, or the first of all, if the topic's time has come.
// If the waiter that was woken before takes longer than askAnew, another one is woken all the same.
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
	t.waiting = append(slices.Delete(t.waiting, first, first+1), me) // so that another one is woken the next time
	t.asking, t.asked, me.busy = me, now, true
	me.wokenFor = append(me.wokenFor, t)
	w.wakePoller() // the poller wakes another waiter if this one takes long
	select {
	case me.wake <- struct{}{}:
	default:
	}
}

// readState is what was known of a topic when a reading of it began.
type readState struct {
	number    int // of the reading
	notices   int
	rooms     int
	scanStart int64 // the reading skips all that is before this time
	raisedTo  int64 // the latest scan start that the reading may bring
}

// readResult is what a reading has found of a topic.
type readResult struct {
	at        int64 // when a claim can next find something there, in ms
	scanStart int64 // before this time the reading has left nothing, in ms
	paused    bool  // the topic is paused, or there is none, so nothing of it was read
	full      bool  // because of the topic's bounds, only messages whose leases had run out were read, or none
	blocked   bool  // nothing was leased because of the topic's bounds
}

// beginRead is called before topics are read, and endRead takes its result. With fromScanStart the
// reading begins at the scan start, which spares it the entries of finished messages that stay in
// the index until no snapshot needs them. Otherwise the whole topic is read.
func (w *waits) beginRead(topics []string, fromScanStart bool) map[string]readState {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := make(map[string]readState, len(topics))
	w.reads++
	latest := behind(w.s.db.clock.guess())
	for _, name := range topics {
		g := readState{number: w.reads, scanStart: noScanStart, raisedTo: latest}
		if t := w.topics[name]; t != nil {
			g.notices, g.rooms = t.notices, t.rooms
			t.scanStart, t.raisedTo = min(t.scanStart, latest), max(t.raisedTo, latest)
			if fromScanStart {
				g.scanStart = t.scanStart
			}
		}
		seen[name] = g
	}
	return seen
}

// fresh reports whether a claim of topics that does not wait may begin at their scan starts: polls
// find what has come before these, as for claims that wait. It has the polls go on for a while.
func (w *waits) fresh(topics []string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.s.db.clock.guess() / 1000
	if w.err != nil || w.polls == 0 || now >= w.polled+backlogFor {
		return false
	}
	for _, name := range topics {
		if t := w.topics[name]; t == nil || t.scanStart == noScanStart {
			return false
		}
	}
	for _, name := range topics {
		w.topics[name].claimed = now
	}
	w.wakePoller()
	return true
}

// endRead records the result of a reading. What was noticed since the reading began stays.
//
// The scan start is a guess, because others may put messages before it, or release messages that a
// claim has skipped. Of most such changes there is notice at once. Each poll sees which
// transactions have ended late, and whole scans find the rest: one each second as long as they are
// cheap (P11).
func (w *waits) endRead(name string, r readResult, seen readState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.topics[name]
	if t == nil {
		return
	}
	whole := seen.scanStart == noScanStart
	switch t.paused = r.paused; {
	case r.paused || r.full: // the scan start stays where it is, so that the end of that changes nothing but the time of the next claim
	case whole && r.scanStart < t.scanStart: // something is before the scan start
		t.early = addSpan(t.early, span{r.scanStart, t.scanStart})
	default:
		t.scanStart = max(t.scanStart, min(r.scanStart, seen.raisedTo))
	}
	now, at := w.s.db.clock.guess()/1000, r.at
	switch t.blocked = r.blocked && t.rooms == seen.rooms; {
	case t.blocked: // what was pushed meanwhile has no room either
	case r.blocked:
		at = now
	case t.notices != seen.notices || seen.number < t.read: // a whole scan may take long, and another reading was quicker
		at = min(at, t.at)
	}
	if len(t.early) > 0 && !t.paused && !t.blocked {
		at = min(at, now)
	}
	t.at, t.read = at, max(t.read, seen.number)
	w.offer(t, now)
}

// notice records that a claim may find something in a topic. in begins at the first place where it
// may, and ends at the last such place before the scan start, or later. A reading under way brings
// no scan start behind raisedTo, so places behind that need no record, and the many messages that
// come in time do not keep the scan start where it is. With the name newCompanions, notice records
// that there are new companions, and with a topic and roomMark, that there may be room for a lease.
func (w *waits) notice(name string, in span) {
	if name == newCompanions {
		w.arrivals.Tell()
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	topic, room := strings.CutSuffix(name, roomMark)
	t := w.topics[topic]
	switch {
	case t == nil:
		return
	case room:
		if t.rooms++; !t.blocked {
			return
		}
		t.blocked = false
	}
	t.notices++
	w.put(t, in, max(t.scanStart, t.raisedTo))
}

// found records that a search has found something in a topic, in the span in. Unlike notice it
// changes nothing behind the scan start, from where a backlog is claimed in the order of its due
// times.
func (w *waits) found(name string, in span) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.topics[name]; t != nil {
		w.put(t, in, t.scanStart)
	}
}

// put has claims read a span, as far as it is before a time, in ms. Called with mu held.
func (w *waits) put(t *waited, in span, before int64) {
	if in.from < before {
		t.early = addSpan(t.early, span{in.from, max(in.from, min(in.until, before))})
	}
	if in.from < t.at && !t.blocked {
		t.at = in.from
		w.offer(t, w.s.db.clock.guess()/1000)
	}
}

// takeEarly takes the first part of the early spans of a topic, as long as a bounded reading may
// be, and reports whether there is one. Who has read the part calls readEarly.
func (w *waits) takeEarly(name string) (part span, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.topics[name]
	if t == nil || t.paused || len(t.early) == 0 {
		return span{}, false
	}
	first := t.early[0]
	part = span{first.from, min(first.until, first.from+w.step-1)}
	rest := slices.Clone(t.early[1:])
	t.early = addSpan(rest, span{part.until + 1, first.until})
	return part, true
}

// readEarly records which part of an early span is still to be read.
func (w *waits) readEarly(name string, left span) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.topics[name]; t != nil {
		t.early = addSpan(t.early, left)
		if len(t.early) > 0 && !t.paused && !t.blocked {
			t.at = min(t.at, w.s.db.clock.guess()/1000)
		}
	}
}

// hasEarly reports whether something may be before the scan start of a topic.
func (w *waits) hasEarly(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.topics[name]
	return t != nil && !t.paused && len(t.early) > 0
}

// stepTook records how long a bounded reading has taken.
func (w *waits) stepTook(took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.step = nextStep(w.step, took.Milliseconds())
}

// skipTo moves the scan starts of topics to a moment ago, because a statement cannot read them from
// where they were. Polls search what is before that.
func (w *waits) skipTo(names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.raise(names, math.MaxInt64)
	w.whole.soon, w.whole.inSteps, w.again = true, true, true
	w.wakePoller()
}

// raise moves to a moment ago the scan starts of topics that are before a time, in ms. Called with
// mu held.
func (w *waits) raise(names []string, before int64) {
	start := behind(w.s.db.clock.guess())
	for _, name := range names {
		if t := w.topics[name]; t != nil && t.scanStart < min(start, before) {
			t.scanStart, t.raisedTo = start, max(t.raisedTo, start)
		}
	}
}

// toRead returns which of the topics a claim from the scan starts has to read. It need not read a
// topic that a poll has read lately and for which nothing has come since, because at says when
// something is due there. So a claim of thousands of topics reads the few that matter.
func (w *waits) toRead(topics []string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.s.db.clock.guess() / 1000
	return slices.DeleteFunc(slices.Clone(topics), func(name string) bool {
		t := w.topics[name]
		return t != nil && t.scanStart > noScanStart && t.at > now && now >= t.polled && now < t.polled+polledLately
	})
}

// slowWhole reports whether a statement cannot read whole topics within wholeLimit.
func (w *waits) slowWhole() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.whole.inSteps
}

// pushed notifies of messages that were stored.
func (w *waits) pushed(rs []punctual.PushResult) {
	come := w.coming()
	for i := range rs {
		r := &rs[i]
		if r.Status == punctual.PushStored || r.Status == punctual.PushReplaced {
			come.add(r.Topic, r.Due.UnixMilli())
		}
		if r.Status == punctual.PushReplaced && (w.s.db.bounded.has(r.Topic) || w.s.db.keyed.has(r.Topic)) { // perhaps under its lease
			w.addRoom(&come, r.Topic)
		}
	}
	w.notify(come)
}

// moved notifies of locked messages that are still to be delivered, because their times may have
// changed.
func (w *waits) moved(l *locked) {
	come := w.coming()
	for n, r := range l.rows {
		if r.live {
			come.add(n.topic, r.At())
		}
	}
	w.notify(come)
}

// resumed notifies of a topic whose delivery is no longer paused. Nobody has raised the scan start
// during the pause.
func (w *waits) resumed(topic string) {
	come := w.coming()
	come.add(topic, w.s.db.clock.guess()/1000)
	w.notify(come)
}

// coming collects for each topic when a claim can find something: the first time, and the last one
// of those that may be before a scan start.
type coming struct {
	overdue int64 // in ms; a message that is due at this time or later is not before any scan start
	topics  map[string]span
}

func (w *waits) coming() coming {
	return coming{w.s.db.clock.guess()/1000 - scanBack.Milliseconds()/2, make(map[string]span)}
}

func (c *coming) add(topic string, at int64) {
	c.put(topic, span{at, at})
}

// put adds what was collected of a topic before.
func (c *coming) put(topic string, in span) {
	both := in
	if old, ok := c.topics[topic]; ok {
		both.from = min(in.from, old.from)
		both.until = both.from
		for _, x := range []span{in, old} {
			if x.from < c.overdue {
				both.until = max(both.until, x.until)
			}
		}
	}
	c.topics[topic] = both
}

// addRoom adds that there may be room for a lease in a topic, and in one of its keys if it has
// keys.
func (w *waits) addRoom(c *coming, topic string) {
	now := w.s.db.clock.guess() / 1000
	c.add(topic+roomMark, now)
	if w.s.db.keyed.has(topic) {
		c.add(topic, now)
	}
}

// notify records in this process, and announces to others, from which time on a claim may find
// something in each topic.
func (w *waits) notify(come coming) {
	for topic, in := range come.topics {
		w.notice(topic, in)
	}
	w.others.add(come)
}

func (w *waits) wakePoller() {
	select {
	case w.rearm <- struct{}{}:
	default:
	}
}

// poll wakes waiters and begins polls when their times come, until close.
func (w *waits) poll() {
	for {
		reached, stop := w.s.db.clock.after(w.pollDue())
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

// pollDue wakes waiters for the topics whose time has come, begins a poll each second, forgets
// topics for which no claim has waited for forgetAfter, and returns when there is next something to
// do, in ms.
func (w *waits) pollDue() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.s.db.clock.guess() / 1000
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
		case now < t.claimed+backlogFor:
			names = append(names, name)
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
		w.work.Go(func() { w.readNextDue(number, names, whole) })
	}
	return min(next, w.polled+every)
}

// pollNow has a poll follow soon, because notifications may have been lost.
func (w *waits) pollNow() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.again = true
	w.wakePoller()
}

// topicsAtOnce is how many topics one statement of a poll reads.
const topicsAtOnce = 1000

// readNextDue is a poll: it reads the next due time of each topic, from its scan start on, or over
// the whole topic.
func (w *waits) readNextDue(number int, names []string, whole bool) {
	ctx, end := context.WithTimeout(w.s.life, callTime)
	defer end()
	begun := time.Now()
	at := w.s.db.clock.guess() / 1000
	failed := w.readWriters(ctx, number)
	w.mu.Lock()
	inSteps := whole && w.whole.inSteps
	w.mu.Unlock()
	for some := range slices.Chunk(names, topicsAtOnce) {
		err := errStatementTimeout
		if !inSteps {
			_, _, err = w.s.claims.nextDue(ctx, w.beginRead(some, !whole), true)
		}
		switch timedOut := errors.Is(err, errStatementTimeout); {
		case timedOut && whole:
			inSteps = true
			err = w.search(ctx, some)
		case timedOut:
			w.skipTo(some)
			err = nil
		}
		if err != nil {
			failed = err
			continue
		}
		w.readAt(some, at)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.s.db.clock.guess() / 1000
	w.polling--
	if whole {
		w.whole.underWay, w.whole.ended, w.whole.took = false, now, time.Since(begun).Milliseconds()
		w.whole.soon = w.whole.soon || failed != nil
		w.whole.inSteps = inSteps && w.whole.took > cheapWhole
	}
	if number > w.errOf {
		w.errOf, w.err = number, failed
		if failed != nil {
			w.polled = max(w.polled, now) // so the next poll begins a second from now
		}
	}
	w.wakePoller()
}

// readAt records that a poll which began at a time, in ms, has read topics.
func (w *waits) readAt(names []string, at int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range names {
		if t := w.topics[name]; t != nil {
			t.polled = max(t.polled, at)
		}
	}
}

// readWriters reads which transactions have written or locked messages and are still open. If one
// has ended late, the same poll reads the topics from a time on before which that transaction had
// written nothing, and a whole scan follows soon.
func (w *waits) readWriters(ctx context.Context, poll int) error {
	asked := w.s.db.clock.guess() / 1000
	var seen []string
	err := w.s.db.read(ctx, func() *step {
		seen = nil
		return w.s.db.step().add("writers", nil, func(rows scanner) error {
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
		if t.notices++; since > noScanStart && since < t.scanStart {
			t.early = addSpan(t.early, span{since, t.scanStart})
		}
	}
	return nil
}

// search is a whole scan in bounded steps: it reads topics backwards, from a moment ago to their
// beginning. What it finds in a step becomes an early span, so that claims are as bounded.
// Meanwhile claims take what is due now.
func (w *waits) search(ctx context.Context, names []string) error {
	w.mu.Lock()
	w.raise(names, noScanStart+1)
	w.mu.Unlock()
	until := behind(w.s.db.clock.guess()) // not before the scan starts that were just set
	for {
		w.mu.Lock()
		step := w.step
		w.mu.Unlock()
		from := until - step + 1
		if step == stepMost {
			from = noScanStart
		}
		begun := time.Now()
		starts := slices.Repeat([]int64{from}, len(names))
		_, next, err := w.s.claims.readNext(ctx, names, starts, &until, true)
		switch {
		case errors.Is(err, errStatementTimeout) && step > 1:
			w.stepTook(time.Since(begun))
			continue
		case err != nil:
			return err
		}
		for name, n := range next {
			if n.at != nil {
				w.found(name, span{*n.at, until})
			}
		}
		if from == noScanStart {
			return nil
		}
		until = from - 1
		w.stepTook(time.Since(begun))
	}
}
