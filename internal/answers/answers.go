// Package answers keeps the answers of a store that is not a storekit.Repeater, so that a call
// whose answer was lost can be sent again and is still carried out once.
//
// Answers are kept in memory. A process that opens the store later does not have them. It has
// another Instance, from which the sender of a call learns that an earlier copy of the call may
// have been carried out.
package answers

import (
	"container/list"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash"
	"sync"
	"time"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// Options configures a Store. A nil *Options and each zero field mean the default.
type Options struct {
	// Keep is how long an answer is kept after the end of its call. Default 2 min, which is longer
	// than a claim waits at a server with the default limits (55 s).
	Keep time.Duration
	// MaxBytes bounds the memory of the answers. One client of WithClient may take as much of it as
	// is left free, so at most half, so that others find room (P14). At a bound the client's own
	// answers to claims are dropped first, the oldest before the others: a repetition of such a
	// claim gets ErrIndeterminate, and its leases run out unless an earlier caller has them. If
	// that is not enough, the client's calls with a new key get ErrOverloaded. Default 64 MiB.
	MaxBytes int64
	// Unchanged promises that callers never change their arguments, not even after a call has
	// returned, nor the results, bodies, headers and failures that they get. The Store then copies
	// neither bodies, headers and failures nor the slices of pushes, settlements and their results.
	Unchanged bool
}

// Store wraps another store and recognizes a call that is sent again, as storekit.Repeater
// describes. It has no Unwrap, so that punctual.As finds its own Repeater and never that of the
// store below. To find the Inspector of the store below, ask that store. All methods are safe for
// concurrent use.
type Store struct {
	store    punctual.Store // the store below
	keep     time.Duration
	maxBytes int64
	copies   bool // not Options.Unchanged
	instance string
	running  sync.WaitGroup // the goroutines of calls

	mu      sync.Mutex
	closed  bool               // guarded by mu: no further call may begin
	calls   map[string]*call   // guarded by mu: calls under way and calls with a kept answer, by key
	kept    list.List          // guarded by mu: of *call, the calls with a kept answer, in the order in which they ended
	bytes   int64              // guarded by mu: the sum of the sizes of calls
	clients map[string]*client // guarded by mu: the clients of calls, by name
}

// client counts the calls of one client and their memory. Its fields are guarded by Store.mu.
type client struct {
	name   string
	calls  int       // how many of Store.calls are the client's
	bytes  int64     // the sum of their sizes
	claims list.List // of *call, claims whose answer is kept and was not dropped, the oldest first
}

type clientKey struct{}

// WithClient returns a context whose calls count for the client with this name. Calls without a
// client in their context may take all of Options.MaxBytes.
func WithClient(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, clientKey{}, name)
}

// call is one call with a key. Its fields are guarded by Store.mu unless said otherwise.
type call struct {
	key     string
	client  *client
	sum     uint64 // hash of the call's kind and content
	claim   bool   // the call is a claim
	ctx     context.Context
	end     func()        // cancels ctx
	done    chan struct{} // closed when the call has ended
	asking  int           // callers that wait for the end of the call or are about to read its answer
	handed  int           // callers that got the answer and have not reported it as undelivered
	given   bool          // at least one caller got the answer
	left    bool          // the call is a claim whose callers have all stopped waiting before its end
	answer  any           // set before done is closed
	err     error         // set before done is closed
	size    int64         // callBytes, and the bytes of the answer, or while the call is under way those expected
	until   time.Time     // when the call is forgotten, by the store's clock
	inKept  *list.Element // in Store.kept, nil unless the answer is kept
	inClaim *list.Element // in client.claims, nil unless the call is there
}

// New returns a Store that keeps the answers of s.
func New(s punctual.Store, o *Options) *Store {
	a := &Store{store: s, keep: 2 * time.Minute, maxBytes: 64 << 20, copies: o == nil || !o.Unchanged, instance: rand.Text(), calls: make(map[string]*call), clients: make(map[string]*client)}
	if o != nil && o.Keep > 0 {
		a.keep = o.Keep
	}
	if o != nil && o.MaxBytes > 0 {
		a.maxBytes = o.MaxBytes
	}
	return a
}

// Repeats implements storekit.Repeater.
func (s *Store) Repeats() time.Duration { return s.keep }

