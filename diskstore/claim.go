package diskstore

import (
	"context"
	"fmt"
	"time"

	"github.com/punctualmq/punctual"
)

// Claim leases due messages; see punctual.Store. What is due is in memory already, and
// the claim log is written but not synced, so a claim waits for no fsync.
func (s *Store) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	if err := c.Check(); err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	if err := s.enter(); err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	defer s.calls.Done()
	w := s.addWaiter(c.Topics)
	defer s.removeWaiter(w)
	deadline := s.clock.ms() + punctual.CeilDuration(c.Wait)
	for {
		ds, next, err := s.claimNow(ctx, &c)
		if err != nil {
			return nil, fmt.Errorf("claim: %w", err)
		}
		if len(ds) > 0 || s.clock.ms() >= deadline {
			return ds, nil
		}
		if err := s.wait(ctx, w, next, deadline); err != nil {
			return nil, fmt.Errorf("claim: %w", err)
		}
	}
}

// claimNow leases what is due now, and tells when something will be. It reads the clock once:
// were time to go on, a slow claim would find its own leases run out and take the same again.
func (s *Store) claimNow(ctx context.Context, c *punctual.Claim) (ds []punctual.Delivery, next int64, err error) {
	if err := ctxOrUsable(ctx, s); err != nil {
		return nil, 0, err
	}
	now := s.clock.ms()
	next = never
	for _, name := range c.Topics {
		got, at, err := s.claimTopic(ctx, name, now, c.Max-len(ds), c.Lease)
		if err != nil {
			return nil, 0, s.giveBack(ds, err)
		}
		ds, next = append(ds, got...), min(next, at)
		if len(ds) == c.Max {
			break
		}
	}
	return ds, next, nil
}

func ctxOrUsable(ctx context.Context, s *Store) error {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	return s.usable()
}

// claimTopic leases up to n messages of a topic that are due at now, or tells when one will be due.
func (s *Store) claimTopic(ctx context.Context, name string, now int64, n int, length time.Duration) (ds []punctual.Delivery, next int64, err error) {
	for len(ds) < n {
		cs, next, load := s.take(name, now, n-len(ds), length)
		if load != nil {
			err = s.load(ctx, load)
		}
		var got []punctual.Delivery
		if len(cs) > 0 {
			got, err = s.handOut(ctx, cs)
		}
		if err != nil {
			return nil, 0, s.giveBack(ds, err)
		}
		ds = append(ds, got...)
		if load == nil && len(cs) == 0 {
			return ds, next, nil
		}
	}
	return ds, 0, nil
}

// take takes up to n entries that are due at now, near or with a lease that ran out, off their timeline.
// When the next message due is still on disk it returns the topic to load instead.
func (s *Store) take(name string, now int64, n int, length time.Duration) (cs []*claimed, next int64, load *topic) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.topics[name]
	if t == nil {
		return nil, never, nil
	}
	if length == 0 {
		length = t.settings.Lease
	}
	until := now + punctual.CeilDuration(length)
	for len(cs) < n {
		at, ok := t.nextAt()
		if !ok {
			return cs, never, nil
		}
		if at > now {
			return cs, at, nil
		}
		e := t.head()
		if e == nil || t.diskNext.ms < e.next {
			if len(cs) > 0 {
				return cs, now, nil
			}
			return nil, 0, t
		}
		if s.tokens.next >= s.tokens.limit {
			s.kickDuties()
			return cs, now + 1, nil
		}
		cs = append(cs, s.takeOff(e, now, until))
	}
	return cs, now, nil
}

// claimed is an entry on its way to a holder. A claim has two steps: takeOff takes the message
// from all others, prepare counts the attempt and makes the lease. In between the entry still
// says what the attempts before this one left, so that the claim log and amendments
// have that to go by.
type claimed struct {
	e          *entry
	was        entry  // as it was before
	rec        []byte // nil if it must be read
	now, until int64
	token      int64
	settings   punctual.Settings
	record     *record // set by prepare, with the attempt counted
	cancelled  bool    // set by prepare: no attempt was to follow the last lease
	lease      lease   // set by prepare when it made the lease
}

// takeOff takes a due entry off its timeline. Called with mu held.
func (s *Store) takeOff(e *entry, now, until int64) *claimed {
	t := e.topic
	c := &claimed{e: e, was: *e, rec: e.rec, now: now, until: until, token: s.tokens.next, settings: t.settings}
	s.tokens.next++
	if e.state == near {
		s.dropNear(e)
		t.near.pop()
	} else {
		delete(s.byToken, e.token) // the holder whose lease ran out is too late from here on
		t.leases.pop()
	}
	e.state, e.rec = taken, nil
	t.leased[e.key.seq] = e
	return c
}