// Instance returns a random name of this Store's memory. A call that was first sent to a Store with
// another Instance may have been carried out there, which this Store does not know.
func (s *Store) Instance() string { return s.instance }

// Push implements punctual.Store.
func (s *Store) Push(ctx context.Context, ms []punctual.NewMessage) ([]punctual.PushResult, error) {
	r, ok := storekit.RequestOf(ctx)
	if !ok {
		return s.store.Push(ctx, ms)
	}
	rs, _, err := ask(ctx, s, r, kind[[]punctual.PushResult]{
		sum: sumOf(func(h hash.Hash) { storekit.HashPush(h, ms) }),
		own: func() {
			if s.copies {
				ms = copyPush(ms)
			}
		},
		do:   func(ctx context.Context) ([]punctual.PushResult, error) { return s.store.Push(ctx, ms) },
		copy: copyItems[punctual.PushResult](s), size: sizeOfResults, expected: expectedResults(ms),
	})
	return rs, err
}

// Claim implements punctual.Store.
func (s *Store) Claim(ctx context.Context, c punctual.Claim) ([]punctual.Delivery, error) {
	r, ok := storekit.RequestOf(ctx)
	if !ok {
		return s.store.Claim(ctx, c)
	}
	ds, first, err := ask(ctx, s, r, kind[[]punctual.Delivery]{
		claim: true,
		sum:   sumOf(func(h hash.Hash) { storekit.HashClaim(h, c) }),
		own:   func() { c.Topics = append([]string(nil), c.Topics...) },
		do:    func(ctx context.Context) ([]punctual.Delivery, error) { return s.claim(ctx, c, r.NotAfter) },
		copy:  s.copyDeliveries, size: SizeOfDeliveries,
	})
	if len(ds) == 0 {
		return ds, err
	}
	return s.current(ctx, ds, first)
}

// Settle implements punctual.Store.
func (s *Store) Settle(ctx context.Context, ss []punctual.Settlement) ([]error, error) {
	r, ok := storekit.RequestOf(ctx)
	if !ok {
		return s.store.Settle(ctx, ss)
	}
	errs, _, err := ask(ctx, s, r, kind[[]error]{
		sum: sumOf(func(h hash.Hash) { storekit.HashSettle(h, ss) }),
		own: func() {
			if s.copies {
				ss = copySettle(ss)
			}
		},
		do:   func(ctx context.Context) ([]error, error) { return s.store.Settle(ctx, ss) },
		copy: copyItems[error](s), size: sizeOfErrors, expected: int64(len(ss)) * errorBytes,
	})
	return errs, err
}

// Amend implements punctual.Store.
func (s *Store) Amend(ctx context.Context, as []punctual.Amendment) ([]punctual.Amended, error) {
	r, ok := storekit.RequestOf(ctx)
	if !ok {
		return s.store.Amend(ctx, as)
	}
	out, _, err := ask(ctx, s, r, kind[[]punctual.Amended]{
		sum:  sumOf(func(h hash.Hash) { storekit.HashAmend(h, as) }),
		own:  func() { as = append([]punctual.Amendment(nil), as...) },
		do:   func(ctx context.Context) ([]punctual.Amended, error) { return s.store.Amend(ctx, as) },
		copy: copyItems[punctual.Amended](s), size: sizeOfAmended, expected: int64(len(as)) * amendedBytes,
	})
	return out, err
}

// Now implements punctual.Store. It ignores the key of a request, because reading the clock twice
// changes nothing.
func (s *Store) Now(ctx context.Context) (time.Time, error) { return s.store.Now(ctx) }

// Drain refuses further calls with a key and waits for the calls under way. A waiting claim is
// under way as long as a caller waits for it. The store below stays open.
func (s *Store) Drain() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.running.Wait()
}

// Close closes the store below, which ends the claims that wait there, and waits for the calls
// under way. Further calls with a key are refused.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	err := s.store.Close() // ends the claims that wait
	s.running.Wait()
	return err
}

// Answered forgets the answers with these keys, because their callers have received them. It
// ignores unknown keys.
func (s *Store) Answered(keys ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		if c := s.calls[key]; c != nil && c.inKept != nil {
			s.forget(c)
		}
	}
}