// handOut turns what a claim took into deliveries: it counts the attempts, logs the claim, and
// buries those that must not be delivered any more. When it returns an error nothing
// was handed out.
func (s *Store) handOut(ctx context.Context, cs []*claimed) ([]punctual.Delivery, error) {
	out, doomed, err := s.prepareAll(cs)
	if err != nil {
		s.undo(cs)
		return nil, err
	}
	if len(doomed) > 0 {
		if err := s.buryDoomed(ctx, doomed); err != nil {
			s.undo(out)
			return nil, err
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	if err := s.logLeases(out); err != nil {
		s.undo(out)
		return nil, err
	}
	ds := make([]punctual.Delivery, len(out))
	for i, c := range out {
		ds[i] = c.delivery()
	}
	return ds, nil
}

// prepareAll makes leases of what a claim took, and tells what it must bury instead.
func (s *Store) prepareAll(cs []*claimed) (out, doomed []*claimed, err error) {
	for _, c := range cs {
		ok, err := s.prepare(c)
		switch {
		case err != nil:
			return nil, nil, err
		case ok:
			out = append(out, c)
		case c.record != nil:
			doomed = append(doomed, c)
		}
	}
	if len(out) > 0 {
		// Whoever looked at the timeline meanwhile did not see these.
		s.mu.Lock()
		defer s.mu.Unlock()
		s.wake(out[0].e.topic, out[0].until)
	}
	return out, doomed, nil
}

// prepare reads what is to be delivered and decides whether it may be; if so it counts
// the attempt and makes the lease. A message that was taken away meanwhile has no record
// afterwards.
func (s *Store) prepare(c *claimed) (ok bool, err error) {
	e := c.e
	if c.rec == nil {
		if c.rec, err = s.get(posKey(keyLive, e.topic.num, e.key)); err != nil {
			return false, err
		}
		if c.rec == nil {
			return false, s.missing(e)
		}
	}
	r, err := decodeRecord(c.rec)
	if err != nil {
		return false, s.readError("topic "+e.topic.name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.state == gone {
		return false, nil
	}
	c.record = r
	lapses := e.addTo(r)
	if e.held() {
		ranOut := punctual.Failure{Attempt: r.attempts, At: punctual.FromMillis(c.now), Error: punctual.ErrLeaseRanOut}
		lapses, r.failures = punctual.AddFailure(lapses, ranOut), punctual.AddFailure(r.failures, ranOut)
	}
	r.token = c.token
	c.cancelled = e.cancel || r.cancel
	if c.cancelled || r.expired(c.now) || r.attempts >= maxAttempts(r, c.settings) {
		return false, nil
	}
	r.attempts++
	s.grant(c, lapses)
	return true, nil
}

// grant makes the lease of a message whose attempt is counted. Called with mu held.
func (s *Store) grant(c *claimed, lapses []punctual.Failure) {
	e := c.e
	e.state, e.next, e.id = leased, c.until, c.record.id
	e.token, e.renewed, e.attempt, e.lapses = c.token, 0, c.record.attempts, lapses
	s.byToken[e.token] = e
	e.topic.leases.add(e, len(e.topic.leased))
	c.lease = e.lease()
}

// missing reports a message that is in memory but not on disk, unless it was taken away
// while the claim was looking for it.
func (s *Store) missing(e *entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.state == gone {
		return nil
	}
	err := corruptf("message %v of topic %s is not on disk any more", e.key, e.topic.name)
	s.fail(err)
	return err
}

func maxAttempts(r *record, t punctual.Settings) int {
	if r.maxAttempts > 0 {
		return r.maxAttempts
	}
	return t.MaxAttempts
}

func (c *claimed) delivery() punctual.Delivery {
	return punctual.Delivery{
		Message: c.record.message(c.e.topic.name), Token: c.token, Failures: c.record.failures,
		Delivered: punctual.FromMillis(c.now), LeaseUntil: punctual.FromMillis(c.until),
	}
}

// logLeases appends the claims to the claim log.
func (s *Store) logLeases(out []*claimed) error {
	leases := make([]lease, len(out))
	for i, c := range out {
		leases[i] = c.lease
	}
	return s.logClaims(leasePayload(leases))
}

// logClaims appends a frame and asks for a new segment when this one is full.
func (s *Store) logClaims(payload []byte) error {
	err := s.bounded("write to the claim log", func() error { return s.claims.append(payload) })
	if err != nil || s.claims.full() {
		s.kickDuties()
	}
	return err
}

func (e *entry) lease() lease {
	return lease{
		topic: e.topic.num, key: e.key, token: e.token, renewed: e.renewed, attempt: e.attempt,
		until: e.next, lapses: e.lapses,
	}
}

// undo puts back what a claim took and did not hand out.
func (s *Store) undo(cs []*claimed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range cs {
		if e := c.e; e.state == taken && e.token == c.was.token || e.state == leased && e.token == c.token {
			s.putBack(c)
		} // else it was taken away meanwhile, or by the next claim
	}
}

// putBack makes an entry what it was before a claim took it. Called with mu held.
func (s *Store) putBack(c *claimed) {
	e, was := c.e, &c.was
	delete(s.byToken, c.token)
	e.next, e.token, e.renewed, e.attempt, e.lapses = was.next, was.token, was.renewed, was.attempt, was.lapses
	if e.held() {
		e.state = leased
		s.byToken[e.token] = e
		e.topic.leases.add(e, len(e.topic.leased))
	} else {
		delete(e.topic.leased, e.key.seq)
		e.rec = c.rec
		s.addNear(e)
	}
	s.wake(e.topic, e.next)
}

// giveBack releases what a claim has leased before an error; the caller never learns of it.
func (s *Store) giveBack(ds []punctual.Delivery, cause error) error {
	if len(ds) == 0 {
		return cause
	}
	ss := make([]punctual.Settlement, len(ds))
	for i, d := range ds {
		ss[i] = punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleRelease}
	}
	if _, err := s.Settle(context.Background(), ss); err != nil {
		return fmt.Errorf("%w (and %d messages stay leased until their leases run out: %v)", cause, len(ds), err)
	}
	return cause
}

// buryDoomed ends messages that came up for delivery but must not be delivered any more:
// cancelled under their last lease, expired, or out of attempts.
func (s *Store) buryDoomed(ctx context.Context, doomed []*claimed) error {
	tx, err := s.begin(ctx)
	if err != nil {
		s.undo(doomed)
		return err
	}
	for _, c := range doomed {
		tx.bury(c)
	}
	return s.commit(ctx, tx)
}

func (tx *txn) bury(c *claimed) {
	e, r, t := c.e, c.record, c.e.topic
	tx.s.mu.Lock()
	away := e.state == gone
	cancelled := c.cancelled || e.cancel
	if !away {
		tx.s.unlink(e)
	}
	tx.s.mu.Unlock()
	switch {
	case away:
	case cancelled:
		tx.finishMessage(t, e.key, r.id)
	case r.attempts >= maxAttempts(r, c.settings):
		tx.die(t, e.key, r, punctual.ReasonAttemptsUsedUp)
	case r.dropExpired:
		tx.finishMessage(t, e.key, r.id)
	default:
		tx.die(t, e.key, r, punctual.ReasonExpired)
	}
}

// finishMessage removes a live message for good: acked, cancelled or dropped.
func (tx *txn) finishMessage(t *topic, p pos, id string) {
	tx.takeLive(t, p, id)
	tx.count(t, -1, 0)
	tx.rememberFinished(t, id)
}

// die moves a live message to the dead.
func (tx *txn) die(t *topic, p pos, r *record, reason punctual.DeathReason) {
	r.dead, r.died, r.reason = true, tx.ms, reason
	to := place{keyDead, pos{tx.ms, p.seq}}
	tx.takeLive(t, p, "")
	tx.set(posKey(keyDead, t.num, to.pos), r.encode())
	tx.setPlace(t, r.id, to)
	tx.count(t, -1, 1)
}

// waiter is a claim that waits for one of its topics.
type waiter struct {
	topics []string
	until  int64         // guarded by Store.mu: when it wakes by itself
	hint   chan struct{} // holds one hint
}

func (s *Store) addWaiter(topics []string) *waiter {
	w := &waiter{topics: topics, hint: make(chan struct{}, 1), until: never}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range topics {
		if s.waiters[name] == nil {
			s.waiters[name] = make(map[*waiter]struct{})
		}
		s.waiters[name][w] = struct{}{}
	}
	return w
}

func (s *Store) removeWaiter(w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range w.topics {
		delete(s.waiters[name], w)
		if len(s.waiters[name]) == 0 {
			delete(s.waiters, name)
		}
	}
}

// wake hints those who wait for a topic and would sleep past at. Called with mu held.
func (s *Store) wake(t *topic, at int64) {
	if t.settings.PausedOut {
		return
	}
	for w := range s.waiters[t.name] {
		if w.until > at {
			select {
			case w.hint <- struct{}{}:
			default:
			}
		}
	}
}

// wait sleeps until a hint, or until the store's clock has reached next or deadline. While
// something is pending it returns after a second at most, because the machine may have
// slept or its clock been set.
func (s *Store) wait(ctx context.Context, w *waiter, next, deadline int64) error {
	limit := maxSleep
	if next == never {
		limit = never
	}
	s.mu.Lock()
	w.until = min(next, deadline)
	s.mu.Unlock()
	reached, stop := s.clock.after(min(next, deadline), limit)
	defer stop()
	select {
	case <-w.hint:
	case <-reached:
	case <-ctx.Done():
		return ended(ctx)
	case <-s.closing:
	case <-s.failed:
	}
	s.mu.Lock()
	w.until = never // whoever comes while the claim looks again must hint
	s.mu.Unlock()
	return s.usable()
}