// Undelivered releases the leases of a Claim with this context whose answer did not reach its
// caller, so that the messages can be claimed again at once. It leaves them if another copy of the
// claim got the same answer or waits for it, and if the answer was forgotten meanwhile; the leases
// then run out unless their holder settles them.
func (s *Store) Undelivered(ctx context.Context, ds []punctual.Delivery) error {
	if r, ok := storekit.RequestOf(ctx); ok && !s.takeBack(r.Key) {
		return nil
	}
	return s.release(ctx, ds)
}

// takeBack forgets the answer of a call unless another caller has the answer or waits for it. It
// returns whether it did.
func (s *Store) takeBack(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.calls[key]
	if c == nil || c.inKept == nil {
		return false // the answer was forgotten, so another copy may have been carried out: the leases run out
	}
	c.handed--
	if c.handed > 0 || c.asking > 0 {
		return false
	}
	s.forget(c)
	return true
}

// release gives leases back, so that their attempts do not count.
func (s *Store) release(ctx context.Context, ds []punctual.Delivery) error {
	if len(ds) == 0 {
		return nil
	}
	if err := Release(ctx, s.store, ds, releaseLimit); err != nil {
		return fmt.Errorf("release messages that did not reach their caller: %w; the leases run out", err)
	}
	return nil
}

// Release gives leases back to a store, so that their attempts do not count. It takes at most
// limit, works also if ctx has ended, and ignores the request that ctx carries. Leases that have
// already ended are no error.
func Release(ctx context.Context, s punctual.Store, ds []punctual.Delivery, limit time.Duration) error {
	ctx, end := context.WithTimeout(context.WithoutCancel(storekit.WithoutRequest(ctx)), limit)
	defer end()
	ss := make([]punctual.Settlement, len(ds))
	for i, d := range ds {
		ss[i] = punctual.Settlement{Topic: d.Topic, ID: d.ID, Token: d.Token, Verb: punctual.SettleRelease}
	}
	errs, err := s.Settle(ctx, ss)
	for _, e := range errs {
		if !errors.Is(e, punctual.ErrLeaseLost) && !errors.Is(e, punctual.ErrCancelled) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// releaseLimit bounds how long a release takes. Leases that it has not released then run out.
const releaseLimit = 10 * time.Second

// claim claims from the store below and stops waiting at notAfter.
func (s *Store) claim(ctx context.Context, c punctual.Claim, notAfter time.Time) ([]punctual.Delivery, error) {
	if notAfter.IsZero() || c.Wait == 0 {
		return s.store.Claim(ctx, c)
	}
	now, err := s.Now(ctx)
	if err != nil {
		return nil, err
	}
	left := notAfter.Sub(now)
	if left > c.Wait {
		return s.store.Claim(ctx, c)
	}
	c.Wait = max(left, 0)
	ds, err := s.store.Claim(ctx, c)
	if err == nil && len(ds) == 0 {
		err = fmt.Errorf("the claim waited until it must not be carried out any more: %w", context.DeadlineExceeded)
	}
	return ds, err
}

// current leaves out the deliveries whose lease has ended. If first is true, this caller was the
// first to get the answer, so current tries to release them, so that their attempts do not count.
// An attempt counts all the same if the release fails, or if somebody has claimed the message since
// its lease ended.
func (s *Store) current(ctx context.Context, ds []punctual.Delivery, first bool) ([]punctual.Delivery, error) {
	now, err := s.Now(context.WithoutCancel(ctx))
	if err != nil {
		return nil, err
	}
	var ended []punctual.Delivery
	out := ds[:0]
	for _, d := range ds {
		if d.LeaseUntil.After(now) {
			out = append(out, d)
		} else {
			ended = append(ended, d)
		}
	}
	if first {
		err = s.release(ctx, ended)
	}
	if err != nil && len(out) == 0 {
		return nil, err
	}
	return out, nil // messages that could not be released are ready again, with one more attempt counted
}

// kind describes a call to ask.
type kind[A any] struct {
	claim bool
	sum   uint64
	own   func() // copies the arguments, because the call may go on after its caller has left
	do    func(context.Context) (A, error)
	copy  func(A) A
	size  func(A) int64
	// expected is the size of an answer without errors. It is 0 for a claim, whose answer can have
	// any size.
	expected int64
}

// ask carries a call out, or waits for an earlier call with the same key, and returns the answer.
// first is true for the first caller that gets the answer.
func ask[A any](ctx context.Context, s *Store, r storekit.Request, k kind[A]) (answer A, first bool, err error) {
	now, err := s.Now(ctx) // fails if the store is closed or ctx has ended
	if err != nil {
		return answer, false, err
	}
	if err := storekit.CheckRequest(r, now, s.keep); err != nil {
		return answer, false, err
	}
	late := !r.NotAfter.IsZero() && !now.Before(r.NotAfter)
	c, isNew, err := s.enter(ctx, r.Key, now, late, k.sum, k.claim, k.expected+callBytes)
	if err != nil {
		return answer, false, err
	}
	if isNew {
		k.own()
		go carryOut(s, c, now, k)
	}
	select {
	case <-c.done:
	case <-ctx.Done():
	}
	got, first, err := s.leave(ctx, c)
	switch {
	case late && errors.Is(err, context.Canceled) && ctx.Err() == nil:
		return answer, false, errLate()
	case err != nil || got == nil:
		return answer, false, err
	}
	return k.copy(got.(A)), first, nil
}

func errLate() error {
	return fmt.Errorf("the call came when it must not be carried out any more: %w", context.DeadlineExceeded)
}

// enter returns the call with the key, or a new call, which the caller must carry out. A late call
// is not carried out, it can only find an earlier copy of itself. size is how many bytes a new call
// counts while it is under way.
func (s *Store) enter(ctx context.Context, key string, now time.Time, late bool, sum uint64, claim bool, size int64) (c *call, isNew bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, false, fmt.Errorf("answers: %w", punctual.ErrClosed)
	}
	s.forgetUntil(now)
	c = s.calls[key]
	switch {
	case c != nil && c.sum != sum:
		return nil, false, fmt.Errorf("the key of the request was used for another call: %w; take a new key for each call", punctual.ErrInvalid)
	case c != nil:
		if late && c.claim && c.inKept == nil {
			c.end() // the late caller only asks for the result, so the claim must not wait any longer
		}
		c.asking++
		return c, false, nil
	case late:
		return nil, false, errLate()
	}
	k := s.clientOf(ctx)
	if !s.makeRoom(k, size) {
		return nil, false, fmt.Errorf("answers: those of the last %v take the %d bytes that this client may have: %w; try again later", s.keep, k.bytes, punctual.ErrOverloaded)
	}
	c = &call{key: key, client: k, sum: sum, claim: claim, done: make(chan struct{}), asking: 1}
	c.ctx, c.end = context.WithCancel(context.WithoutCancel(ctx))
	s.calls[key], s.clients[k.name] = c, k
	k.calls++
	s.resize(c, size)
	s.running.Add(1) // under mu, so that Drain and Close wait for it
	return c, true, nil
}

// carryOut makes the call of the store below and keeps its answer. It runs in a goroutine of its
// own, because every caller may leave before the answer that a later copy of the call will ask for.
func carryOut[A any](s *Store, c *call, began time.Time, k kind[A]) {
	defer s.running.Done()
	defer c.end()
	answer, err := k.do(c.ctx)
	size := int64(0)
	if err == nil {
		size = k.size(answer)
	}
	now, clockErr := s.Now(context.WithoutCancel(c.ctx))
	if clockErr != nil {
		now = began // the clock cannot be read any more, for instance because the store was closed
	}
	if s.finish(c, answer, size, err, now) {
		return
	}
	if ds, ok := any(answer).([]punctual.Delivery); ok {
		_ = s.release(c.ctx, ds) // no caller is left who could get an error; leases that were not released run out
	}
}

// finish keeps the answer of a call and wakes the callers that wait for it. A definite error and
// the answer of a claim that got nothing are not kept, because the next call with that key is
// carried out (storekit.Repeater). finish returns false if the call is a claim that succeeded after
// its callers had all left: the caller of finish then has to release its leases.
func (s *Store) finish(c *call, answer any, size int64, err error, now time.Time) (wanted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(c.done)
	c.answer, c.err = answer, err
	if c.left {
		return err != nil
	}
	if err != nil && punctual.Definite(err) || c.claim && size == 0 {
		s.remove(c)
		return true
	}
	s.resize(c, size+callBytes)
	c.until = now.Add(s.keep)
	c.inKept = s.kept.PushBack(c)
	if c.claim {
		c.inClaim = c.client.claims.PushBack(c)
	}
	return true
}

// callBytes is about how many bytes a call takes beside its answer.
const callBytes = 400

// leave ends a caller's wait and returns the answer if the call has ended. first is true if no
// other caller got the answer before. If the last caller of a claim leaves before its end, the
// claim is cancelled.
func (s *Store) leave(ctx context.Context, c *call) (answer any, first bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.asking--
	select {
	case <-c.done:
		if c.err == nil {
			first = !c.given
			c.given = true
			c.handed++
		}
		answer, err = c.answer, c.err
		if c.inClaim != nil && c.asking == 0 {
			s.makeRoom(c.client, 0) // for the answer to this claim, whose size was not known in advance
		}
		return answer, first, err
	default:
	}
	if !c.claim {
		return nil, false, errors.Join(ctx.Err(), punctual.ErrIndeterminate)
	}
	if c.asking == 0 && !c.left {
		c.left = true
		s.remove(c)
		c.end()
	}
	return nil, false, ctx.Err()
}

// clientOf returns the client that ctx names, a new one if it has no calls. Called with mu held.
func (s *Store) clientOf(ctx context.Context) *client {
	name, _ := ctx.Value(clientKey{}).(string)
	if k := s.clients[name]; k != nil {
		return k
	}
	return &client{name: name}
}

// hasRoom reports whether a call of this size fits. A client may have as much as is free
// afterwards, so that a client which takes all it can get leaves half of the room to the others.
// Called with mu held.
func (s *Store) hasRoom(k *client, size int64) bool {
	free := s.maxBytes - s.bytes - size
	return free >= 0 && (k.name == "" || k.bytes+size <= free)
}

// makeRoom drops the client's answers to claims, the oldest first, until a call of this size fits,
// and reports whether it fits then. A caller that has already got a dropped answer keeps its
// leases. Called with mu held.
func (s *Store) makeRoom(k *client, size int64) bool {
	for e := k.claims.Front(); e != nil && !s.hasRoom(k, size); {
		c := e.Value.(*call)
		e = e.Next()
		if c.asking > 0 {
			continue // a caller is about to read this answer
		}
		k.claims.Remove(c.inClaim)
		c.inClaim = nil
		c.answer, c.err = nil, fmt.Errorf("the answer of the claim is not kept any more: %w; its leases run out", punctual.ErrIndeterminate)
		s.resize(c, callBytes)
	}
	return s.hasRoom(k, size)
}

// resize sets the size of a call, in the sums of its client and of the Store as well. Called with
// mu held.
func (s *Store) resize(c *call, size int64) {
	s.bytes += size - c.size
	c.client.bytes += size - c.size
	c.size = size
}

// remove takes a call out of Store.calls and of the sums, and its client with the client's last
// call. forget does the rest for a call whose answer is kept. Called with mu held.
func (s *Store) remove(c *call) {
	delete(s.calls, c.key)
	s.resize(c, 0)
	if c.client.calls--; c.client.calls == 0 {
		delete(s.clients, c.client.name)
	}
}

// forgetUntil forgets the answers past their retention at now. Those that are kept for longer than
// keep from now on, because the store's clock has stepped back since, are kept for keep. Called
// with mu held.
func (s *Store) forgetUntil(now time.Time) {
	most := now.Add(s.keep)
	if e := s.kept.Front(); e != nil && e.Value.(*call).until.After(most) {
		for ; e != nil; e = e.Next() {
			if c := e.Value.(*call); c.until.After(most) {
				c.until = most
			}
		}
	}
	for e := s.kept.Front(); e != nil && !e.Value.(*call).until.After(now); e = s.kept.Front() {
		s.forget(e.Value.(*call))
	}
}

// forget forgets a call whose answer is kept. Called with mu held.
func (s *Store) forget(c *call) {
	s.remove(c)
	s.kept.Remove(c.inKept)
	c.inKept = nil
	if c.inClaim != nil {
		c.client.claims.Remove(c.inClaim)
		c.inClaim = nil
	}
}
